"""The way from status updates to storage and back to Mesos."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState, PodStatus
from services.hostmgr import reports
from services.hostmgr.driver import PodReport, Token
from services.hostmgr.reports import ReportQueue

JOB = JobId("00000000-0000-4000-8000-000000000001")
TIMEOUT_S = 180.0


def update(instance: int, uuid: str = "u", state: PodState = PodState.RUNNING) -> PodReport:
    """Return an update; one with a number below 0 has nothing to store."""
    pod_id = PodId(JOB, instance, 1)
    status = PodStatus(pod_id, state, 1) if instance >= 0 else None
    return PodReport(str(pod_id), state.value, lambda: status, (uuid, str(instance)) if uuid else ())


class Recorder:
    """The calls of the committer, in order; the first ``failures`` commits fail."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.failures = 0
        self.orphans: list[PodId] = []
        self.gate = threading.Event()
        self.gate.set()
        self.changed = threading.Condition()

    def commit(self, batch: Sequence[PodStatus]) -> list[PodId]:
        self.gate.wait(TIMEOUT_S)
        if self.failures:
            self.failures -= 1
            self.note("failed", [s.pod_id.instance_id for s in batch])
            raise RuntimeError("storage is away")
        self.note("commit", [s.pod_id.instance_id for s in batch])
        return self.orphans

    def acknowledge(self, tokens: list[Token]) -> None:
        self.note("acknowledge", [int(instance) for _, instance in tokens])

    def kill(self, pods: list[PodId]) -> None:
        self.note("kill", [p.instance_id for p in pods])

    def missed(self) -> None:
        self.note("missed", None)

    def note(self, what: str, which: Any) -> None:
        with self.changed:
            self.log.append((what, which))
            self.changed.notify_all()

    def wait(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, TIMEOUT_S), self.log

    def all(self, what: str) -> list[int]:
        return [instance for kind, which in self.log if kind == what for instance in which]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def committer(recorder: Recorder) -> Iterator[ReportQueue]:
    made = ReportQueue(recorder.commit, recorder.acknowledge, recorder.kill, recorder.missed, retry_s=0.0)
    made.start()
    yield made
    recorder.gate.set()
    made.stop()


def test_what_waits_is_committed_together_and_in_order(recorder: Recorder, committer: ReportQueue) -> None:
    """Updates that arrive during a commit are one batch of the next."""
    recorder.gate.clear()
    committer.add(update(0))
    for instance in range(1, 50):
        committer.add(update(instance))

    recorder.gate.set()
    recorder.wait(lambda: len(recorder.all("acknowledge")) == 50)

    assert list(range(50)) == recorder.all("commit")
    assert list(range(50)) == recorder.all("acknowledge")
    assert len([kind for kind, _ in recorder.log if kind == "commit"]) <= 3


def test_a_batch_is_bounded(recorder: Recorder, committer: ReportQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, one commit takes BATCH_MAX."""
    monkeypatch.setattr(reports, "BATCH_MAX", 10)

    for instance in range(35):
        committer.add(update(instance))
    recorder.wait(lambda: len(recorder.all("acknowledge")) == 35)

    assert all(len(which) <= 10 for kind, which in recorder.log if kind == "commit")


def test_acknowledged_is_what_was_committed(recorder: Recorder, committer: ReportQueue) -> None:
    """An acknowledgement follows its commit."""
    committer.add(update(1))

    recorder.wait(lambda: len(recorder.log) == 2)

    assert [("commit", [1]), ("acknowledge", [1])] == recorder.log


def test_a_failed_commit_is_not_acknowledged(recorder: Recorder, committer: ReportQueue) -> None:
    """Mesos sends the update again; later updates are committed."""
    recorder.failures = 1

    committer.add(update(1))
    recorder.wait(lambda: bool(recorder.log))
    committer.add(update(2))
    recorder.wait(lambda: 2 in recorder.all("acknowledge"))

    assert [2] == recorder.all("acknowledge")
    assert ("missed", None) not in recorder.log


def test_a_failed_update_of_the_master_itself_is_missed(recorder: Recorder, committer: ReportQueue) -> None:
    """The master's own update has no uuid, so it is not sent again: the master has to be asked."""
    recorder.failures = 1

    committer.add(update(1, uuid=""))

    recorder.wait(lambda: ("missed", None) in recorder.log)


def test_an_update_without_uuid_is_committed_but_not_acknowledged(recorder: Recorder, committer: ReportQueue) -> None:
    """Agents alone wait for acknowledgements."""
    committer.add(update(1, uuid=""))
    committer.add(update(2))

    recorder.wait(lambda: bool(recorder.all("acknowledge")))

    assert ([1, 2], [2]) == (recorder.all("commit"), recorder.all("acknowledge"))


def test_a_status_of_an_unknown_pod_is_acknowledged(recorder: Recorder, committer: ReportQueue) -> None:
    """An unacknowledged update without anything to store would be sent for ever."""
    committer.add(update(-1))

    recorder.wait(lambda: bool(recorder.all("acknowledge")))

    assert [] == recorder.all("commit")


def test_orphans_are_killed_after_their_acknowledgement(recorder: Recorder, committer: ReportQueue) -> None:
    """Storage names the runs that are not part of their job."""
    recorder.orphans = [PodId(JOB, 7, 1)]

    committer.add(update(7))

    recorder.wait(lambda: len(recorder.log) == 3)
    assert ["commit", "acknowledge", "kill"] == [kind for kind, _ in recorder.log]


def test_beyond_the_bound_updates_are_left_to_mesos(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Update above the bound are dropped: an agent's update is sent again, and for the master's
    own the master is asked.
    """
    monkeypatch.setattr(reports, "QUEUE_MAX", 2)
    full = ReportQueue(recorder.commit, recorder.acknowledge, recorder.kill, recorder.missed, retry_s=0.0)

    for instance in range(3):
        full.add(update(instance))
    assert [] == recorder.log
    full.add(update(3, uuid=""))
    assert [("missed", None)] == recorder.log

    full.start()
    full.stop()
    assert [0, 1] == recorder.all("acknowledge")


def test_updates_that_find_no_capacity_are_reported_together(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped updates are logged once for each batch that is taken meanwhile."""
    monkeypatch.setattr(reports, "QUEUE_MAX", 2)
    full = ReportQueue(recorder.commit, recorder.acknowledge, recorder.kill)

    for instance in range(1_000):
        full.add(update(instance))
    full.start()
    full.stop()

    reported = [text for text in caplog.messages if "status updates is full" in text]
    assert ["queue of status updates is full (2): 998 dropped, the cluster will resend them"] == reported


def test_stopping_commits_what_waits(recorder: Recorder, committer: ReportQueue) -> None:
    """Update added before the stop are committed and acknowledged when it returns."""
    for instance in range(20):
        committer.add(update(instance))

    committer.stop()

    assert list(range(20)) == recorder.all("acknowledge")


def test_stopping_does_not_wait_for_storage(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is left to the next leader while storage is unavailable."""
    monkeypatch.setattr(reports, "BATCH_MAX", 1)
    recorder.failures = 1_000
    stuck = ReportQueue(recorder.commit, recorder.acknowledge, recorder.kill, retry_s=60.0)
    for instance in range(50):
        stuck.add(update(instance))

    stuck.start()
    recorder.wait(lambda: bool(recorder.log))
    stuck.stop()

    assert [] == recorder.all("acknowledge")
    assert len(recorder.log) < 5
