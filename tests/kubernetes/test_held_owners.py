"""Owners of other projects that are held suspended, on a real control plane: each kind is queued and admitted whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.gate import gate
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr.kubernetes.external.gate import gates_of
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD
from services.hostmgr.kubernetes.suspend.held_owner import ADMISSIONS
from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds
from services.hostmgr.kubernetes.suspend.owner_kinds import (
    KINDS,
    OwnerKind,
    is_suspended,
    reference_path,
    suspend_patch,
)
from tests.kubernetes.client import MERGE, Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import ExternalWorld, label_namespace, quick_world, wait
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.kubernetes.owner_controller import OwnerController
from tests.kubernetes.owners import apply_schema, running_owners
from tests.unit.owner_examples import SIZES, example, example_of_the_page, kind_named, pod_template, runtime

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
        run(plane, "install")
        yield plane


def run(plane: ControlPlane, *arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(gate, [*arguments, "--kubeconfig", str(plane.kubeconfig)])
    assert status == done.exit_code, (done.output, done.exception)
    return f"{done.output}{done.exception or ''}"


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    with quick_world(plane, tmp_path, monkeypatch, LABELS) as world:
        label_namespace(world.client, world.namespace)
        yield world


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
def test_each_kind_is_held_and_admitted_whole(world: ExternalWorld, kind: OwnerKind) -> None:
    """A new owner is suspended by the policies without any pods, queued with all its pods, and runs without gates; an
    eviction of one suspends it, and it comes back."""
    if kind == TRAIN_JOB:
        path = reference_path(kind, example(kind))
        assert world.client.ask("POST", path.rpartition("/")[0], runtime()).status in (201, 409)
    is_held_and_admitted_whole(world, kind, example(kind), sum(SIZES[kind.kind, kind.version].values()))


def is_held_and_admitted_whole(world: ExternalWorld, kind: OwnerKind, body: Json, count: int) -> None:
    owners = f"/apis/{kind.api_version}/namespaces/{world.namespace}/{kind.plural}"
    body["metadata"]["namespace"] = world.namespace
    ahead = f"{owners}?dryRun=All"
    wait(lambda: is_suspended(kind, world.client.ask("POST", ahead, body).json()), "the label of the namespace to act")
    made = world.create(owners, body)
    job_id = JobId(made["metadata"]["uid"])
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


def test_a_cluster_that_scales_itself_runs_with_fewer_pods(world: ExternalWorld) -> None:
    """The places of workers that have not come run, and one that comes takes its place without a queue."""
    kind = kind_named("RayCluster", "v1")
    group = {**example(kind)["spec"]["workerGroupSpecs"][0], "replicas": 1, "maxReplicas": 3}
    body = example(kind, enableInTreeAutoscaling=True, workerGroupSpecs=[group])
    body["metadata"]["namespace"] = world.namespace
    owners = f"/apis/{kind.api_version}/namespaces/{world.namespace}/{kind.plural}"
    wait(
        lambda: is_suspended(kind, world.client.ask("POST", f"{owners}?dryRun=All", body).json()),
        "the label of the namespace to act",
    )
    job_id = JobId(world.create(owners, body)["metadata"]["uid"])

    world.until(lambda: world.states(job_id) == [PodState.RUNNING] * 4, "the places of all pods to run")
    wait(lambda: [pod["status"]["phase"] for pod in world.pods()] == ["Running"] * 2, "the pods that are made")
    change = {"spec": {"workerGroupSpecs": [{**group, "minReplicas": 3}]}}
    assert 200 == world.client.ask("PATCH", f"{owners}/one", change, MERGE).status
    wait(lambda: [pod["status"]["phase"] for pod in world.pods()] == ["Running"] * 4, "further workers")
    for _ in range(20):
        world.turn()
    assert [PodState.RUNNING] * 4 == world.states(job_id)
    assert [job_id] == [job.job_id for job in world.jobs()]
    world.client.ask("DELETE", f"{owners}/one?propagationPolicy=Background")


def test_an_owner_that_the_policies_have_missed_is_held_late(world: ExternalWorld) -> None:
    """The owner is older than their view of its namespace, and runs: its pods are past the gate, as its operator
    makes them. It is suspended, queued, and admitted whole; a Job's pods are gated."""
    kind, job = kind_named("PyTorchJob", "v1"), kind_named("Job", "v1")
    place = f"/api/v1/namespaces/{world.namespace}"
    made: dict[OwnerKind, Json] = {}

    def label(pool: str | None) -> None:
        change = {"metadata": {"labels": {"peloton.io/pool": pool}}}
        assert 200 == world.client.ask("PATCH", place, change, MERGE).status

    def path_of(kind: OwnerKind) -> str:
        return f"/apis/{kind.api_version}/namespaces/{world.namespace}/{kind.plural}"

    def is_held(kind: OwnerKind) -> bool:
        body = example(kind, name="ahead")
        body["metadata"]["namespace"] = world.namespace
        marks = world.client.ask("POST", f"{path_of(kind)}?dryRun=All", body).json()["metadata"].get("annotations")
        return HELD in (marks or {})

    label(None)
    wait(lambda: not is_held(kind) and not is_held(job), "the end of the label")
    for each in (kind, job):
        body = example(each)
        body["metadata"]["namespace"] = world.namespace
        body["spec"] |= suspend_patch(each, True)["spec"]
        made[each] = world.create(path_of(each), body)
    label("dev")
    wait(lambda: is_held(kind) and is_held(job), "the label of the namespace to act")
    for each in (kind, job):
        reply = world.client.ask("PATCH", f"{path_of(each)}/one", suspend_patch(each, False), MERGE)
        assert (200, False) == (reply.status, is_suspended(each, reply.json()))

    def marks() -> Json:
        found: Json = world.client.ask("GET", f"{path_of(kind)}/one").json()["metadata"].get("annotations") or {}
        return found

    ids = [JobId(made[each]["metadata"]["uid"]) for each in (kind, job)]
    world.until(lambda: marks().get(HELD) == BY_SUSPEND, "its hold")
    world.until(lambda: world.states(ids[0]) == [PodState.RUNNING] * 3, "all its pods to run")
    world.until(lambda: world.states(ids[1]) == [PodState.RUNNING] * 2, "the pods of the Job to run")
    assert "1" == marks()[ADMISSIONS]
    world.until(lambda: {"PelotonSuspended", "PelotonAdmitted"} <= world.events("one"), "its events")
    world.client.ask("DELETE", f"{path_of(kind)}/one?propagationPolicy=Background")


def test_a_kind_of_a_file_is_held_admitted_and_resumed(
    plane: ControlPlane, world: ExternalWorld, tmp_path: Path
) -> None:
    """The example of the documentation: policies and host manager have its kind, and it is resumed by the removal,
    which begins only when the file is named."""
    path = tmp_path / "kinds.yaml"
    path.write_text(example_of_the_page(), encoding="utf-8")
    kind = read_kinds(str(path))[-1]
    roles = {
        "Master": {"replicas": 1, "template": pod_template()},
        "Worker": {"replicas": 2, "template": pod_template()},
    }
    meta = {"name": "one", "namespace": world.namespace}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {"xgbReplicaSpecs": roles}}
    file = ("--owner-kinds", str(path))
    with Client(plane.login) as client:
        apply_schema(client, kind)
    with Client(plane.login) as client, OwnerController(plane.login, [kind]):
        run(plane, "install", *file)
        assert "pods wait" in run(plane, "check", *file)
        world.step_down()
        world.settings = replace(world.settings, owner_kinds=str(path))
        world.lead()
        is_held_and_admitted_whole(world, kind, body, 3)

        owners = f"/apis/{kind.api_version}/namespaces/{world.namespace}/{kind.plural}"
        assert is_suspended(kind, world.create(owners, body))
        for command in ("install", "check", "uninstall"):
            assert "name the file of its kinds with --owner-kinds" in run(plane, command, status=1)
        assert is_suspended(kind, client.ask("GET", f"{owners}/one").json())
        run(plane, "uninstall", *file)
        assert not is_suspended(kind, client.ask("GET", f"{owners}/one").json())
        client.ask("DELETE", f"{owners}/one?propagationPolicy=Background")
