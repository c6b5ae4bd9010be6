"""Notes of jobs whose workflows have not processed a change yet, and the sweep that reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from peloton.lifecycle.wake import TIMER_GRACE_S
from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobState
from peloton.model.pod import PodState, PodStatus
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.model.update import UpdateSpec
from services.storage.jobs.wakes import mark_seen, note_wakes, read_wake
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, F, R, S, everywhere
from tests.conformance.storage.services import a_service, service_config, update
from tests.present import require
from tests.reasons import PREEMPTED

ALL = 100


def due(storage: Storage, until_ns: int) -> list[JobId]:
    return [job_id for _, job_id in storage.wakes.due(until_ns, ALL)]


def settle_all(storage: Storage, now_ns: int = NOW) -> None:
    for job_id in due(storage, now_ns):
        while storage.jobs.settle(job_id, now_ns).settle_again:
            pass


@everywhere
def test_a_new_job_is_due_until_it_is_settled(storage: Storage) -> None:
    """A job is found although its api was killed before it started the workflow."""
    job_id = world.create(storage, world.a_config(2))

    assert [job_id] == due(storage, NOW)
    assert [] == due(storage, NOW - 1)
    settle_all(storage)
    assert [] == due(storage, NOW + 10**6 * SECOND)


Act = Callable[[Storage, JobId], object]


def _stop(storage: Storage, job_id: JobId) -> None:
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)


def _stop_pods(storage: Storage, job_id: JobId) -> None:
    storage.pods.set_goals(job_id, [(0, 1)], PodState.KILLED, NOW, "stop")


def _restart(storage: Storage, job_id: JobId) -> None:
    storage.pods.want_new_runs(job_id, [(0, 1)])


def _report(storage: Storage, job_id: JobId) -> None:
    world.report(storage, job_id, range(1), S, NOW)


def _evict(storage: Storage, job_id: JobId) -> None:
    storage.admission.evict([EvictionOrder(job_id, 0, 1, False, PREEMPTED)])


@everywhere
@pytest.mark.parametrize("act", [_stop, _stop_pods, _restart, _report, _evict])
def test_changes_of_others_are_noted(storage: Storage, act: Act) -> None:
    """Each transaction that wakes a workflow leaves a note, which the next settle deletes."""
    job_id = world.a_running_job(storage, 3)
    settle_all(storage)
    act(storage, job_id)

    assert [job_id] == due(storage, NOW)
    settle_all(storage)
    assert [] == due(storage, NOW)


@everywhere
def test_an_admission_is_noted(storage: Storage) -> None:
    """READY pods wait for their workflow, although the resource manager may have been killed since."""
    job_id = world.a_job(storage, 2)
    settle_all(storage)
    storage.admission.mark_pending(job_id, [(0, 2)], 1)
    assert [] == due(storage, NOW)
    storage.admission.mark_ready([(job_id, 0, 2)])

    assert [job_id] == due(storage, NOW)


@everywhere
def test_a_gang_that_is_queued_again_is_noted(storage: Storage) -> None:
    """The job is woken, as another workflow may have released the launch."""
    job_id = world.a_job(storage, 2, minimumRunningInstances=2)
    world.admit(storage, job_id)
    settle_all(storage)
    storage.admission.requeue_gang(job_id, RequeueReason(RequeueRule.CANCELLED))

    assert [job_id] == due(storage, NOW)


@everywhere
def test_a_workflows_own_turn_notes_nothing(storage: Storage) -> None:
    """Temporal repeats the steps of a turn when a worker dies, so queueing, launch and kill leave no note."""
    job_id = world.a_job(storage, 2)
    world.admit(storage, job_id)
    settle_all(storage)
    world.launch(storage, job_id)

    assert [] == due(storage, NOW)


@everywhere
def test_a_next_run_and_a_deadline_are_due_when_the_timer_is_late(storage: Storage) -> None:
    """The note of a job with a deadline stays, and is due a while after the deadline."""
    job_id = world.a_running_job(storage, 1, maxRunningTime=600)
    settle_all(storage)
    late_ns = NOW + (600 + TIMER_GRACE_S) * SECOND

    assert [] == due(storage, late_ns - SECOND)
    assert [job_id] == due(storage, late_ns + SECOND)
    settle_all(storage, late_ns + SECOND)
    assert [] == due(storage, late_ns + SECOND)


@everywhere
def test_pages_follow_each_other(storage: Storage) -> None:
    """The sweep reads by page, the oldest notes first, each job once."""
    jobs = sorted(world.create(storage, world.a_config(1)) for _ in range(5))
    found: list[tuple[int, JobId]] = []
    while page := storage.wakes.due(NOW, 2, found[-1] if found else (0, "")):
        found += page

    assert [(NOW, job_id) for job_id in jobs] == found


@everywhere
def test_notes_of_ended_jobs_are_forgotten(storage: Storage) -> None:
    """A report after the end notes a job without a workflow. The sweep deletes the note."""
    job_id, running = world.a_running_job(storage, 1), world.a_running_job(storage, 1)
    world.report(storage, job_id, range(1), F, NOW)
    settle_all(storage)
    assert JobState.FAILED is require(storage.jobs.get(job_id)).state
    late = PodStatus(PodId(job_id, 0, 1), R, time_ns=NOW)
    for one in (job_id, running):
        storage.host_pods.apply_status([late if one == job_id else PodStatus(PodId(one, 0, 1), S, time_ns=NOW)])
    storage.wakes.forget_ended(NOW, ALL)

    assert [running] == due(storage, NOW)


def test_notes_of_ended_jobs_are_forgotten_page_by_page(storage: Storage) -> None:
    """One transaction deletes a page of notes, and leaves the notes of active jobs."""
    running, ended = world.a_running_job(storage, 1), [world.a_running_job(storage, 1) for _ in range(3)]
    for job_id in ended:
        world.report(storage, job_id, range(1), S, NOW)
    settle_all(storage)
    storage.db.write(partial(note_wakes, job_ids=[running, *ended], now_ns=NOW))

    assert [2, 1, 0] == [storage.wakes.forget_ended(NOW, 2) for _ in range(3)]
    assert [running] == due(storage, NOW)


@everywhere
def test_jobs_that_were_settled_are_counted(storage: Storage) -> None:
    """The count is a lower bound of workflows unless Temporal has lost some. Jobs that wait for a deadline are
    included."""
    world.a_running_job(storage, 1)
    world.a_running_job(storage, 1, maxRunningTime=600)
    ended = world.a_running_job(storage, 1)
    world.report(storage, ended, range(1), S, NOW)
    settle_all(storage)
    world.create(storage, world.a_config(1))  # noted

    assert 2 == storage.wakes.count_settled()


def test_ended_services_with_an_update_are_counted(storage: Storage) -> None:
    """A stopped service with an update has a workflow. Without it the count would hide a missing workflow."""
    world.a_running_job(storage, 1)
    stopped, job_id = a_service(storage, 0), a_service(storage, 0)
    for one in (stopped, job_id):
        storage.jobs.set_service_goal(one, None, JobState.KILLED, False, NOW)
        storage.jobs.settle(one, NOW)
    update(storage, job_id, service_config(2, "v2"), UpdateSpec(start_paused=True))
    settle_all(storage)
    assert JobState.KILLED is require(storage.jobs.get(job_id)).state

    assert 2 == len(storage.jobs.active_ids()) == storage.wakes.count_settled()


def test_a_change_during_a_settle_stays_noted(storage: Storage) -> None:
    """A settle deletes the note that it has read, and leaves the note of a later change."""
    job_id = world.a_running_job(storage, 2)
    world.report(storage, job_id, range(1, 2), S, NOW)
    read = require(storage.db.read(partial(read_wake, job_id=job_id)))
    world.report(storage, job_id, range(1), S, NOW)  # by a clock that stands still
    storage.db.write(partial(mark_seen, job_id=job_id, wake=read, due_ns=0))

    assert [job_id] == due(storage, NOW)


def test_counting_takes_notes_back(storage: Storage) -> None:
    """Jobs that were only counted require no wake-up except the one that shows it. Jobs that are left to their
    workflows keep their notes."""
    counted, left = world.a_job(storage, 2), world.a_running_job(storage, 2, retries=2)
    world.admit(storage, counted)
    world.launch(storage, counted)
    settle_all(storage)
    world.report(storage, counted, range(2), R, NOW + SECOND)
    world.report(storage, left, range(2), F, NOW + SECOND)
    storage.jobs.roll_up([counted, left], NOW + SECOND)

    assert [left] == due(storage, NOW + SECOND)
    assert [left, counted] == due(storage, NOW + (1 + TIMER_GRACE_S) * SECOND)
    storage.jobs.settle(counted, NOW + 6 * SECOND)
    assert [left] == due(storage, NOW + (1 + TIMER_GRACE_S) * SECOND)


def test_a_count_without_changes_keeps_the_note_of_an_earlier_one(storage: Storage) -> None:
    """Counts are shown although the process of the wake-up is killed, and a report without a change of counts arrives
    in between."""
    job_id = world.a_job(storage, 2)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    settle_all(storage)
    world.report(storage, job_id, range(2), R, NOW + SECOND)
    storage.jobs.roll_up([job_id], NOW + SECOND)
    storage.jobs.roll_up([job_id], NOW + SECOND)
    storage.db.write(partial(note_wakes, job_ids=[job_id], now_ns=NOW + 2 * SECOND))
    storage.jobs.roll_up([job_id], NOW + 2 * SECOND)

    assert [] == due(storage, NOW + 2 * SECOND)
    assert [job_id] == due(storage, NOW + (2 + TIMER_GRACE_S) * SECOND)
    storage.jobs.settle(job_id, NOW + 6 * SECOND)
    assert [] == due(storage, NOW + 10**6 * SECOND)


def test_the_note_of_an_end_stays_until_the_workflow_is_signalled(storage: Storage) -> None:
    """The note of a job that ended without its workflow is due a minute later. It is deleted once the workflow is
    signalled, or has settled. Notes of active jobs stay."""
    signalled, left, active = (world.a_running_job(storage, 1) for _ in range(3))
    for job_id in (signalled, left):
        world.report(storage, job_id, [0], S, NOW)
    world.report(storage, active, [0], R, NOW)
    storage.jobs.roll_up([signalled, left], NOW)
    late_ns = NOW + (1 + TIMER_GRACE_S) * SECOND
    assert 0 == storage.wakes.forget_ended(late_ns, 10)
    noted = set(due(storage, late_ns))

    storage.wakes.forget_signalled([signalled, active])

    assert {signalled, left} <= noted
    assert noted - {signalled} == {*due(storage, late_ns)}
    assert storage.jobs.settle(left, late_ns).is_finished
    assert left not in due(storage, 10 * late_ns - 9 * NOW)


def test_a_job_that_is_forgotten_leaves_no_note(storage: Storage) -> None:
    """The deletion of a job deletes its note, which begins with the request of the deletion."""
    job_id = world.a_running_job(storage, 1)
    world.report(storage, job_id, range(1), S, NOW)
    settle_all(storage)
    storage.jobs.delete(job_id)

    assert [] == due(storage, NOW + 10**6 * SECOND)


def test_the_sweep_reads_what_is_due_alone(storage: Storage) -> None:
    """The plan of the sweep names the index, and no scan of jobs or of notes."""
    explain = "EXPLAIN QUERY PLAN" if storage.db.is_sqlite else "EXPLAIN"
    text = f"{explain} SELECT due_ns, job_id FROM job_wake WHERE due_ns <= 5 ORDER BY due_ns, job_id LIMIT 9"

    def plan(conn: sa.Connection) -> str:
        if not storage.db.is_sqlite:
            conn.execute(sa.text("SET enable_seqscan = off"))  # a scan is quicker for so few rows
        return "\n".join(map(str, conn.execute(sa.text(text))))

    assert "ix_job_wake_due" in storage.db.read(plan)
