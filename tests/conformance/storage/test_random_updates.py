"""Random sequences of updates, steering, maintenance and lost hosts on one service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.lifecycle import sla
from peloton.model.ids import JobId
from peloton.model.pod import PodState, TerminationReason
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, Clock, K, L, admit, launch, pods, report, settle_all
from tests.conformance.storage.services import a_service, roll, service_config, turn, update, versions
from tests.nightly import NIGHTLY
from tests.present import require

MAXIMUM = 2
"""Maximum of unavailable instances in the SLA of the service."""

ACTS = st.sampled_from(
    ["update", "restart", "pause", "resume", "abort", "drain", "lose", "end", "start", "step", "step"]
)
Move = st.tuples(ACTS, st.integers(0, 7), st.integers(0, 3), st.booleans())


@dataclass
class Cluster:
    """A cluster in which a move starts or ends pods, a few at a time."""

    storage: Storage
    job_id: JobId
    strict: bool
    command: int = 1
    count: int = 6
    batch: int = 0
    broken: set[int] = field(default_factory=set)  # taken down by the test, not by Peloton

    def asks(self, type_: UpdateType, count: int, batch: int) -> bool:
        """Request an update. Return whether it was accepted: a restart and an update do not overwrite each other."""
        config = self.config(count) if type_ is UpdateType.UPDATE else None
        try:
            update(self.storage, self.job_id, config, UpdateSpec(batch_size=batch), type=type_)
        except InvalidArgument:
            return False
        self.batch = batch
        return True

    def move(self, act: str, number: int, size: int, flag: bool) -> None:
        storage, job_id = self.storage, self.job_id
        match act:
            case "update":
                self.command += 1
                count = max(1, self.count + (number % 3 - 1 if flag else 0))
                if self.asks(UpdateType.UPDATE, count, size + 1):
                    self.count = count
            case "restart":
                self.asks(UpdateType.RESTART, self.count, size + 1)
            case "pause" | "resume" | "abort":
                storage.updates.steer(job_id, None, UpdateAct(act), None, NOW)
            case "drain":
                before = self.missing()
                reason = TerminationReason.KILLED_HOST_MAINTENANCE
                asked = {number, number + 1} & set(versions(storage, job_id))
                granted = storage.disruptions.disrupt(
                    job_id, asked, reason=reason, message="", checks_sla=True, now_ns=NOW
                )
                assert len(self.missing()) <= max(MAXIMUM, len(before))
                assert set(granted.granted) | set(granted.refused) == asked
            case "lose":
                alive = [p.instance_id for p in pods(storage, job_id) if p.state is PodState.RUNNING]
                lost = alive[number : number + 1]
                report(storage, job_id, lost, L)
                self.broken |= set(lost)
            case "end":
                settle_all(storage, job_id)
                storage.admission.kill_queued(job_id, NOW)
                report(storage, job_id, [pod.instance_id for pod, *_ in storage.host_pods.mark_killing(job_id, 100)], K)
                settle_all(storage, job_id)
            case "start":
                admit(storage, job_id)
                started = sorted(launch(storage, job_id))[: size + 1]
                report(storage, job_id, started, PodState.RUNNING)
                self.broken -= set(started)
                settle_all(storage, job_id)
            case "step":
                before = self.missing()
                storage.updates.advance(job_id, NOW)
                taken = self.missing() - before
                assert len(taken) <= self.batch, (
                    taken,
                    self.batch,
                    storage.updates.get(require(storage.jobs.get(job_id)).update_id),
                )
                added = self.added()
                if self.strict and taken - added:
                    assert len(self.missing() - added) <= MAXIMUM

    def missing(self) -> set[int]:
        return set(sla.missing_of({p.instance_id: p for p in pods(self.storage, self.job_id)}))

    def added(self) -> set[int]:
        """Return the instances that have never run, which are missing although no act has taken them down."""
        return {p.instance_id for p in pods(self.storage, self.job_id) if not p.started_ns and p.prev_run_id == 0}

    def config(self, count: int) -> job_pb2.JobConfig:
        return service_config(count, f"v{self.command}", maximumUnavailableInstances=MAXIMUM, strictUpdates=self.strict)


@pytest.fixture(scope="module")
def shared(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """Open one database for all lives, each with a service of its own, since opening one costs more than a life."""
    path = tmp_path_factory.mktemp("lives") / "storage.db"
    shutil.copy(sqlite_template, path)
    storage = Storage(f"sqlite:///{path}", Clock())
    yield storage
    storage.close()


LIVES = given(moves=st.lists(Move, max_size=25), strict=st.booleans())


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@example(
    moves=[("update", 2, 0, True), ("drain", 0, 0, False), ("lose", 2, 0, False), ("step", 0, 0, False)], strict=True
)
@LIVES
def test_whatever_happens(shared: Storage, moves: list[tuple[str, int, int, bool]], strict: bool) -> None:
    """Steps never take down more than the batch, and grants never more than the SLA. Once the acts stop, every instance
    runs the last configuration."""
    live(shared, moves, strict)


@NIGHTLY
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@LIVES
def test_many_lives(shared: Storage, moves: list[tuple[str, int, int, bool]], strict: bool) -> None:
    """More lives keep the same invariants."""
    live(shared, moves, strict)


def live(storage: Storage, moves: list[tuple[str, int, int, bool]], strict: bool) -> None:
    cluster = Cluster(storage, a_service(storage, 6, maximumUnavailableInstances=MAXIMUM, strictUpdates=strict), strict)
    for move in moves:
        cluster.move(*move)
    storage.updates.steer(cluster.job_id, None, UpdateAct.ABORT, None, NOW)
    cluster.command += 1
    update(storage, cluster.job_id, cluster.config(cluster.count), UpdateSpec(batch_size=2))
    assert UpdateState.SUCCEEDED is roll(storage, cluster.job_id).state
    for _ in range(5):
        if {PodState.RUNNING} == {p.state for p in pods(storage, cluster.job_id)}:
            break
        turn(storage, cluster.job_id)
    job = storage.jobs.get(cluster.job_id)
    assert job is not None
    assert dict.fromkeys(range(cluster.count), job.config_version) == versions(storage, cluster.job_id)
    assert {PodState.RUNNING} == {p.state for p in pods(storage, cluster.job_id)}
