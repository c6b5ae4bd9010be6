"""Requirements on the driver of Kubernetes beyond the suite, on an emulated apiserver."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import HostLaunch, PodLaunch, PodOnHost
from tests.conformance.driver.kubernetes import EmulatedProcess, Kubernetes
from tests.conformance.driver.lab import END_STATES, Lab, lab_on

PODS = 120
Json = dict[str, Any]


@pytest.fixture
def settings() -> Json:
    return {}


@pytest.fixture
def cluster(emulated_process: EmulatedProcess, settings: Json) -> Iterator[Kubernetes]:
    made = Kubernetes(emulated_process, is_shared=True, **settings)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lab(cluster: Kubernetes) -> Iterator[Lab]:
    with lab_on(cluster) as made:
        yield made


def names(cluster: Kubernetes) -> list[str]:
    """Names of all pods in the namespace."""
    pods = cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods").json()["items"]
    return [pod["metadata"]["name"] for pod in pods]


def node(cluster: Kubernetes, name: str) -> Json:
    return cluster.client.ask("GET", f"/api/v1/nodes/{name}").json()


def launch(lab: Lab, pods: list[PodLaunch]) -> tuple[str, list[tuple[Any, str]]]:
    host = lab.host_with_free(cpu=0.5)
    return host, lab.driver.launch([HostLaunch(lab.claim(host), pods)])


# Launches.


def test_a_launch_that_is_repeated_makes_no_second_pod(lab: Lab, cluster: Kubernetes) -> None:
    """The pod that is there is the one that was wanted."""
    pod = lab.pod(lab.template())
    launch(lab, [pod])
    lab.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)

    _, failed = launch(lab, [pod])

    assert ([], [str(pod.pod_id)]) == (failed, names(cluster))


def test_a_pod_of_another_user_is_not_taken_for_ours(lab: Lab, cluster: Kubernetes) -> None:
    """The launch says who has the name."""
    pod = lab.pod(lab.template())
    spec = {"containers": [{"name": "main", "image": "busybox"}], "nodeName": lab.host_with_free()}
    theirs = {"metadata": {"name": str(pod.pod_id)}, "spec": spec}
    reply = cluster.client.ask("POST", f"/api/v1/namespaces/{cluster.namespace}/pods", theirs)
    assert http.client.CREATED == reply.status

    _, failed = launch(lab, [pod])

    assert [f"namespace {cluster.namespace} has a pod {pod.pod_id} that Peloton does not manage"] == [
        why for _, why in failed
    ]


def test_a_pod_that_kubernetes_cannot_run_has_failed(lab: Lab) -> None:
    """Whatever is tried again would fail as well; its neighbours run."""
    wrong = lab.pod(lab.template(container={"type": "MESOS", "mesos": {}}, executor={"executor_id": {"value": "x"}}))
    right = lab.pod(lab.template())

    _, failed = launch(lab, [wrong, right])

    assert [] == failed
    status = lab.wait_for(PodOnHost(wrong.pod_id), *END_STATES).status
    assert status is not None
    assert (PodState.FAILED, Cause.INVALID) == (status.state, status.cause)
    lab.wait_for(PodOnHost(right.pod_id), PodState.RUNNING)


def test_a_namespace_that_is_missing_is_made_again_for_the_next_pod(lab: Lab, cluster: Kubernetes) -> None:
    """The launch that finds it missing succeeds."""
    path = f"/api/v1/namespaces/{cluster.namespace}"
    cluster.client.ask("DELETE", path)
    lab.wait(lambda: cluster.client.ask("GET", path).status == http.client.NOT_FOUND, "no namespace")

    lab.running()

    assert (http.client.OK, "") == (cluster.client.ask("GET", path).status, lab.driver.unready)


def test_while_its_namespace_is_being_deleted_nothing_is_launched(lab: Lab, cluster: Kubernetes) -> None:
    """The refusal and the driver say so; once it is gone it is made again."""
    path = f"/api/v1/namespaces/{cluster.namespace}"
    held = f"{path}/pods/{lab.running().pod_id}"
    cluster.patch(held, {"metadata": {"finalizers": ["example.com/held"]}})
    cluster.client.ask("DELETE", path)
    pod = lab.pod(lab.template())

    _, [(refused, why)] = launch(lab, [pod])

    assert (pod.pod_id, True) == (refused, "it is being terminated" in why)
    assert f"{path} is being deleted" == lab.driver.unready
    cluster.patch(held, {"metadata": {"finalizers": None}})
    lab.wait(lambda: not lab.driver.unready, "another namespace")
    lab.running()


def test_an_apiserver_that_dies_in_the_middle_loses_and_doubles_nothing(lab: Lab, cluster: Kubernetes) -> None:
    """Each of many pods that are being launched runs once and ends once, or certainly does not exist."""
    template = lab.template("true", cpu=0.01)
    hosts = sorted(lab.events.hosts)
    launches = [
        HostLaunch(lab.claim(lab.host_with_free(host)), [lab.pod(template) for _ in range(PODS // len(hosts))])
        for host in hosts
    ]
    pods = [pod for each in launches for pod in each.pods]
    outcome: list[Any] = []

    def attempt() -> None:
        try:
            outcome.extend(pod_id for pod_id, _ in lab.driver.launch(launches))
        except OSError as error:
            outcome.append(error)

    launching = threading.Thread(target=attempt)
    launching.start()
    lab.wait(lambda: len(names(cluster)) > PODS // 10, "the first pods")
    sessions = lab.events.sessions
    cluster.fail_over()
    launching.join()
    lab.wait(lambda: lab.events.sessions > sessions and lab.driver.is_connected, "another session")
    refused = {pod_id for pod_id in outcome if not isinstance(pod_id, OSError)}
    asked = [PodOnHost(pod.pod_id) for pod in pods if pod.pod_id not in refused]
    lab.reconcile(asked)

    def has_ended() -> bool:
        return all(any(r.status is not None and r.status.state in END_STATES for r in lab.reports_of(p)) for p in asked)

    lab.wait(has_ended, "the end of all")
    created = Counter(names(cluster))
    for pod in asked:
        ends = {state for state in lab.states(pod) if state in END_STATES}
        assert ends == ({PodState.SUCCEEDED} if created[str(pod.pod_id)] else set())  # LOST is an answer only
    assert set(created) <= {str(pod.pod_id) for pod in asked}


# Ends.


@pytest.mark.parametrize("settings", [{"log_retention_s": 0.0}])
def test_an_ended_pod_is_deleted_once_its_end_is_acknowledged(lab: Lab, cluster: Kubernetes) -> None:
    """An ended pod is deleted after the acknowledgement and not before; also if another driver reports it."""
    lab.events.deaf = True
    pod = lab.launch("true")
    lab.wait(lambda: lab.reports_of(pod), "a report")
    lab.run_periodic()
    assert [str(pod.pod_id)] == names(cluster)
    lab.stop()
    lab.start()

    lab.wait_for(pod, PodState.SUCCEEDED)

    lab.wait(lambda: not names(cluster), "its deletion")


def test_a_successor_reports_ended_pods_that_are_kept_and_keeps_them(lab: Lab, cluster: Kubernetes) -> None:
    """Another driver reports ended pods that are kept, and deletes none: their logs can be read as long as before."""
    pod = lab.launch("true")
    lab.wait_for(pod, PodState.SUCCEEDED)
    lab.stop()
    lab.start()

    lab.wait_for(pod, PodState.SUCCEEDED)

    lab.run_periodic()
    assert [str(pod.pod_id)] == names(cluster)


def test_a_deleted_pod_has_ended(lab: Lab, cluster: Kubernetes) -> None:
    """A pod deleted by another client did not end by itself: it may run again."""
    pod = lab.running()

    cluster.client.ask("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/{pod.pod_id}")

    status = lab.wait_for(pod, *END_STATES).status
    assert status is not None
    assert Cause.PROGRAM is not status.cause


def test_pods_end_with_their_namespace_and_others_run_when_it_is_back(lab: Lab, cluster: Kubernetes) -> None:
    """Pods that ran did not end by themselves: they may run again. The session continues without its Lease."""
    pods = [lab.running() for _ in range(2)]
    path = f"/api/v1/namespaces/{cluster.namespace}"
    sessions = lab.events.sessions

    cluster.client.ask("DELETE", path)

    for pod in pods:
        status = lab.wait_for(pod, *END_STATES).status
        assert status is not None
        assert Cause.REMOVED is status.cause
    lab.wait(lambda: cluster.client.ask("GET", path).status == http.client.NOT_FOUND, "no namespace")
    made = cluster.client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": cluster.namespace}})
    assert http.client.CREATED == made.status
    lab.running()
    assert sessions == lab.events.sessions


# Nodes.


def test_pods_of_a_node_that_was_deleted_are_lost_and_removed(lab: Lab, cluster: Kubernetes) -> None:
    """Pods of a deleted node are removed by the driver, as no kubelet is left for it, and run again."""
    pod = lab.running()
    cluster.machines.lose(pod.hostname)

    cluster.client.ask("DELETE", f"/api/v1/nodes/{pod.hostname}")

    status = lab.wait_for(pod, PodState.LOST).status
    assert status is not None
    assert Cause.HOST_GONE is status.cause
    lab.wait(lambda: pod.hostname not in lab.events.hosts and not names(cluster), "nothing left of it")


def test_a_node_that_others_cordon_takes_nothing_and_says_so(lab: Lab, cluster: Kubernetes) -> None:
    """Pods on a node cordoned by others stay; the end of our own drain leaves that cordon."""
    pod = lab.running()
    path, address = f"/api/v1/nodes/{pod.hostname}", lab.address(pod.hostname)
    cluster.patch(path, {"spec": {"unschedulable": True}})
    lab.wait(lambda: lab.events.hosts[pod.hostname].withdrawn, "a reason")
    lab.wait(lambda: not lab.free_resources(pod.hostname), "no free resources, which follows")

    lab.driver.drain([address])
    lab.driver.bring_up(address)

    assert node(cluster, pod.hostname)["spec"]["unschedulable"]
    assert PodState.RUNNING is lab.states(pod)[-1]
    cluster.patch(path, {"spec": {"unschedulable": None}})
    lab.wait(lambda: lab.free_resources(pod.hostname), "free resources")


def test_a_successor_continues_a_drain(lab: Lab, cluster: Kubernetes) -> None:
    """A drain is stored on the node, so that the next driver continues it; afterwards it is gone."""
    host = lab.host_with_free()
    address = lab.address(host)
    lab.driver.drain([address])
    lab.wait(
        lambda: {bool(announced.goes_ns) for announced in lab.free_resources(host)} == {True},
        "free resources that will be withdrawn",
    )
    assert node(cluster, host)["spec"]["unschedulable"]
    lab.stop()
    lab.start()
    lab.wait(
        lambda: {bool(announced.goes_ns) for announced in lab.free_resources(host)} == {True},
        "free resources that will be withdrawn again",
    )

    lab.driver.bring_up(address)

    lab.wait(
        lambda: {bool(announced.goes_ns) for announced in lab.free_resources(host)} == {False},
        "free resources that stay",
    )
    found = node(cluster, host)
    assert not found["spec"].get("unschedulable")
    assert not [key for key in found["metadata"].get("annotations", {}) if key.startswith("peloton.io/")]


def test_a_tainted_node_takes_nothing_unless_the_taint_is_ours(lab: Lab, cluster: Kubernetes) -> None:
    """A node with another owner's taint takes no pods; a node with the taint of dedicated nodes does."""
    first, second = sorted(lab.events.hosts)[:2]
    for name, key in ((second, "peloton.io/dedicated"), (first, "example.com/gpu")):  # news come in their order
        taint = {"key": key, "value": "true", "effect": "NoSchedule"}
        cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}})

    lab.wait(lambda: lab.events.hosts[first].withdrawn, "a reason")

    assert "it has the taint example.com/gpu=true:NoSchedule" == lab.events.hosts[first].withdrawn
    assert not lab.events.hosts[second].withdrawn
    lab.wait(
        lambda: not lab.free_resources(first) and lab.free_resources(second),
        "free resources on the second host, and none on the first",
    )


# The start.


def test_namespace_and_priority_class_are_made(lab: Lab, cluster: Kubernetes) -> None:
    """A new cluster requires no preparation: the driver creates namespace and priority class."""
    found = cluster.client.ask("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/peloton").json()

    assert (1_000_000, "Never") == (found["value"], found["preemptionPolicy"])
    assert http.client.OK == cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}").status


# Evictions by others.


def budgets(cluster: Kubernetes) -> dict[str, int]:
    found = cluster.client.ask("GET", f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets").json()
    return {each["metadata"]["labels"]["peloton.io/job"]: each["spec"]["minAvailable"] for each in found["items"]}


def test_others_evict_no_more_than_the_sla_of_a_service_allows(lab: Lab, cluster: Kubernetes) -> None:
    """The apiserver refuses with 429; when the service has no limit any more, its budget goes."""
    pods = [lab.running() for _ in range(3)]
    job_id = pods[0].pod_id.job_id

    lab.driver.set_disruption_budgets({job_id: 3})
    assert ({job_id: 3}, http.client.TOO_MANY_REQUESTS) == (budgets(cluster), cluster.evict(pods[0]))
    lab.driver.set_disruption_budgets({job_id: 2})
    answers = [budgets(cluster), cluster.evict(pods[0]), cluster.evict(pods[1])]
    assert [{job_id: 2}, http.client.CREATED, http.client.TOO_MANY_REQUESTS] == answers
    lab.driver.set_disruption_budgets({})

    assert ({}, http.client.CREATED) == (budgets(cluster), cluster.evict(pods[1]))
