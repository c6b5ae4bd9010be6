"""Big jobs that are being launched: their pods are counted once in a while, not for each batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.model.ids import JobId
from peloton.model.job import JobProgress, JobState
from services.storage.jobs import launching
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, READY, SECOND, F, K, R, S, postgres_nightly

COUNT = 12
BATCH = 2
SOON = SECOND // 4


@pytest.fixture(autouse=True)
def _small_jobs_are_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "BIG_PODS", COUNT)


def a_launching_job(storage: Storage, **config: Any) -> tuple[JobId, JobProgress]:
    """Return a job of which two pods run and ten wait for a host, and its counts."""
    job_id = world.a_job(storage, COUNT, **config)
    world.admit(storage, job_id)
    world.launch(storage, job_id, BATCH)
    world.report(storage, job_id, [0, 1], R)
    return job_id, storage.jobs.settle(job_id, NOW, batch_max=BATCH)


def test_counts_are_kept_while_more_pods_wait_than_a_batch_takes(storage: Storage) -> None:
    """The answer has the last counts for a second, and says that more than the next batch wait. The change that it does
    not count keeps its wake-up."""
    job_id, counted = a_launching_job(storage)
    assert (JobState.RUNNING, COUNT - BATCH) == (counted.state, counted.ready_count)
    world.launch(storage, job_id, BATCH)
    world.report(storage, job_id, [0], S)

    kept = storage.jobs.settle(job_id, NOW + SOON, batch_max=BATCH)
    assert (counted.counts, BATCH + 1) == (kept.counts, kept.ready_count)
    assert [job_id] == [due for _, due in storage.wakes.due(NOW + SECOND, 10)]

    fresh = storage.jobs.settle(job_id, NOW + SECOND, batch_max=BATCH)
    assert {"SUCCEEDED": 1, "RUNNING": 1, "LAUNCHED": 2, "READY": 8} == fresh.counts


def test_pods_that_begin_to_wait_before_the_first_one_are_counted(storage: Storage) -> None:
    """All pods are counted when too few wait from the first one on."""
    job_id = world.a_job(storage, COUNT)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, BATCH), (job_id, 4, COUNT - 4)])
    world.launch(storage, job_id, BATCH)
    world.report(storage, job_id, [0, 1], R)
    assert COUNT - 4 == storage.jobs.settle(job_id, NOW, batch_max=BATCH).ready_count
    assert BATCH + 1 == storage.jobs.settle(job_id, NOW + SOON, batch_max=BATCH).ready_count
    storage.admission.mark_ready([(job_id, 2, 2)])
    others = [(instance, 1, "host", "agent", {"http": 31000}) for instance in range(4, COUNT - 1)]
    storage.host_pods.mark_launched(job_id, others, NOW)

    last = storage.jobs.settle(job_id, NOW + SOON, batch_max=BATCH)
    assert {"READY": 3, "RUNNING": 2, "LAUNCHED": 7} == last.counts


@pytest.mark.parametrize(("pods", "seconds"), [(5_000, 1), (100_000, 2), (1_000_000, 10)])
def test_bigger_jobs_are_counted_less_often(pods: int, seconds: int) -> None:
    """A second for each 50,000 pods passes between counts, at least one and at most ten."""
    assert seconds * SECOND == launching.count_interval_ns(pods)


def test_the_last_batch_is_counted(storage: Storage) -> None:
    """Pods are counted at once when one batch takes all that wait, since no settle is certain to follow."""
    job_id, _ = a_launching_job(storage)
    world.launch(storage, job_id, COUNT - 2 * BATCH)

    last = storage.jobs.settle(job_id, NOW + SOON, batch_max=BATCH)
    assert {"RUNNING": 2, "LAUNCHED": 8, "READY": 2} == last.counts


def test_a_changed_job_is_counted(storage: Storage) -> None:
    """A stop of the job takes effect at the next settle."""
    job_id, _ = a_launching_job(storage)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert COUNT == storage.jobs.settle(job_id, NOW + SOON, batch_max=BATCH).kill_count


def test_jobs_with_other_steps_are_counted(storage: Storage) -> None:
    """Counts are kept only while nothing but launches remains: here pods wait to be queued."""
    job_id = world.a_job(storage, COUNT, maximumRunningInstances=COUNT - 1)
    world.admit(storage, job_id)
    world.launch(storage, job_id, BATCH)
    world.report(storage, job_id, [0, 1], R)
    world.report(storage, job_id, [0], S)
    assert 1 == storage.jobs.settle(job_id, NOW, batch_max=BATCH).admit_count
    world.report(storage, job_id, [1], S)

    counts = storage.jobs.settle(job_id, NOW, batch_max=BATCH).counts
    assert {"INITIALIZED": 1, "READY": 9, "SUCCEEDED": 2} == counts


instance = st.integers(0, COUNT - 1)
step = st.one_of(
    st.tuples(st.just("settle"), st.integers(0, 5)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("launch"), st.integers(1, 3)),
    st.tuples(st.just("report"), instance, st.sampled_from([R, S, F])),
    st.tuples(st.just("stop"), instance),
    st.tuples(st.just("start"), instance),
)


@postgres_nightly
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step, max_size=25), retries=st.integers(0, 1))
def test_settles_agree_with_a_recount(storage: Storage, steps: list[tuple[Any, ...]], retries: int) -> None:
    """An answer after any steps has the counts of now, or more pods wait for a host than a batch takes, and the last
    count is not a second old. The job always ends as its pods do."""
    job_id, counted = a_launching_job(storage, retries=retries)
    now_ns, counted_ns = NOW, NOW

    def settle(after_ns: int) -> JobProgress:
        nonlocal now_ns, counted, counted_ns
        now_ns += after_ns
        answer = storage.jobs.settle(job_id, now_ns, batch_max=BATCH)
        found = world.states(storage, job_id)
        if answer.settle_again or answer.counts == world.counts(found):
            counted, counted_ns = answer, now_ns
        else:
            assert counted.counts == answer.counts
            assert now_ns - counted_ns < SECOND
            assert BATCH < answer.ready_count <= Counter(found)[READY]
        return answer

    for name, *given_ in steps:
        match name:
            case "settle":
                settle(given_[0] * SOON)
            case "launch":
                world.launch(storage, job_id, given_[0])
            case "report":
                world.report(storage, job_id, [given_[0]], given_[1], now_ns)
            case "stop":
                storage.pods.set_goals(job_id, [(given_[0], 1)], K, now_ns, "stop")
            case "start":
                storage.pods.set_goals(job_id, [(given_[0], 1)], S, now_ns, "start")
    for _ in range(3 * COUNT):
        if settle(SOON).is_finished:
            break
        world.admit(storage, job_id)
        world.launch(storage, job_id, BATCH)
        storage.admission.kill_queued(job_id, now_ns)
        world.report(storage, job_id, range(COUNT), S, now_ns)
    assert settle(0).is_finished
    assert world.counts(world.states(storage, job_id)) == settle(0).counts
