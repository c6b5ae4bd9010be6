"""Plans for pods to leave hosts that are drained, and the pods that no other host fits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from peloton.model.departure import Departure, HostDeparture, JobDeparture
from peloton.model.host import HostLease, LeasedHost, ReadyGang
from peloton.model.host_pool import SERVED_LABEL, Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.layout import Domains
from peloton.model.maintenance import HostedPod
from peloton.model.rebalance import PodNow
from peloton.model.resources import Resources
from peloton.scheduling.departures import TARGETS_SOUGHT_MAX, departures
from peloton.scheduling.placement import place
from tests.unit.scheduling.moves_table import Cluster, cpu, hosts_of, over, pods_on

RACKS = {f"h{at}": {"rack": "abc"[at // 2]} for at in range(6)}


def plan_all(cluster: Cluster, *drained: str, others: Sequence[HostedPod] = ()) -> list[HostDeparture]:
    """Plan the departures. ``others``: pods on the first host that are not of services."""
    hosted_pods = {Hostname(name): [make_hosted_pod(pod) for pod in cluster.on(name)] for name in drained}
    hosted_pods[Hostname(drained[0])] += others
    return departures(hosted_pods, [cluster.host(name) for name in cluster.capacities], cluster.census(drained))


def make_hosted_pod(pod: PodNow) -> HostedPod:
    return HostedPod(pod.pod_id.job_id, pod.pod_id.instance_id, JobType.SERVICE, is_leaving=False)


def test_each_pod_leaves_as_pods_of_its_kind_do() -> None:
    """Pods are counted by the way in which they leave; pods that are leaving already are counted separately."""
    job = JobId
    others = [
        HostedPod(job("batch"), 0, JobType.BATCH, is_leaving=False),
        HostedPod(job("batch"), 1, JobType.BATCH, is_leaving=False),
        HostedPod(job("batch"), 2, JobType.BATCH, is_leaving=True),
        HostedPod(job("database"), 0, JobType.SERVICE, is_leaving=False, has_volume=True),
        HostedPod(job("logs"), 7, JobType.DAEMON, is_leaving=False),
    ]
    cluster = Cluster(hosts_of("h1", "h2"), pods_on("web", "h1", cpu(2), 3), grants=1)

    (found,) = plan_all(cluster, "h1", others=others)

    assert (1, 0) == (found.leaving_count, found.unchecked_count)
    assert found.jobs == (
        JobDeparture(job("batch"), Departure.REQUEUED, 2),
        JobDeparture(job("database"), Departure.STOPPED, 1),
        JobDeparture(job("logs"), Departure.LAST, 1),
        JobDeparture(job("web"), Departure.SLA, 3, allowed_count=1),
    )


def test_pods_that_no_other_host_takes_are_counted() -> None:
    """Large pods are placed first and use up the resources of their host; hosts that are drained too accept none."""
    pods = [*pods_on("a", "h1", cpu(6)), *pods_on("b", "h1", cpu(2)), *pods_on("c", "h2", cpu(4))]
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods)

    first, second = plan_all(cluster, "h1", "h2")

    assert [("a", 0), ("b", 0)] == [(job.job_id, job.homeless_count) for job in first.jobs]
    assert [("c", 1)] == [(job.job_id, job.homeless_count) for job in second.jobs]
    (alone,) = plan_all(cluster, "h2")
    assert [("c", 0)] == [(job.job_id, job.homeless_count) for job in alone.jobs]


def test_for_more_pods_than_a_bound_no_host_is_searched_for() -> None:
    """Pods above a bound are counted as unchecked, and not as pods without a host."""
    pods = pods_on("web", "h1", cpu(0), TARGETS_SOUGHT_MAX + 2)
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods)

    (found,) = plan_all(cluster, "h1")

    assert (2, 0) == (found.unchecked_count, found.jobs[0].homeless_count)


def fill_hosts(cluster: Cluster, *drained: str) -> tuple[int, int]:
    """Return the number of pods that no other host fits, and the number of unchecked pods."""
    found = plan_all(cluster, *drained)
    return sum(job.homeless_count for host in found for job in host.jobs), sum(host.unchecked_count for host in found)


@pytest.mark.parametrize(("is_hard", "unplaceable"), [(True, 1), (False, 0)])
def test_a_bound_on_skew_keeps_pods_from_hosts_with_capacity(is_hard: bool, unplaceable: int) -> None:
    """The other host of the rack is full: a pod in the next rack would make two there and none here. A rack whose hosts
    are all drained no longer counts.
    """
    spread = cpu(1, layout=over("rack", is_hard=is_hard))
    pods = [*pods_on("web", "h0", spread), *pods_on("web", "h2", spread), *pods_on("full", "h1", cpu(8))]
    cluster = Cluster(hosts_of("h0", "h1", "h2"), pods, labels=RACKS)

    assert (unplaceable, 0) == fill_hosts(cluster, "h0")
    assert (1, 0) == fill_hosts(cluster, "h0", "h1")  # the one that fills its host


def test_pods_of_one_job_are_let_into_racks_by_turns() -> None:
    """Four pods leave a rack: the first goes to each of the others, then one is full, and may not be left behind."""
    spread = cpu(1, layout=over("rack", is_hard=True))
    pods = [*pods_on("web", "h0", spread, 4), *pods_on("full", "h4", cpu(7))]
    cluster = Cluster(hosts_of("h0", "h2", "h4"), pods, labels=RACKS)

    assert (1, 0) == fill_hosts(cluster, "h0")
    wider = [replace(pod, shape=cpu(1, layout=over("rack", 2, is_hard=True))) for pod in cluster.on("h0")]
    assert (0, 0) == fill_hosts(replace(cluster, pods=[*wider, *cluster.on("h4")]), "h0")


def test_of_a_job_in_two_clusters_a_pod_is_sure_of_its_own_domain_only() -> None:
    """A pod of a job in two clusters is sure of its own domain only: pods on hosts of the other cluster are unknown."""
    spread = cpu(1, layout=over("rack", is_hard=True))
    pods = [*pods_on("web", "h0", spread, 2), *pods_on("full", "h1", cpu(7))]
    cluster = Cluster(hosts_of("h0", "h1", "h2"), pods, labels=RACKS, elsewhere=["web"])

    assert (0, 1) == fill_hosts(cluster, "h0")
    soft = [replace(pod, shape=cpu(1, layout=over("rack"))) for pod in cluster.on("h0")]
    assert (0, 0) == fill_hosts(replace(cluster, pods=[*soft, *cluster.on("h1")]), "h0")


def test_pods_go_to_host_pools_that_serve_them() -> None:
    """Pods do not fit hosts of other host pools, whatever is free there."""
    labels = {"h1": {SERVED_LABEL: "batch"}, "h2": {SERVED_LABEL: "gpu,stateless"}}
    pods = pods_on("web", "h0", cpu(3, workload=Workload.STATELESS), 3)
    cluster = Cluster(hosts_of("h0", "h1", "h2"), pods, labels=labels)

    assert (1, 0) == fill_hosts(cluster, "h0")


def test_gpus_are_left_to_those_that_need_them() -> None:
    """A host with gpus is used for a pod without gpus only if no other host fits it."""
    gpu = Resources(1_000, gpu_milli=1_000)
    pods = [*pods_on("web", "h0", cpu(4)), *pods_on("model", "h0", replace(cpu(1), resources=gpu))]
    hosts = hosts_of("h0", "h1") | {"h2": Resources(4_000, gpu_milli=1_000)}

    assert (0, 0) == fill_hosts(Cluster(hosts, pods), "h0")
    assert (1, 0) == fill_hosts(Cluster(hosts, pods), "h0", "h1")
    assert (0, 0) == fill_hosts(Cluster(hosts, pods[:1]), "h0", "h1")


def test_for_pods_that_hold_slack_no_host_is_searched_for() -> None:
    """A plan has no slack of hosts, so pods that use slack are unchecked."""
    cluster = Cluster(hosts_of("h0", "h1"), pods_on("web", "h0", cpu(1, revocable=True), 2))

    assert (0, 2) == fill_hosts(cluster, "h0")


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_says_what_placement_would_do(seed: int) -> None:
    """A plan and a placement find no host for the same number of equal pods of one job with a bound."""
    drawn = random.Random(seed)
    spread = cpu(1, layout=over("rack", drawn.randint(1, 2), is_hard=True))
    names = [f"h{at}" for at in range(6)]
    pods = [pod for name in names for pod in pods_on("web", name, spread, drawn.randint(0, 2))]
    there = Counter(str(pod.hostname) for pod in pods)
    hosts = {name: Resources(max(there[name] + drawn.choice([0, 0, 0, 1, 2]), 1) * 1_000) for name in names}
    cluster, drained = Cluster(hosts, pods, labels=RACKS), drawn.sample(names, drawn.randint(1, 3))
    leaving = [pod for pod in pods if pod.hostname in drained]
    stay = replace(cluster, pods=[pod for pod in pods if pod.hostname not in drained])
    leased = tuple(
        LeasedHost(
            Hostname(name), stay.free(name), Resources(), labels=(*stay.labels_of(name).items(),), capacity=hosts[name]
        )
        for name in names
        if name not in drained
    )
    (rule,) = spread.layout.spread if spread.layout else ()
    near = Domains(stay.domains(JobId("web"), spread, rule, drained))

    gangs = [ReadyGang(spread, ((pod.pod_id.instance_id, 1),)) for pod in leaving]
    batch = place(JobId("web"), gangs, HostLease("lease", leased, domains={spread: (near,)}))

    assert (batch.unplaced_count, 0) == fill_hosts(cluster, *drained)
