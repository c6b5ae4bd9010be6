"""Requirements on any driver of a cluster. A new driver is one more fixture in conftest.py."""

from __future__ import annotations

import random
import sys

import pytest

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.ids import Hostname
from peloton.model.pod import Cause, PodState
from peloton.model.resources import Resources
from services.hostmgr.driver import HostLaunch, PodOnHost
from services.lab.local.ports import is_free
from tests.conformance.driver.lab import END_STATES, EXTENDED, FPGA, Lab

KILLED, LOST, RUNNING = PodState.KILLED, PodState.LOST, PodState.RUNNING
ORDER = [PodState.LAUNCHED, PodState.STARTING, RUNNING, *sorted(END_STATES)]


# Hosts and offers.


def test_hosts_and_their_offers_are_announced(lab: Lab) -> None:
    """Each host is announced with its capacity; its offers are a part of it, and have the labels of their host."""
    lab.wait(
        lambda: {announced.hostname for announced in lab.events.free_resources.values()} == lab.events.hosts.keys(),
        "free resources of all hosts",
    )

    for name, host in lab.events.hosts.items():
        assert lab.free(name).fits_in(host.capacity)
        assert name == host.labels[HOSTNAME_LABEL]
        for announced in lab.free_resources(name):
            assert (host.host_id, host.labels) == (announced.host_id, dict(announced.labels))


def test_what_a_pod_takes_is_no_longer_free(lab: Lab) -> None:
    """The remaining resources are offered again, without the pod's ports; all of the host after its end."""
    host = lab.host_with_free(cpu=1)
    before = lab.free(host)
    port = lab.free_resources(host)[0].ports[0][0]
    pod = lab.pod(lab.template(cpu=1, ports=[{"name": "http", "envName": "PORT"}]), (port,))
    placed = PodOnHost(pod.pod_id, host, lab.events.hosts[host].host_id)
    lab.driver.launch([HostLaunch(lab.claim(host), [pod])])
    lab.wait_for(placed, RUNNING)

    lab.wait(lambda: lab.free(host).cpu_milli == before.cpu_milli - 1_000, "the remaining free resources")
    assert not any(begin <= port <= end for announced in lab.free_resources(host) for begin, end in announced.ports)
    lab.driver.kill([placed])
    lab.wait_end(placed)
    lab.wait(lambda: lab.free(host) == before, "all free resources again")


def test_what_pods_hold_is_reported_of_their_host(lab: Lab) -> None:
    """The resources held on a host are announced, of any holder: free resources are known without offers, too."""
    host = lab.running(cpu=1).hostname

    lab.wait(lambda: lab.events.hosts[host].held.cpu_milli >= 1_000, "a host that is not free")
    assert lab.events.hosts[host].free.fits_in(lab.events.hosts[host].capacity - Resources.of(1))


def test_extended_resources_are_announced_and_taken(lab: Lab) -> None:
    """A host announces them, a pod takes what it asks for, and its end gives this back; a license is of no host."""
    hostname = lab.host_with_free(cpu=1)
    if not lab.events.hosts[hostname].capacity.extended:
        pytest.skip("hosts of this cluster have no extended resources")
    assert EXTENDED == lab.events.hosts[hostname].capacity.extended == lab.free(hostname).extended
    resource = {"cpuLimit": 0.5, "memLimitMb": 32, "extended": {FPGA: 1, "license/solver": 1}}

    pod = lab.running(hostname=hostname, resource=resource)

    lab.wait(lambda: lab.free(hostname).extended == ((FPGA, 1),), "the other one on offer")
    lab.wait(lambda: lab.events.hosts[hostname].held.extended == ((FPGA, 1),), "one that is held")
    lab.driver.kill([pod])
    lab.wait_end(pod)
    lab.wait(lambda: lab.free(hostname).extended == EXTENDED, "both on offer")


@pytest.mark.parametrize("how", ["launch", "return_room"])
def test_offers_that_are_not_used_come_again(how: str, lab: Lab) -> None:
    """A launch without pods returns its offers, and so does one whose result is unknown."""
    host = lab.host_with_free()
    before, claim = lab.free(host), lab.claim(host)

    if how == "launch":
        assert [] == lab.driver.launch([HostLaunch(claim, [])])
    else:
        lab.driver.return_resources(claim.resources_ids)

    lab.wait(lambda: lab.free(host) == before, "the same free resources")


def test_idle_offers_go_back_to_a_cluster_that_shares_it(lab: Lab) -> None:
    """Idle offers return to a shared cluster and come again when a lease requires them."""
    if not lab.driver.capabilities.shares_capacity:
        pytest.skip("no other framework waits for resources of this cluster")
    end_idle_offers(lab)

    lab.request_capacity()

    await_all_hosts(lab)


def test_a_host_that_joins_is_offered_to_pods_that_found_none(lab: Lab) -> None:
    """Pods for which the offers were not enough wait longer and longer with the next request, but not for a host that
    has joined since then and whose offers have gone back."""
    if not (lab.driver.capabilities.shares_capacity and lab.cluster.can_lose_hosts):
        pytest.skip("no other framework waits for resources of this cluster, or its hosts cannot be lost")
    host = lab.host_with_free()
    end_idle_offers(lab)
    lab.request_capacity()
    await_all_hosts(lab)
    lab.cluster.lose_host(host)
    lab.wait(lambda: host not in lab.events.hosts, "the loss of the host")
    end_idle_offers(lab)

    lab.cluster.bring_back_host(host)
    lab.wait(lambda: host in lab.events.hosts and lab.free_resources(host), "offers of the host")
    end_idle_offers(lab)
    lab.request_capacity()

    await_all_hosts(lab)


def end_idle_offers(lab: Lab) -> None:
    lab.events.is_idle = True
    lab.wait(lambda: not lab.events.free_resources, "the end of unused offers")
    lab.events.is_idle = False


def await_all_hosts(lab: Lab) -> None:
    lab.wait(
        lambda: {announced.hostname for announced in lab.events.free_resources.values()} == lab.events.hosts.keys(),
        "free resources of all hosts",
    )


def test_revocable_resources_is_apart(lab: Lab) -> None:
    """A revocable pod takes revocable cpu, and memory like any other."""
    if not lab.driver.capabilities.announces_revocable:
        pytest.skip("this cluster has no revocable resources")
    host = lab.lender()

    def slack(host: str) -> int:
        return sum(announced.revocable.cpu_milli for announced in lab.free_resources(host))

    cpu_milli, slack_milli = lab.free(host).cpu_milli, slack(host)
    pod = lab.pod(lab.template(cpu=1, revocable=True))
    lab.driver.launch([HostLaunch(lab.claim(host), [pod])])
    lab.wait_for(PodOnHost(pod.pod_id), RUNNING)

    lab.wait(lambda: (lab.free(host).cpu_milli, slack(host)) == (cpu_milli, slack_milli - 1_000), "less slack")


# Pods.


def test_states_come_in_their_order(lab: Lab) -> None:
    """States are reported from the launch to the end, each once; the end is the last."""
    short, long = lab.launch("true"), lab.running()
    lab.wait_for(short, PodState.SUCCEEDED)
    lab.driver.kill([long])
    lab.wait_end(long)

    for pod in (short, long):
        states = lab.states(pod)
        assert states == sorted(states, key=ORDER.index)
        assert RUNNING in states


def test_a_pod_that_fails_says_so(lab: Lab) -> None:
    """A failed pod is reported with its program, and not its host, as the cause."""
    if not lab.cluster.runs_processes and lab.driver.capabilities.kind == "mesos":
        pytest.skip("simulated pods do not fail")
    report = lab.wait_for(lab.launch("exit 3"), *END_STATES)

    assert report.status is not None
    assert (PodState.FAILED, Cause.PROGRAM) == (report.status.state, report.status.cause)


def test_a_report_comes_again_until_it_is_acknowledged(lab: Lab) -> None:
    """A report is repeated until it is acknowledged, and no later one of its pod comes before that."""
    lab.events.deaf = True
    pod = lab.launch("true")

    def is_repeated() -> bool:
        tokens = [report.token for report in lab.reports_of(pod) if report.token]
        return len(tokens) >= 2

    lab.wait(is_repeated, "a repetition")
    assert 1 == len({report.token for report in lab.reports_of(pod) if report.token})
    assert PodState.SUCCEEDED not in lab.states(pod)
    lab.events.deaf = False
    lab.wait_for(pod, PodState.SUCCEEDED)


def test_offers_are_used_once(lab: Lab) -> None:
    """One of two launches on the same offers starts its pod, and the other returns the offers: no pod is lost or runs
    twice."""
    host = lab.host_with_free(cpu=1)
    claim, template = lab.claim(host), lab.template()
    first, second = lab.pod(template), lab.pod(template)
    lab.driver.launch([HostLaunch(claim, [first])])

    failed = lab.driver.launch([HostLaunch(claim, [second])])

    assert lab.has_given_back(PodOnHost(second.pod_id), failed)
    lab.wait_for(PodOnHost(first.pod_id), RUNNING)
    assert RUNNING not in lab.states(PodOnHost(second.pod_id))


def test_what_does_not_fit_is_given_back(lab: Lab) -> None:
    """Other pods of the launch start."""
    host = lab.host_with_free(cpu=0.5)
    small, large = lab.pod(lab.template()), lab.pod(lab.template(cpu=lab.free(host).cpu_milli / 1000))

    failed = lab.driver.launch([HostLaunch(lab.claim(host), [small, large])])

    assert lab.has_given_back(PodOnHost(large.pod_id), failed)
    lab.wait_for(PodOnHost(small.pod_id), RUNNING)


def test_a_kill_ends_a_pod_once(lab: Lab) -> None:
    """A kill ends a pod once, however often it is sent, and without the host being named."""
    pod = lab.running()

    for _ in range(3):
        lab.driver.kill([PodOnHost(pod.pod_id)])

    assert lab.wait_end(pod) is KILLED
    other = lab.running()  # what was on its way has come by then
    assert [KILLED] == [state for state in lab.states(pod) if state in END_STATES]
    assert RUNNING in lab.states(other)


def test_a_pod_has_its_grace(lab: Lab) -> None:
    """A pod that handles the signal ends by itself within its grace period; another one is killed when the period is
    over."""
    if not lab.cluster.runs_processes:
        pytest.skip("pods of this cluster have no processes")
    wait = "echo ready >&2; while true; do sleep 0.1; done"
    willing = lab.running(f"trap 'echo bye >&2; exit 0' TERM; {wait}", killGracePeriodSeconds=60)
    deaf = lab.running(f"trap '' TERM; {wait}", killGracePeriodSeconds=1)
    for pod in (willing, deaf):
        lab.wait(lambda pod=pod: b"ready" in lab.driver.output_tail(pod, 1_000), "a pod that knows what to do")

    lab.driver.kill([willing, deaf])

    assert {lab.wait_end(willing), lab.wait_end(deaf)} <= {KILLED, PodState.SUCCEEDED}
    if lab.cluster.keeps_output_of_killed:
        assert b"bye" in lab.driver.output_tail(willing, 1_000)
    else:
        words = {pod: lab.wait_for(pod, *END_STATES).status for pod in (willing, deaf)}
        assert [True, False] == [status is not None and "status 0" in status.message for status in words.values()]


def test_a_kill_of_an_unknown_pod_is_answered(lab: Lab) -> None:
    """A kill of an unknown pod is answered with an end, so that no caller waits for one."""
    stranger = lab.unknown()

    lab.driver.kill([stranger])

    assert lab.wait_end(stranger) in (KILLED, LOST)


# Reconciliation.


def test_reconciliation_reports_pods_that_are_known_and_of_others(lab: Lab) -> None:
    """Answers say that they are some."""
    known, stranger = lab.running(), lab.unknown()

    lab.driver.reconcile([known, stranger])

    def answers(pod: PodOnHost) -> list[PodState]:
        return [r.status.state for r in lab.reports_of(pod) if r.is_answer and r.status is not None]

    assert [RUNNING] == lab.wait(lambda: answers(known), "an answer for the pod that runs")
    assert [LOST] == lab.wait(lambda: answers(stranger), "an answer for the other")


def test_reconciliation_of_everything_reports_what_runs(lab: Lab) -> None:
    """Reconciliation of everything reports all running pods, named in the call or not."""
    pods = [lab.running(), lab.running()]
    before = len(lab.events.reports)

    lab.driver.reconcile([])

    names = {str(pod.pod_id) for pod in pods}
    lab.wait(lambda: names <= {r.pod for r in lab.events.reports[before:] if r.is_answer}, "answers for all pods")


# Sessions.


def test_another_driver_has_the_pods_of_the_one_before(lab: Lab) -> None:
    """Reports that were not acknowledged come to the next driver; running pods are reported to it, and can be
    killed."""
    runs = lab.running()
    lab.events.deaf = True
    ended = lab.launch("true")
    lab.wait(lambda: lab.reports_of(ended), "a first report")
    lab.stop()

    lab.start()

    lab.wait_for(ended, PodState.SUCCEEDED)
    lab.driver.reconcile([runs])
    lab.wait_for(runs, RUNNING)
    lab.driver.kill([runs])
    assert lab.wait_end(runs) is KILLED


def test_a_driver_that_was_replaced_does_nothing_more(lab: Lab) -> None:
    """Launches of a replaced driver start nothing, and it does not take the session back."""
    host = lab.host_with_free()
    older, older_events, claim = lab.driver, lab.events, lab.claim(host)
    pod = lab.pod(lab.template())
    lab.start()
    lab.wait(lambda: not older.is_connected and not older_events.is_connected, "the end of the older session")

    assert [pod.pod_id] == [failed for failed, _ in older.launch([HostLaunch(claim, [pod])])]
    with pytest.raises(OSError, match=r"session|subscribed|lost"):
        older.kill([PodOnHost(pod.pod_id)])
    lab.running()
    assert [] == lab.states(PodOnHost(pod.pod_id))


def test_pods_outlive_another_control_plane(lab: Lab) -> None:
    """A session ends and another begins: offers from before are void, all hosts are offered again, and pods run on."""
    if not lab.cluster.can_fail_over:
        pytest.skip("the control plane of this cluster is not ours to replace")
    pod, host = lab.running(), lab.host_with_free()
    sessions, claim = lab.events.sessions, lab.claim(host)

    lab.cluster.fail_over()

    lab.wait(lambda: lab.events.sessions > sessions and lab.driver.is_connected, "another session")
    late = lab.pod(lab.template())
    assert lab.has_given_back(PodOnHost(late.pod_id), lab.driver.launch([HostLaunch(claim, [late])]))
    before = len(lab.events.reports)

    def runs() -> bool:
        lab.reconcile([pod])
        return any(r.pod == str(pod.pod_id) and r.state_text == RUNNING.value for r in lab.events.reports[before:])

    lab.wait(runs, "the pod that runs on")
    assert lab.running().hostname in lab.events.hosts


# Hosts that go and come.


def lose(lab: Lab) -> None:
    if not lab.cluster.can_lose_hosts:
        pytest.skip("the hosts of this cluster are not ours to break")


def test_pods_are_lost_with_their_host(lab: Lab) -> None:
    """A lost host is no longer announced, nor are its offers; when it comes back it takes pods again."""
    lose(lab)
    pod = lab.running()

    lab.cluster.lose_host(pod.hostname)

    report = lab.wait_for(pod, LOST)
    assert report.status is not None
    assert report.status.cause in (Cause.HOST_LOST, Cause.HOST_GONE)
    lab.wait(lambda: pod.hostname not in lab.events.hosts and not lab.free_resources(pod.hostname), "a host less")
    lab.cluster.bring_back_host(pod.hostname)
    lab.wait(lambda: pod.hostname in lab.events.hosts, "the host back")
    assert pod.hostname == lab.running(hostname=pod.hostname).hostname


def test_a_launch_on_a_host_that_is_gone_is_given_back(lab: Lab) -> None:
    """A launch on a host that was leased while it was there is given back."""
    lose(lab)
    host = lab.host_with_free()
    claim, pod = lab.claim(host), lab.pod(lab.template())
    lab.cluster.lose_host(host)

    failed = lab.driver.launch([HostLaunch(claim, [pod])])

    assert lab.has_given_back(PodOnHost(pod.pod_id), failed)
    assert RUNNING not in lab.states(PodOnHost(pod.pod_id))


def test_a_drained_host_goes_down_and_comes_up(lab: Lab) -> None:
    """Offers of a drained host have the time of its drain, pods stay until it goes down, and every step may be
    repeated."""
    lose(lab)
    pod = lab.running()
    host, address = pod.hostname, lab.address(pod.hostname)
    other = next(name for name in sorted(lab.events.hosts) if name != host)

    def goes(hostname: str) -> set[bool]:
        return {bool(announced.goes_ns) for announced in lab.free_resources(hostname)}

    for _ in range(2):
        lab.driver.drain([address])
    lab.wait(lambda: goes(host) == {True} and goes(other) == {False}, "free resources that will be withdrawn")
    assert not set(lab.states(pod)) & END_STATES
    for _ in range(2):
        lab.driver.take_down(address)
    assert lab.wait_end(pod) is LOST
    lab.wait(lambda: host not in lab.events.hosts, "a host less")
    for _ in range(2):
        lab.driver.bring_up(address)
    lab.wait(lambda: host in lab.events.hosts and goes(host) == {False}, "the host back")


def test_a_host_that_is_drained_no_more_stays(lab: Lab) -> None:
    """Offers of a host whose drain was cancelled are unlimited again, and its pods were not affected."""
    lose(lab)
    pod = lab.running()
    address = lab.address(pod.hostname)
    lab.driver.drain([address])
    lab.wait(
        lambda: any(announced.goes_ns for announced in lab.free_resources(pod.hostname)),
        "free resources that will be withdrawn",
    )

    lab.driver.bring_up(address)

    lab.wait(
        lambda: {announced.goes_ns for announced in lab.free_resources(pod.hostname)} == {0}, "free resources that stay"
    )
    assert RUNNING is lab.states(pod)[-1]


# What pods use and write.


def test_what_pods_use_is_measured(lab: Lab) -> None:
    """The usage of each Peloton-managed pod is measured by its id; a lost host does not answer."""
    if not lab.driver.capabilities.measures_use or not lab.cluster.hosts_answer:
        pytest.skip("this cluster measures nothing")
    pod = lab.running()

    def is_measured() -> bool:
        return pod.pod_id in {sample.pod_id for sample in lab.driver.samples_of(Hostname(pod.hostname))}

    lab.wait(is_measured, "a measurement")
    with pytest.raises(OSError, match="nowhere"):
        lab.driver.samples_of(Hostname("nowhere"))


def test_what_a_pod_wrote_is_read(lab: Lab) -> None:
    """The end of its stderr, and its files, also after its end."""
    if not lab.driver.capabilities.serves_files or not lab.cluster.runs_processes:
        pytest.skip("pods of this cluster write nothing")
    pod = lab.launch("echo oops >&2; exit 3")
    lab.wait_for(pod, PodState.FAILED)

    assert b"oops\n" == lab.driver.output_tail(pod, 1_000)
    files = {path.rpartition("/")[2] for path in lab.driver.sandbox(pod).paths}
    assert files & {"stderr", "stdout"}, "some clusters keep both in one"


def test_a_health_check_asks_a_dynamic_port_by_its_name(lab: Lab) -> None:
    """A server that listens on the port which its pod was dealt is healthy."""
    if not lab.cluster.runs_processes:
        pytest.skip("pods of this cluster listen to nothing")
    check = {"type": "HTTP", "httpCheck": {"portName": "web", "path": "/"}, "initialIntervalSecs": 1, "intervalSecs": 1}
    check["maxConsecutiveFailures"] = 600  # a busy machine takes its time to start the server
    template = lab.template(
        f'exec {sys.executable} -m http.server --bind 0.0.0.0 "$WEB"',
        ports=[{"name": "web", "envName": "WEB"}],
        healthCheck={**check, "enabled": True},
    )

    hostname = lab.host_with_free(cpu=0.5)
    offered = [
        port
        for announced in lab.free_resources(hostname)
        for first, last in announced.ports
        for port in range(first, last + 1)
    ]
    random.shuffle(offered)  # other tests look for a free port at the same time
    pod = lab.pod(template, (next(port for port in offered if is_free(port)),))
    claim = lab.claim_of(hostname, cpu=0.5)
    assert not lab.driver.launch([HostLaunch(claim, [pod])])
    here = PodOnHost(pod.pod_id, claim.hostname, claim.host_id)

    def is_healthy() -> bool:
        assert not END_STATES & {*lab.states(here)}
        return any(report.status is not None and report.status.healthy for report in lab.reports_of(here))

    lab.wait(is_healthy, "a healthy pod")
