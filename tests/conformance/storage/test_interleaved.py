"""Acts between two transactions of one call: each test runs one sequence by hand, in the one order that matters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from peloton.model.admission import EvictionOrder
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from services.storage.jobs.settle_view import PendingSettle
from services.storage.jobs.settling import apply, read_pending
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import LAUNCHED, NOW, I, K, L, R
from tests.conformance.storage.interleaving import before_write
from tests.reasons import PREEMPTED


def test_a_run_that_began_is_not_begun_again_by_a_settle_that_read_before(storage: Storage) -> None:
    """Two settles see a lost launch. The second finds the pod launched again and leaves it, also when the job's row
    shows no change."""
    job_id = world.a_job(storage, 1)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0], L)
    first, second = (storage.db.read(partial(read_pending, job_id=job_id, now_ns=NOW))[0] for _ in range(2))
    assert isinstance(first, PendingSettle)
    assert isinstance(second, PendingSettle)

    assert storage.db.write(partial(apply, found=first, now_ns=NOW)) is not None
    world.admit(storage, job_id)
    world.launch(storage, job_id)

    assert storage.db.write(partial(apply, found=second, now_ns=NOW)) is None
    assert [LAUNCHED] == world.states(storage, job_id)
    assert {0: 2} == world.runs_of(storage, job_id)


@pytest.mark.parametrize("first", [JobState.KILLED, JobState.RUNNING])
def test_of_a_stop_and_a_start_the_later_one_holds_for_all_pods(
    storage: Storage, open_storage: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch, first: JobState
) -> None:
    """A start between the commits of a stop, or a stop between the commits of a start, is not undone by the rest of
    it."""
    job_id = world.a_running_job(storage, 3, type_=JobType.SERVICE)
    if first is JobState.RUNNING:
        storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    second = JobState.RUNNING if first is JobState.KILLED else JobState.KILLED
    other = open_storage()
    before_write(storage, 2, lambda: other.jobs.set_goal(job_id, second, NOW), monkeypatch)

    storage.jobs.set_goal(job_id, first, NOW)

    job = storage.jobs.get(job_id)
    assert job is not None
    assert second is job.goal
    assert [PodState(second.value)] * 3 == [one.goal for one in world.pods(storage, job_id)]


def test_a_pod_that_is_started_during_its_final_eviction_runs_again(storage: Storage) -> None:
    """The eviction waits for the pod's resources, so the pod ends, and returns as any evicted pod does."""
    config = world.a_config(1, type_=JobType.SERVICE)
    config.defaultConfig.preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)
    storage.admission.evict([EvictionOrder(job_id, 0, 1, False, PREEMPTED)])
    evicted = world.pod(storage, job_id)
    assert (PodState.PREEMPTING, K) == (evicted.state, evicted.goal)

    storage.pods.set_goals(job_id, [(0, 1)], R, NOW, "start")

    assert [one.is_leaving for one in storage.admission.list_held([job_id])[job_id]] == [True]
    assert 1 == storage.jobs.settle(job_id, NOW).kill_count
    assert [0] == [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10)]
    world.report(storage, job_id, [0], K)
    world.settle_all(storage, job_id)
    assert [I] == world.states(storage, job_id)
