"""The roll-up of many jobs: it counts only jobs that require nothing else, with the result of settling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from peloton.model.ids import JobId
from peloton.model.job import JobEnd, JobRecord, JobState, RolledUp
from peloton.model.pod import PodState
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, F, R, S, postgres_nightly
from tests.conformance.storage.interleaving import before_write


def record(storage: Storage, job_id: JobId) -> JobRecord:
    return storage.jobs.get_many([job_id])[0]


def create_launched_job(storage: Storage, count: int, **config: Any) -> JobId:
    job_id = world.a_job(storage, count, **config)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    storage.jobs.settle(job_id, NOW)
    return job_id


def test_pods_that_run_are_counted(storage: Storage) -> None:
    """Jobs whose pods begin to run are RUNNING after one call. Their workflows only have to show it."""
    jobs = sorted(create_launched_job(storage, 3) for _ in range(3))
    for job in jobs:
        world.report(storage, job, range(3), R, NOW + SECOND)

    assert RolledUp([], jobs) == storage.jobs.roll_up(jobs, NOW + SECOND)
    assert RolledUp([], []) == storage.jobs.roll_up(jobs, NOW + SECOND)
    assert [(JobState.RUNNING, {R: 3}, NOW + SECOND)] * 3 == [
        (job.state, job.pod_counts, job.started_ns) for job in storage.jobs.get_many(jobs)
    ]


@pytest.mark.parametrize(("ended", "state"), [([S, S], JobState.SUCCEEDED), ([F, S], JobState.FAILED)])
def test_the_end_of_a_job_is_settled(storage: Storage, ended: list[PodState], state: JobState) -> None:
    """The end of a job is written, once, and sent to its workflow, which does not settle it."""
    job = world.a_running_job(storage, 2)
    before = storage.jobs.settle(job, NOW).revision
    assert before == record(storage, job).revision
    for instance, reported in enumerate(ended):
        world.report(storage, job, [instance], reported, NOW + SECOND)

    rolled = storage.jobs.roll_up([job], NOW + SECOND)
    after = record(storage, job)

    assert RolledUp([], [], {job: JobEnd(state, dict(Counter(ended)))}) == rolled
    assert (state, NOW + SECOND) == (after.state, after.completed_ns)
    assert storage.jobs.settle(job, NOW + 2 * SECOND).is_finished
    assert after == record(storage, job)
    assert RolledUp([job], []) == storage.jobs.roll_up([job], NOW + SECOND)
    assert before < rolled.ended[job].revision == after.revision == storage.jobs.settle(job, NOW).revision


def test_the_end_of_a_job_that_is_to_be_deleted_is_left_to_its_workflow(storage: Storage) -> None:
    """The workflow settles a job that it has to delete."""
    job = world.a_running_job(storage, 2)
    storage.jobs.set_service_goal(job, None, JobState.DELETED, True, NOW)
    world.report(storage, job, [0, 1], S, NOW + SECOND)

    assert RolledUp([job], []) == storage.jobs.roll_up([job], NOW + SECOND)


def test_what_a_workflow_does_is_left_to_it(storage: Storage) -> None:
    """Next runs are not written. The workflow is notified."""
    job = world.a_running_job(storage, 2, retries=2)
    for instance, state in enumerate([F, R]):
        world.report(storage, job, [instance], state, NOW + SECOND)
    before = record(storage, job)

    assert RolledUp([job], []) == storage.jobs.roll_up([job], NOW + SECOND)
    assert before == record(storage, job)


def test_an_end_of_some_pods_is_counted(storage: Storage) -> None:
    """A job with running pods left requires nothing else."""
    job = world.a_running_job(storage, 3)
    world.report(storage, job, [1], S, NOW + SECOND)

    assert RolledUp([], [job]) == storage.jobs.roll_up([job], NOW + SECOND)
    assert {R: 2, S: 1} == storage.jobs.get_many([job])[0].pod_counts


def test_others_are_signalled(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workflow is notified for jobs with a deadline or a gang, larger jobs, jobs that wait for their pods, and
    unknown ones."""
    monkeypatch.setattr("services.storage.jobs.settling.SMALL_PODS", 5)
    large, missing = world.a_running_job(storage, 6), world.create(storage, world.a_config(2))
    timed = world.a_config(2)
    timed.sla.maxRunningTime = 60
    with_deadline = world.create(storage, timed)
    gang = create_launched_job(storage, 4, minimumRunningInstances=2)
    unknown = JobId(large[:-1] + ("0" if large[-1] != "0" else "1"))
    storage.pods.create(with_deadline, lambda _: None)
    world.admit(storage, with_deadline)
    world.launch(storage, with_deadline)
    world.report(storage, with_deadline, [0, 1], R)
    asked = [large, missing, with_deadline, gang, unknown]

    assert RolledUp(sorted(asked), []) == storage.jobs.roll_up(asked, NOW)


def test_a_job_that_changes_meanwhile_is_reported(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are written only to a job that has not changed since. The workflow of a changed job is notified."""
    job = create_launched_job(storage, 2)
    world.report(storage, job, [0, 1], R)
    before_write(storage, 1, lambda: storage.jobs.set_goal(job, JobState.KILLED, NOW), monkeypatch)

    assert RolledUp([job], []) == storage.jobs.roll_up([job], NOW)


@postgres_nightly
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reports=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([R, S, F])), max_size=8), retries=st.integers(0, 1)
)
def test_it_counts_as_settling_does(storage: Storage, reports: list[tuple[int, PodState]], retries: int) -> None:
    """Settling writes nothing and finds no work after a roll-up that notified no workflow, whatever hosts report."""
    job = world.a_running_job(storage, 4, retries=retries)
    for step, (instance, state) in enumerate(reports):
        world.report(storage, job, [instance], state, NOW + step)

    rolled = storage.jobs.roll_up([job], NOW + SECOND)
    before = record(storage, job)
    progress = storage.jobs.settle(job, NOW + SECOND)

    if not rolled.needs_work:
        assert before == record(storage, job)
        assert (0, 0, 0, 0) == (progress.missing_count, progress.admit_count, progress.ready_count, progress.kill_count)
        assert progress.is_finished == (job in rolled.ended)
    else:
        assert progress.admit_count or progress.deadline_s


def test_no_transaction_writes_more_jobs_than_the_bound(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction writes at most the bound of jobs, so that other writes happen in between."""
    monkeypatch.setattr("services.storage.jobs.jobs.ROLLED_UP_JOBS_MAX", 2)
    jobs = sorted(create_launched_job(storage, 1) for _ in range(5))
    for job in jobs:
        world.report(storage, job, [0], R, NOW + SECOND)
    written: list[int] = []
    write = storage.db.write

    def count_call(work: Callable[[Connection], list[JobId]]) -> list[JobId]:
        answer = write(work)
        written.append(len(answer))
        return answer

    monkeypatch.setattr(storage.db, "write", count_call)

    assert RolledUp([], jobs) == storage.jobs.roll_up(jobs, NOW + SECOND)
    assert [2, 2, 1] == written
