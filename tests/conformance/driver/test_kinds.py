"""Differences between the kinds of clusters."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from peloton.model.host import Prefetched
from peloton.model.ids import Hostname
from peloton.model.pod import PodState
from peloton.model.secret import Secret
from services.hostmgr.driver import HostLaunch, PodOnHost
from services.hostmgr.kubernetes.driver import KubernetesDriver
from tests.conformance.driver.kubernetes import Kubernetes
from tests.conformance.driver.lab import LONG, Lab

ONLY_ELSEWHERE: dict[str, dict[str, Any]] = {
    "mesos": {"otherContainers": [{"name": "proxy", "command": {"value": "true"}}]},
    "kubernetes": {
        "container": {"type": "DOCKER", "docker": {"image": "app", "parameters": [{"key": "cap-add", "value": "ALL"}]}}
    },
}


def test_what_only_another_kind_can_run_does_not_start(lab: Lab) -> None:
    """A pod that requires another kind of cluster starts none of its parts."""
    asked = ONLY_ELSEWHERE.get(lab.driver.capabilities.kind)
    if asked is None:
        pytest.skip("this cluster reads nothing of what a pod is")
    pod = lab.pod(lab.template(**asked))

    failed = lab.driver.launch([HostLaunch(lab.claim(lab.host_with_free(cpu=0.5)), [pod])])

    assert pod.pod_id in dict(failed) or lab.wait_end(PodOnHost(pod.pod_id)) is PodState.FAILED
    assert PodState.RUNNING not in lab.states(PodOnHost(pod.pod_id))


def test_a_pod_has_the_secrets_of_its_job(lab: Lab) -> None:
    """Byte by byte, where pods are processes; elsewhere it is enough that the cluster takes them."""
    secrets = [Secret(str(uuid.uuid4()), f"/run/key-{data.hex()}", data) for data in (b"\x00\xff", b"second")]
    command = 'test "$(od -An -tx1 run/key-* | tr -d " \n")" = 00ff7365636f6e64'

    made = lab.pod(lab.template(command if lab.cluster.runs_processes else LONG, secrets=secrets))
    failed = dict(lab.driver.launch([HostLaunch(lab.claim_of(cpu=0.5), [made])]))
    if "mounts no secrets" in failed.get(made.pod_id, "") and not lab.cluster.can_lose_hosts:
        pytest.skip(failed[made.pod_id])
    assert {} == failed
    pod = PodOnHost(made.pod_id)

    if lab.cluster.runs_processes:
        assert PodState.SUCCEEDED is lab.wait_end(pod)
    else:
        lab.wait_for(pod, PodState.RUNNING)


def test_an_image_is_fetched_ahead_by_a_pod(lab: Lab) -> None:
    """An image is prefetched by a pod that Peloton does not count, and that the driver's process deletes."""
    if not isinstance(lab.driver, KubernetesDriver) or not isinstance(lab.cluster, Kubernetes):
        pytest.skip("its hosts are asked by an endpoint, or not at all")
    images, cluster = lab.driver.images, lab.cluster
    host = Hostname(lab.host_with_free())

    assert Prefetched(1) == images.prefetch({cluster.settings.default_image: [host]})

    def is_none_left() -> bool:
        images.run_periodic()
        pods = cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods").json()["items"]
        assert {host} >= {pod["spec"]["nodeName"] for pod in pods}
        return not pods

    lab.wait(is_none_left, "the end of the pod")
