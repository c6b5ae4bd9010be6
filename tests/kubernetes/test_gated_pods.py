"""Gated pods on a real apiserver with its scheduler and controllers: admitted by Peloton, placed by kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr import external_adoption
from services.hostmgr.kubernetes.external.external_requests import RUN
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, FITS_ON, GATE, gates_of
from tests.kubernetes.client import Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import ExternalWorld
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
R, S = PodState.RUNNING, PodState.SUCCEEDED
NODES = ["gated-1", "gated-2", "gated-3"]
LABELS = {"for": "gated"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Return a control plane with kube-scheduler, and nodes."""
    with running_control_plane(scheduler=True) as plane, FakeKubelets(plane.login, NODES, labels=LABELS):
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    monkeypatch.setattr(external_adoption, "MOMENT_S", 0.2)
    monkeypatch.setattr(external_adoption, "IDLE_S", 0.5)
    world = ExternalWorld(plane.kubeconfig, plane.login, tmp_path, node_selector=tuple(LABELS.items()))
    try:
        yield world
    finally:
        world.close()


def a_spec(command: str = "", cpu: str = "1", **more: object) -> Json:
    """Return the spec of a gated pod."""
    container: Json = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    if command:
        container["command"] = ["sh", "-c", command]
    gates = [{"name": GATE}]
    return {"restartPolicy": "Never", "containers": [container], "schedulingGates": gates, **more}


def a_pod(world: ExternalWorld, name: str, spec: Json, labels: Json | None = None) -> JobId:
    meta = {"name": name, "labels": {"peloton.io/pool": "dev", **(labels or {})}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return JobId(world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)["metadata"]["uid"])


def test_a_gated_pod_is_admitted_and_placed_by_its_scheduler(world: ExternalWorld) -> None:
    """Peloton removes its gate, its run follows it to the node that kube-scheduler chooses, and its end is stored."""
    job_id = a_pod(world, "web", a_spec(nodeSelector={"kubernetes.io/hostname": "gated-2"}))
    world.until(lambda: world.states(job_id) == [R], "it to run")
    pod = world.look("web")
    assert ("gated-2", set()) == (pod["spec"]["nodeName"], gates_of(pod))
    annotations = pod["metadata"]["annotations"]
    assert str(world.storage.pods.page(job_id)[0].pod_id) == annotations[RUN]
    assert {FITS_ON, ADMITTED_AT} <= annotations.keys()
    assert "gated-2" == world.storage.pods.page(job_id)[0].host
    with world.driver.view.lock:
        [demand] = world.driver.view.ledger.demands_on("gated-2").values()
    assert not demand.is_foreign
    world.end("web")
    world.until(lambda: world.states(job_id) == [S], "it to succeed")
