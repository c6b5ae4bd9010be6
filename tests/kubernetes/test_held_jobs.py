"""Jobs that are held suspended, on a real control plane with its scheduler and its controllers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.gate import gate
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr.kubernetes.external.gate import ADMITTED, gates_of
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, PAUSED
from tests.kubernetes.client import MERGE, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import ExternalWorld, label_namespace, quick_world
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
R = PodState.RUNNING
LABELS = {"for": "held"}
NODES = ("held-1", "held-2")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with running_control_plane(scheduler=True) as plane, FakeKubelets(plane.login, NODES, labels=LABELS):
        done = CliRunner().invoke(gate, ["install", "--kubeconfig", str(plane.kubeconfig)])
        assert 0 == done.exit_code, (done.output, done.exception)
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    with quick_world(plane, tmp_path, monkeypatch, LABELS) as world:
        label_namespace(world.client, world.namespace)
        yield world


class AJob:
    def __init__(self, world: ExternalWorld, name: str, count: int = 2, cpu: str = "1", **spec: Any) -> None:
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        pod: Json = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
        pod |= spec.pop("pod", {})
        meta = {"name": name, **spec.pop("meta", {})}
        whole = {"parallelism": count, "completions": count, "template": {"spec": pod}, **spec}
        self.body: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": whole}
        self.world, self.name = world, name
        self.path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs/{name}"
        made = world.create(self.path.rpartition("/")[0], self.body)
        self.job_id = JobId(made["metadata"]["uid"])

    def look(self) -> Json:
        return self.world.client.ask("GET", self.path).json()

    def patch(self, body: Json) -> int:
        return self.world.client.ask("PATCH", self.path, body, MERGE).status

    @property
    def is_suspended(self) -> bool:
        return bool(self.look()["spec"].get("suspend"))

    @property
    def marks(self) -> Json:
        return self.look()["metadata"].get("annotations") or {}

    def pods(self) -> list[Json]:
        found = [pod for pod in self.world.pods() if pod["metadata"]["name"].startswith(f"{self.name}-")]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def states(self) -> list[PodState]:
        return self.world.states(self.job_id)

    def condition(self) -> str:
        found = self.look().get("status", {}).get("conditions") or ()
        return next((f"{one['reason']}: {one['message']}" for one in found if one["type"] == ADMITTED), "")


def test_a_job_is_admitted_whole_and_frees_its_pool_when_it_ends(world: ExternalWorld) -> None:
    """A Job larger than the cluster waits without pods and says why; one that fits runs, and its pods have no gate."""
    large = AJob(world, "large", count=100)
    small = AJob(world, "small", count=3)
    world.until(lambda: small.states() == [R] * 3, "the small Job to run")
    assert not any(gates_of(pod) for pod in small.pods())
    assert (True, [], [PodState.READY] * 100) == (large.is_suspended, large.pods(), large.states())
    world.until(lambda: "Unschedulable" in large.condition(), "the word why it waits")
    world.until(lambda: "Unschedulable" in world.events("large"), "the event about it")
    for pod in small.pods():
        world.end(pod["metadata"]["name"])
    world.until(lambda: small.states() == [PodState.SUCCEEDED] * 3, "the end to be known")


def test_a_suspended_job_comes_back_and_counts_no_failure(world: ExternalWorld) -> None:
    """Eviction of one pod suspends the whole Job, which is queued again when its pods are gone."""
    job = AJob(world, "train", backoffLimit=0)
    world.until(lambda: job.states() == [R] * 2, "the Job to run")
    before = job.marks[ADMITTED_AS]
    old = {pod["metadata"]["uid"] for pod in job.pods()}
    for host in {pod.host for pod in world.storage.pods.page(job.job_id)}:
        world.storage.host_pods.evict_from_host(job.job_id, host, 2)
    world.until(lambda: job.marks.get(ADMITTED_AS) not in (before, None), "another admission")
    world.until(lambda: job.states() == [R] * 2, "the Job to run again")
    assert not old & {pod["metadata"]["uid"] for pod in job.pods()}
    assert not job.look()["status"].get("failed")
    assert {"PelotonSuspended", "PelotonAdmitted"} <= world.events("train")


def test_a_job_that_no_scheduler_places_is_queued_again(world: ExternalWorld) -> None:
    """The timeout ends the admission, and another one follows; no failure is counted."""
    world.step_down()
    world.settings = replace(world.settings, admission_timeout_s=1.0)
    world.lead()
    apart = [{"labelSelector": {"matchLabels": {"app": "nothing"}}, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    job = AJob(world, "alone", count=1, backoffLimit=0, pod={"affinity": affinity})
    seen: set[str] = set()

    def has_come_twice() -> bool:
        seen.add(job.marks.get(ADMITTED_AS, ""))
        return len(seen - {""}) > 1

    world.until(has_come_twice, "a second admission")
    assert not job.look()["status"].get("failed")


def test_a_new_host_manager_knows_what_was_admitted(world: ExternalWorld) -> None:
    """A successor keeps the runs of Jobs that run, and of those that it finds suspended none is left behind."""
    jobs = [AJob(world, f"job-{number}") for number in range(4)]
    world.until(lambda: any(not job.is_suspended for job in jobs), "the first admission")
    world.step_down()
    world.lead()
    world.until(lambda: all(job.states() == [R] * 2 for job in jobs), "all to run")
    runs = [[pod.run_id for pod in world.storage.pods.page(job.job_id)] for job in jobs]
    marks = [job.marks[ADMITTED_AS] for job in jobs]
    world.step_down()
    world.lead()
    for _ in range(100):
        world.turn()
    assert runs == [[pod.run_id for pod in world.storage.pods.page(job.job_id)] for job in jobs]
    assert marks == [job.marks[ADMITTED_AS] for job in jobs]


def test_its_user_may_pause_it(world: ExternalWorld) -> None:
    """The flag of the user is a wish: a paused Job leaves the queue and its pool, and is queued when it is resumed."""
    job = AJob(world, "train")
    world.until(lambda: job.states() == [R] * 2, "the Job to run")
    mark = {"metadata": {"annotations": {PAUSED: "true"}}, "spec": {"suspend": True}}
    assert 200 == job.patch(mark)
    world.until(lambda: ADMITTED_AS not in job.marks, "the end of the admission")
    for _ in range(50):
        world.turn()
    assert (True, []) == (job.is_suspended, job.pods())
    assert 200 == job.patch({"metadata": {"annotations": {PAUSED: "false"}}})
    world.until(lambda: job.states() == [R] * 2, "the Job to run again")


def test_a_job_that_is_scaled_is_admitted_again(world: ExternalWorld) -> None:
    """A Job with more pods than were admitted is suspended, and queued with all of them."""
    job = AJob(world, "train", count=1, completions=4)
    world.until(lambda: job.states() == [R], "one pod to run")
    assert 200 == job.patch({"spec": {"parallelism": 3}})
    world.until(lambda: job.states() == [R] * 3 and not job.is_suspended, "three pods")
    assert "PelotonSuspended" in world.events("train")


def test_a_job_that_replaces_a_waiting_one_is_queued_behind_all_others(world: ExternalWorld) -> None:
    """Each Job of a CronJob is held, and is a job of its own: with `Replace` the waiting one leaves the queue, and the
    next one comes after what was created meanwhile."""
    crons = f"/apis/batch/v1/namespaces/{world.namespace}/cronjobs"
    container = {"name": "main", "image": "busybox"}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "concurrencyPolicy": "Replace", "jobTemplate": template}
    cron = world.create(crons, {"metadata": {"name": "cron"}, "spec": spec})["metadata"]
    by_cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": cron["uid"], "controller": True}
    size = 100  # more than the cluster has room for

    first = AJob(world, "cron-1", count=size, meta={"ownerReferences": [by_cron]})
    world.until(lambda: first.states() == [PodState.READY] * size, "the first Job to wait")
    other = AJob(world, "other", count=size)
    world.until(lambda: len(other.states()) == size, "another Job to wait")
    assert world.client.ask("DELETE", f"{first.path}?propagationPolicy=Background").status == 200
    second = AJob(world, "cron-2", count=size, meta={"ownerReferences": [by_cron]})
    world.until(lambda: second.states() == [PodState.READY] * size, "the next Job to wait")
    world.until(lambda: PodState.READY not in first.states(), "the end of the first one")

    assert (True, []) == (second.is_suspended, world.pods())
    times = [job.created_ns for each in (first, other, second) if (job := world.storage.jobs.get(each.job_id))]
    assert times == sorted({*times})
