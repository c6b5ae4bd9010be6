"""Refusals, delays and removals by the cluster, and the names that the driver of Kubernetes gives them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import HostLaunch, PodOnHost
from tests.conformance.driver.kubernetes import Kubernetes, Plane, SharedPlane
from tests.conformance.driver.lab import END_STATES, Lab, lab_on
from tests.kubernetes.client import Json
from tests.kubernetes.fixtures import REAL_KUBERNETES

LOST_NODE_S = 1.0
"""Seconds for which pods tolerate that their node is unreachable."""
ON_BOTH = pytest.mark.parametrize("cluster", ["emulated", pytest.param("real", marks=REAL_KUBERNETES)], indirect=True)
"""Others run on the emulated apiserver only."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubernetes]:
    plane: Plane = (
        SharedPlane(request.getfixturevalue("kubernetes"), tmp_path)
        if getattr(request, "param", "") == "real"
        else request.getfixturevalue("emulated_process")
    )
    made = Kubernetes(plane, is_shared=True, lost_node_s=LOST_NODE_S)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lab(cluster: Kubernetes) -> Iterator[Lab]:
    with lab_on(cluster) as made:
        yield made


def end_of(lab: Lab, pod: PodOnHost) -> tuple[PodState, Cause]:
    status = lab.wait_for(pod, *END_STATES).status
    assert status is not None
    return status.state, status.cause


def object_of(cluster: Kubernetes, pod: PodOnHost) -> Json:
    """The object as the apiserver has it; empty: it is gone."""
    reply = cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods/{pod.pod_id}")
    return reply.json() if reply.status == http.client.OK else {}


def disruptions_of(pod: Json) -> set[str]:
    conditions = pod["status"].get("conditions", ())
    return {each["reason"] for each in conditions if each["type"] == "DisruptionTarget"}


def test_a_pod_beyond_a_quota_is_given_back(lab: Lab, cluster: Kubernetes) -> None:
    """A pod beyond a quota is returned with the quota's message; without the quota the pod runs."""
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": {"hard": {"pods": "0"}}}
    assert http.client.CREATED == cluster.client.ask("POST", path, quota).status
    pod = lab.pod(lab.template())
    lab.wait(lambda: "status" in cluster.client.ask("GET", f"{path}/one").json(), "a quota that counts")

    [(pod_id, why)] = lab.driver.launch([HostLaunch(lab.claim(lab.host_with_free(cpu=0.5)), [pod])])

    assert (pod.pod_id, True) == (pod_id, "exceeded quota" in why)
    cluster.client.ask("DELETE", f"{path}/one")
    assert [] == lab.driver.launch([HostLaunch(lab.claim(lab.host_with_free(cpu=0.5)), [pod])])
    lab.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)


def test_a_launch_that_is_put_off_is_made(lab: Lab, cluster: Kubernetes) -> None:
    """An apiserver with too much to do says when to come back: nothing of it is lost, and each pod runs once."""
    pods = [lab.pod(lab.template(cpu=0.1)) for _ in range(5)]
    host = lab.host_with_free(cpu=0.5)
    claim = lab.claim(host)
    asked = cluster.client.ask("POST", "/emulation/faults", {"refuse": 3, "retry_after_s": 1})
    assert http.client.OK == asked.status

    assert [] == lab.driver.launch([HostLaunch(claim, pods)])

    for pod in pods:
        lab.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)


def test_a_pod_that_is_deleted_by_force_is_lost(lab: Lab, cluster: Kubernetes) -> None:
    """The end of a pod that was deleted by force is unknown: it may run again, and the removal is named."""
    pod = lab.running()

    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod.pod_id}"
    cluster.client.ask("DELETE", path, {"gracePeriodSeconds": 0})

    assert (PodState.LOST, Cause.REMOVED) == end_of(lab, pod)


def test_a_pod_of_a_node_that_is_silent_is_lost(lab: Lab, cluster: Kubernetes) -> None:
    """A silent host is at fault for the loss of its pod, which may run on unseen."""
    pod = lab.running()

    cluster.lose_host(pod.hostname)

    assert (PodState.LOST, Cause.HOST_LOST) == end_of(lab, pod)


@ON_BOTH
def test_a_pod_that_kubernetes_deletes_with_its_node_is_lost_once(lab: Lab, cluster: Kubernetes) -> None:
    """The end is reported although the object stays until its kubelet is back, which ends it and changes nothing."""
    pod = lab.running()
    lab.events.deaf = True  # else we delete it ourselves
    cluster.lose_host(pod.hostname)
    lab.wait(lambda: "deletionTimestamp" in object_of(cluster, pod)["metadata"], "its deletion by the taint manager")
    assert {"DeletionByTaintManager"} == disruptions_of(object_of(cluster, pod))

    lab.events.deaf = False
    assert (PodState.LOST, Cause.HOST_LOST) == end_of(lab, pod)
    cluster.bring_back_host(pod.hostname)

    lab.wait(lambda: not object_of(cluster, pod), "the end of the object")
    assert PodState.LOST is lab.states(pod)[-1]


@ON_BOTH
def test_a_pod_that_a_taint_drives_out_was_evicted(lab: Lab, cluster: Kubernetes) -> None:
    """A pod evicted by a taint counts as drained; its host takes no more, and says why."""
    pod = lab.running()

    cluster.taint(pod.hostname, "maintenance", "NoExecute")

    assert (PodState.KILLED, Cause.HOST_DRAINED) == end_of(lab, pod)
    lab.wait(lambda: not lab.free_resources(pod.hostname), "a host without free resources")
    lab.wait(lambda: "it has the taint maintenance:NoExecute" == lab.events.hosts[pod.hostname].withdrawn, "the reason")


def test_a_pod_that_is_evicted_by_others_counts_as_evicted(lab: Lab, cluster: Kubernetes) -> None:
    """A pod that others evict counts as drained: it runs again without counting anything."""
    pod = lab.running()

    assert http.client.CREATED == cluster.evict(pod)

    assert (PodState.KILLED, Cause.HOST_DRAINED) == end_of(lab, pod)
