"""Owners of other projects that are held suspended, on a real control plane: each kind is queued and admitted whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.gate import gate
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr import external_adoption
from services.hostmgr.kubernetes.external.gate import gates_of
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind, is_suspended, reference_path
from tests.kubernetes.client import MERGE, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import ExternalWorld, wait
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.kubernetes.owners import running_owners
from tests.unit.owner_examples import SIZES, example, kind_named, runtime

pytestmark = REAL_KUBERNETES
LABELS = {"for": "owners"}
ROOM = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": "110"}
TRAIN_JOB = kind_named("TrainJob", "v1alpha1")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    nodes = ("owners-1", "owners-2")
    with (
        running_owners(scheduler=True) as plane,
        FakeKubelets(plane.login, nodes, labels=LABELS, allocatable=ROOM),
    ):
        done = CliRunner().invoke(gate, ["install", "--kubeconfig", str(plane.kubeconfig)])
        assert 0 == done.exit_code, (done.output, done.exception)
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    monkeypatch.setattr(external_adoption, "MOMENT_S", 0.2)
    monkeypatch.setattr(external_adoption, "IDLE_S", 0.5)
    world = ExternalWorld(plane.kubeconfig, plane.login, tmp_path, node_selector=tuple(LABELS.items()))
    label = {"metadata": {"labels": {"peloton.io/pool": "dev"}}}
    assert 200 == world.client.ask("PATCH", f"/api/v1/namespaces/{world.namespace}", label, MERGE).status
    try:
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
def test_each_kind_is_held_and_admitted_whole(world: ExternalWorld, kind: OwnerKind) -> None:
    """A new owner is suspended by the policies without any pods, queued with all its pods, and runs without gates; an
    eviction of one suspends it, and it comes back."""
    if kind == TRAIN_JOB:
        path = reference_path(kind, example(kind))
        assert world.client.ask("POST", path.rpartition("/")[0], runtime()).status in (201, 409)
    owners = f"/apis/{kind.api_version}/namespaces/{world.namespace}/{kind.plural}"
    body = example(kind)
    body["metadata"]["namespace"] = world.namespace
    ahead = f"{owners}?dryRun=All"
    wait(lambda: is_suspended(kind, world.client.ask("POST", ahead, body).json()), "the label of the namespace to act")
    made = world.create(owners, body)
    job_id, count = JobId(made["metadata"]["uid"]), sum(SIZES[kind.kind, kind.version].values())
    running = [PodState.RUNNING] * count

    def look() -> Json:
        return world.client.ask("GET", f"{owners}/one").json()

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]}

    assert is_suspended(kind, made)
    world.until(lambda: world.states(job_id) == running, "all its pods to run")
    assert not is_suspended(kind, look())
    assert [[]] * count == [list(gates_of(pod)) for pod in world.pods()]
    before = uids()
    assert len(before) == count

    [first, *_] = world.storage.pods.page(job_id)
    world.storage.host_pods.evict_from_host(job_id, first.host, count)
    world.until(lambda: not before & uids(), "the pods to end")
    world.until(lambda: world.states(job_id) == running and len(uids()) == count, "all to run again")
    world.client.ask("DELETE", f"{owners}/one?propagationPolicy=Background")
    wait(lambda: world.client.ask("GET", f"{owners}/one").status == 404, "the end of the owner")
