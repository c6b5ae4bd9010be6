"""Pods of kubectl that prefer nodes, on a real apiserver: they go there while these have room, and elsewhere after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr import external_adoption
from tests.kubernetes.client import MERGE, Client, Json, Login
from tests.kubernetes.external_world import ExternalWorld, wait
from tests.kubernetes.fake_kubelet import ALLOCATABLE, FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES

pytestmark = REAL_KUBERNETES
ROOM = int(ALLOCATABLE["cpu"])
LABELS = {"for": "preferences"}
FIRST, SECOND = "preferences-1", "preferences-2"
"""The nodes, in the order in which pods without preferences take them."""


@pytest.fixture
def world(
    kubernetes: Path, kubernetes_login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExternalWorld]:
    """Return a world with two nodes in different zones, each with room for four pods."""
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    with ExitStack() as stack:
        for node, zone in ((FIRST, "a"), (SECOND, "b")):
            stack.callback(delete_node, kubernetes_login, node)
            stack.enter_context(FakeKubelets(kubernetes_login, [node], labels={**LABELS, "zone": zone}))
        selector = tuple(LABELS.items())
        yield stack.enter_context(
            closing(ExternalWorld(kubernetes, kubernetes_login, tmp_path, node_selector=selector))
        )


def delete_node(login: Login, node: str) -> None:
    with closing(Client(login)) as client:
        client.ask("DELETE", f"/api/v1/nodes/{node}")


def fond_spec(world: ExternalWorld, *, zone: str) -> Json:
    """Return the spec of a pod of one cpu that prefers nodes of the zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    preferred = [{"weight": 10, "preference": term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return {**world.pod_spec(""), "affinity": affinity}


def create_owner(world: ExternalWorld, kind: str, name: str, count: int, spec: Json) -> JobId:
    template: Json = {"metadata": {"labels": {"peloton.io/pool": "dev", "app": name}}, "spec": spec}
    api, counts = "batch/v1", Json(parallelism=count, completions=count)
    if kind == "Deployment":
        api, counts = "apps/v1", {"replicas": count, "selector": {"matchLabels": {"app": name}}}
        template["spec"] = {**spec, "restartPolicy": "Always"}
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": {**counts, "template": template}}
    path = f"/apis/{api}/namespaces/{world.namespace}/{kind.lower()}s"
    return JobId(world.create(path, body)["metadata"]["uid"])


def await_running(world: ExternalWorld, job_id: JobId, count: int) -> Counter[str]:
    """Return the number of pods on each node when all run."""
    world.until(lambda: world.states(job_id) == [PodState.RUNNING] * count, "the pods to run")
    return Counter(pod["spec"]["nodeName"] for pod in world.pods())


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_pods_go_to_the_preferred_node_while_it_has_free_resources(kind: str, world: ExternalWorld) -> None:
    """Pods of a Job, and replicas, which are spread by default, fill the preferred node; the next go to the other."""
    for preferred, name in ((SECOND, "b"), (FIRST, "a")):
        job_id = create_owner(world, kind, f"in-{name}", ROOM - 2, fond_spec(world, zone=name))
        found = await_running(world, job_id, ROOM - 2)
        assert ROOM - 2 == found[preferred]

    job_id = create_owner(world, kind, "more", 3, fond_spec(world, zone="b"))
    assert {FIRST: ROOM - 1, SECOND: ROOM} == await_running(world, job_id, 3)


def test_pods_avoid_a_node_with_a_soft_taint_while_others_have_free_resources(world: ExternalWorld) -> None:
    """Pods go to the other node first, and to the node with the taint when that is full; those that tolerate it have no
    preference.
    """
    taint = {"key": "slow", "effect": "PreferNoSchedule"}
    body = {"spec": {"taints": [taint]}}
    assert 200 == world.client.ask("PATCH", f"/api/v1/nodes/{FIRST}", body, MERGE).status
    wait(world.driver.view.taints, "the taint to be seen")

    spec = world.pod_spec("")
    tolerant = {**spec, "tolerations": [{"key": "slow", "operator": "Exists"}]}
    assert {FIRST: 1} == await_running(world, create_owner(world, "Job", "tolerant", 1, tolerant), 1)
    found = await_running(world, create_owner(world, "Job", "plain", ROOM + 1, spec), ROOM + 1)
    assert {FIRST: 2, SECOND: ROOM} == found
