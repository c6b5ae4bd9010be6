"""Services that lose instances while they stop, after they have stopped, and before they return."""

from __future__ import annotations

import pytest

from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, K, R, counts, pods, report, settle_all, states
from tests.conformance.storage.services import a_service, roll, runs_of, service_config, turn, update
from tests.present import require


def stop(storage: Storage, job_id: JobId) -> None:
    storage.jobs.set_service_goal(job_id, None, JobState.KILLED, False, NOW)


def begin_shrinking(storage: Storage, count: int, to: int) -> JobId:
    """Create a service whose instances above ``to`` are being killed."""
    job_id = a_service(storage, count)
    update(storage, job_id, service_config(to))
    storage.updates.advance(job_id, NOW)
    settle_all(storage, job_id)
    assert count - to == len(storage.host_pods.mark_killing(job_id, 100))
    return job_id


def test_a_stopped_service_shrinks(storage: Storage) -> None:
    """The update ends, the instances above the count are gone, and the others stay as they are."""
    job_id = a_service(storage, 5)
    stop(storage, job_id)
    turn(storage, job_id)
    update(storage, job_id, service_config(3))
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    job = storage.jobs.get(job_id)
    assert job is not None
    assert ([K] * 3, JobState.KILLED, {K: 3}) == (states(storage, job_id), job.state, job.pod_counts)


def test_a_stopped_service_grows(storage: Storage) -> None:
    """New instances are added, stopped like the others, and counted."""
    job_id = a_service(storage, 2)
    stop(storage, job_id)
    turn(storage, job_id)
    update(storage, job_id, service_config(4))
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    progress = storage.jobs.settle(job_id, NOW)
    assert (JobState.KILLED, counts([K] * 4)) == (progress.state, progress.counts)


@pytest.mark.parametrize(("running_count", "leaving_count"), [(6, 4), (3, 2)])
def test_a_service_shrinks_by_its_batch_after_another_update(
    storage: Storage, running_count: int, leaving_count: int
) -> None:
    """One instance leaves at a time, and clients see ROLLING_FORWARD until the last one has left, though an update that
    changes or adds instances was under way."""
    job_id = a_service(storage, running_count)
    one_by_one = UpdateSpec(batch_size=1)
    before = update(storage, job_id, service_config(6, "v2" if running_count == 6 else "v1"), one_by_one)
    storage.updates.advance(job_id, NOW)
    shrinking = update(storage, job_id, service_config(2), one_by_one)
    assert UpdateState.ABORTED is require(storage.updates.get(before.update_id)).state

    seen: list[tuple[UpdateState, int]] = []
    for _ in range(20):
        storage.updates.advance(job_id, NOW)
        leaving = [pod for pod in pods(storage, job_id) if pod.goal is PodState.DELETED]
        seen.append((require(storage.updates.get(shrinking.update_id)).state, len(leaving)))
        if turn(storage, job_id).is_finished:
            break

    assert all(state is UpdateState.ROLLING_FORWARD for state, count in seen if count)
    assert [1] * leaving_count == [count for _, count in seen if count]
    assert [R] * 2 == states(storage, job_id)
    forward, done = UpdateState.ROLLING_FORWARD, UpdateState.SUCCEEDED
    assert [done, forward, UpdateState.INITIALIZED] == [e.state for e in storage.updates.events(shrinking.update_id)]


@pytest.mark.parametrize("ends_first", [0, 4])
def test_a_stop_during_the_removal(storage: Storage, ends_first: int) -> None:
    """The service is stopped when all pods have ended, in any order, and the instances to be removed are gone."""
    job_id = begin_shrinking(storage, 5, 3)
    stop(storage, job_id)
    assert 3 == len(storage.host_pods.mark_killing(job_id, 100))
    first = [ends_first] if ends_first else [0, 1, 2]
    report(storage, job_id, first, K)
    assert JobState.KILLING is settle_all(storage, job_id).state
    report(storage, job_id, sorted(set(range(5)) - set(first)), K)
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert (JobState.KILLED, [K] * 3) == (storage.jobs.settle(job_id, NOW).state, states(storage, job_id))


def test_what_an_aborted_update_was_removing_goes(storage: Storage) -> None:
    """The removal continues also when the service is stopped and no update is left."""
    job_id = begin_shrinking(storage, 5, 3)
    storage.updates.steer(job_id, None, UpdateAct.ABORT, None, NOW)
    stop(storage, job_id)
    storage.host_pods.mark_killing(job_id, 100)
    report(storage, job_id, range(5), K)
    assert settle_all(storage, job_id).is_finished
    assert [K] * 3 == states(storage, job_id)


def test_growing_again_during_the_removal(storage: Storage) -> None:
    """Instances that are being removed return when an update adds them again."""
    job_id = begin_shrinking(storage, 4, 2)
    update(storage, job_id, service_config(4))
    storage.updates.advance(job_id, NOW)
    report(storage, job_id, [2, 3], K)
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert ([R] * 4, {0: 1, 1: 1, 2: 2, 3: 2}) == (states(storage, job_id), runs_of(storage, job_id))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_deletion_ends_what_was_being_rolled_out(storage: Storage, is_stopped: bool) -> None:
    """The deletion waits for no update: the records of a deleted service are unwanted as soon as its pods have
    ended."""
    job_id = a_service(storage, 3)
    if is_stopped:
        stop(storage, job_id)
        turn(storage, job_id)
    job = update(storage, job_id, service_config(3, "v2"), UpdateSpec(start_paused=True))
    storage.jobs.set_service_goal(job_id, None, JobState.DELETED, not is_stopped, NOW)
    report(storage, job_id, [pod.instance_id for pod, *_ in storage.host_pods.mark_killing(job_id, 100)], K)
    progress = settle_all(storage, job_id)
    assert (True, True) == (progress.is_unwanted, progress.is_finished)
    assert UpdateState.ABORTED is require(storage.updates.get(job.update_id)).state
    assert {PodState.KILLED} == set(states(storage, job_id))
