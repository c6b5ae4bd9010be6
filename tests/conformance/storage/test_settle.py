"""Settling of jobs: next runs, the job's state, and the remaining work."""

from __future__ import annotations

import pytest

from peloton.lifecycle import settle as lifecycle_settle
from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState, TerminationReason
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import KILLING, LAUNCHED, NOW, READY, SECOND, F, I, K, L, R, S, everywhere


def test_progress_of_a_job_through_its_life(storage: Storage) -> None:
    """The counts of each step decide the next act of the workflow."""
    job_id = world.create(storage, world.a_config(3))
    assert (JobState.INITIALIZED, 0) == (
        storage.jobs.settle(job_id, NOW).state,
        storage.jobs.settle(job_id, NOW).admit_count,
    )

    storage.pods.create(job_id, lambda _: None)
    progress = storage.jobs.settle(job_id, NOW)
    assert (JobState.PENDING, {"INITIALIZED": 3}, 3) == (progress.state, progress.counts, progress.admit_count)

    world.queue(storage, job_id)
    assert 0 == storage.jobs.settle(job_id, NOW).admit_count
    storage.admission.mark_ready([(job_id, 0, 3)])
    assert 3 == storage.jobs.settle(job_id, NOW).ready_count
    world.launch(storage, job_id)
    assert 0 == storage.jobs.settle(job_id, NOW).ready_count

    world.report(storage, job_id, [0, 1, 2], R, NOW + SECOND)
    assert JobState.RUNNING == storage.jobs.settle(job_id, NOW + SECOND).state
    world.report(storage, job_id, [0, 1, 2], S, NOW + 3 * SECOND)
    progress = storage.jobs.settle(job_id, NOW + 9 * SECOND)

    assert (JobState.SUCCEEDED, {"SUCCEEDED": 3}, True) == (progress.state, progress.counts, progress.is_finished)
    job = storage.jobs.get(job_id)
    assert job is not None
    assert (NOW + SECOND, NOW + 3 * SECOND, 6.0) == (job.started_ns, job.completed_ns, job.run_seconds)
    assert {S: 3} == job.pod_counts
    assert [] == storage.jobs.active_ids()


@everywhere
def test_a_settled_job_is_not_written_again(storage: Storage) -> None:
    """A settle without news writes nothing. An ended job is never changed."""
    job_id = world.a_running_job(storage, 1)
    before = storage.jobs.get(job_id)
    storage.jobs.settle(job_id, NOW + SECOND)
    assert before == storage.jobs.get(job_id)

    world.report(storage, job_id, [0], S)
    storage.jobs.settle(job_id, NOW)
    ended = storage.jobs.get(job_id)
    assert storage.jobs.settle(job_id, NOW + 5 * SECOND) == storage.jobs.settle(job_id, NOW)
    assert [] == storage.pods.want_new_runs(job_id, [(0, 1)])
    assert [] == storage.pods.set_goals(job_id, [(0, 1)], S, NOW, "start")
    assert ended == storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    assert ended == storage.jobs.get(job_id)


@everywhere
def test_failed_pods_run_again_while_attempts_are_left(storage: Storage) -> None:
    """A new run starts without the old results, keeps the failure count, and refers to the run before it."""
    job_id = world.a_running_job(storage, 2, retries=2)
    world.report(storage, job_id, [0], F, NOW + 4 * SECOND, message="Command exited with status 1", reason="REASON_X")
    assert F == world.pod(storage, job_id).state

    progress = storage.jobs.settle(job_id, NOW)

    assert (JobState.RUNNING, 1) == (progress.state, progress.admit_count)
    again = world.pod(storage, job_id)
    assert (2, 2, 1, I, S, 1) == (
        again.run_id,
        again.desired_run_id,
        again.prev_run_id,
        again.state,
        again.goal,
        again.failure_count,
    )
    assert ("Rescheduled after task terminated", "", "", "", {}) == (
        again.message,
        again.reason,
        again.host,
        again.agent_id,
        again.ports,
    )
    assert (0, 0, None, 4.0) == (again.started_ns, again.completed_ns, again.termination, again.run_seconds)

    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0], F)
    progress = storage.jobs.settle(job_id, NOW)
    assert (F, 2, 2) == (
        world.pod(storage, job_id).state,
        world.pod(storage, job_id).failure_count,
        world.pod(storage, job_id).run_id,
    )
    world.report(storage, job_id, [1], S)
    assert JobState.FAILED == storage.jobs.settle(job_id, NOW).state


@everywhere
def test_a_batch_pod_that_failed_waits_for_its_next_run(storage: Storage) -> None:
    """The answer names the time of the next settle. Until then the pod has ended, and the job has not."""
    storage.host_pods.batch_backoff = Backoff(10, 600)
    job_id = world.a_running_job(storage, 2, retries=3)
    world.report(storage, job_id, [0], F, NOW + SECOND, no_other_host=True, message="Command exited with status 2")
    revision = world.pod(storage, job_id).revision

    progress = storage.jobs.settle(job_id, NOW + SECOND)

    assert (JobState.RUNNING, 0) == (progress.state, progress.admit_count)
    assert 9.0 <= progress.deadline_s < 14.0
    assert (F, "Command exited with status 2") == (world.pod(storage, job_id).state, world.pod(storage, job_id).message)
    assert revision == world.pod(storage, job_id).revision
    due_ns = NOW + SECOND + int(progress.deadline_s * SECOND)
    assert 1 == storage.jobs.settle(job_id, due_ns).admit_count
    assert (I, 2) == (world.pod(storage, job_id).state, world.pod(storage, job_id).run_id)


@everywhere
def test_a_batch_pod_that_may_go_elsewhere_does_not_wait(storage: Storage) -> None:
    """The next run starts with the settle that finds the failure, as if there were no waits."""
    storage.host_pods.batch_backoff = Backoff(10, 600)
    job_id = world.a_running_job(storage, 2, retries=3)
    world.report(storage, job_id, [0], F, NOW + SECOND)

    assert 1 == storage.jobs.settle(job_id, NOW + SECOND).admit_count
    assert (I, 2) == (world.pod(storage, job_id).state, world.pod(storage, job_id).run_id)


@everywhere
def test_a_job_that_is_stopped_does_not_wait_for_its_retries(storage: Storage) -> None:
    """A failed pod that waits for its retry keeps its state."""
    storage.host_pods.batch_backoff = Backoff(10, 600)
    job_id = world.a_running_job(storage, 2, retries=3)
    world.report(storage, job_id, [0], F, NOW + SECOND, no_other_host=True)
    storage.jobs.settle(job_id, NOW + SECOND)

    storage.jobs.set_goal(job_id, JobState.KILLED, NOW + SECOND)
    storage.host_pods.mark_killing(job_id, 10, cluster="cluster")
    world.report(storage, job_id, [1], K, NOW + 2 * SECOND)

    assert (JobState.KILLED, [F, K]) == (
        storage.jobs.settle(job_id, NOW + 3 * SECOND).state,
        world.states(storage, job_id),
    )


@everywhere
def test_a_job_does_not_end_before_its_last_retry(storage: Storage) -> None:
    """All pods may have ended: the job is active as long as one will run again."""
    job_id = world.a_running_job(storage, 2, retries=1)
    world.report(storage, job_id, [0], S)
    world.report(storage, job_id, [1], L, message="agent gone")

    assert not storage.jobs.settle(job_id, NOW).is_finished
    assert [S, I] == world.states(storage, job_id)


@everywhere
def test_a_refused_launch_is_always_repeated(storage: Storage) -> None:
    """A pod that is LOST with the reason of a refused offer, or before it started, uses no attempt."""
    job_id = world.a_job(storage, 2)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0], L, reason="REASON_HOST_REJECT_OFFER")
    world.report(storage, job_id, [1], L, reason="REASON_SLAVE_REMOVED")

    progress = storage.jobs.settle(job_id, NOW)

    assert (JobState.PENDING, 2) == (progress.state, progress.admit_count)
    assert [("Regenerate placement", 2, 0)] * 2 == [
        (p.message, p.run_id, p.failure_count) for p in world.pods(storage, job_id)
    ]


@everywhere
def test_one_settle_changes_a_bounded_number_of_pods(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next settle changes the pods above the bound, and the job does not end in between."""
    monkeypatch.setattr(lifecycle_settle, "SETTLE_PODS_MAX", 3)
    job_id = world.a_running_job(storage, 8, retries=1)
    world.report(storage, job_id, range(8), L)

    found = []
    for _ in range(3):
        progress = storage.jobs.settle(job_id, NOW)
        found.append((progress.settle_again, progress.counts, progress.is_finished))

    assert [
        (True, {"INITIALIZED": 3, "LOST": 5}, False),
        (True, {"INITIALIZED": 6, "LOST": 2}, False),
        (False, {"INITIALIZED": 8}, False),
    ] == found


@everywhere
def test_services_wait_before_they_run_again(storage: Storage) -> None:
    """The wait doubles with each failure, appears in the pod's message and in the progress, and then ends."""
    job_id = world.a_running_job(storage, 1, type_=JobType.SERVICE)
    world.report(storage, job_id, [0], F, NOW, message="Command exited with status 1")

    progress = storage.jobs.settle(job_id, NOW + 10 * SECOND)
    assert (JobState.PENDING, 20.0, 0) == (progress.state, progress.deadline_s, progress.admit_count)
    assert (F, THROTTLED_MESSAGE) == (world.pod(storage, job_id).state, world.pod(storage, job_id).message)
    revision = world.pod(storage, job_id).revision
    storage.jobs.settle(job_id, NOW + 11 * SECOND)
    assert revision == world.pod(storage, job_id).revision

    assert 1 == storage.jobs.settle(job_id, NOW + 30 * SECOND).admit_count
    assert (I, 2, "Rescheduled after task terminated") == (
        world.pod(storage, job_id).state,
        world.pod(storage, job_id).run_id,
        world.pod(storage, job_id).message,
    )


@everywhere
def test_pods_that_run_too_long_are_to_end(storage: Storage) -> None:
    """A pod above its longest running time has the goal KILLED with the reason. Before, the progress contains the
    remaining time."""
    job_id = world.a_running_job(storage, 2, maxRunningTime=60)
    assert pytest.approx(60.0) == storage.jobs.settle(job_id, NOW).deadline_s

    progress = storage.jobs.settle(job_id, NOW + 61 * SECOND)

    assert (2, 0.0) == (progress.kill_count, progress.deadline_s)
    overdue = world.pod(storage, job_id)
    assert (R, K, "Deadline exceeded") == (overdue.state, overdue.goal, overdue.reason)
    assert overdue.termination is not None
    assert TerminationReason.DEADLINE_TIMEOUT_EXCEEDED == overdue.termination.reason
    assert 2 == len(storage.host_pods.mark_killing(job_id, 10))
    assert 0 == storage.jobs.settle(job_id, NOW + 62 * SECOND).kill_count
    world.report(storage, job_id, [0, 1], K)
    assert JobState.KILLED == storage.jobs.settle(job_id, NOW + 63 * SECOND).state


@everywhere
def test_the_controller_speaks_for_its_job(storage: Storage) -> None:
    """Instance 0 of a controller job decides the end of the job."""
    config = world.a_config(2)
    config.instanceConfig[0].controller = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [1], F)
    assert not storage.jobs.settle(job_id, NOW).is_finished

    world.report(storage, job_id, [0], S)
    assert JobState.SUCCEEDED == storage.jobs.settle(job_id, NOW).state


@everywhere
def test_the_maximum_of_running_instances_bounds_admission(storage: Storage) -> None:
    """No more pods are queued than may run, however often the call is repeated. Others follow as pods end."""
    job_id = world.a_job(storage, 5, maximumRunningInstances=2)
    assert 2 == storage.jobs.settle(job_id, NOW).admit_count

    assert 2 == world.queue(storage, job_id)
    assert [] == storage.admission.queueable(job_id, 10)
    storage.admission.mark_ready([(job_id, 0, 5)])
    world.launch(storage, job_id)
    assert 0 == storage.jobs.settle(job_id, NOW).admit_count
    world.report(storage, job_id, [0], S)
    assert 1 == storage.jobs.settle(job_id, NOW).admit_count
    assert [(2, 1)] == storage.admission.queueable(job_id, 10)


@everywhere
def test_kills_are_counted_until_they_are_reported(storage: Storage) -> None:
    """Pods with goal KILLED count while queued, READY, or on a host that has not received the kill. KILLING pods have
    been killed already."""
    job_id = world.a_job(storage, 4)
    storage.admission.mark_pending(job_id, [(0, 3)], 1)
    storage.admission.mark_ready([(job_id, 1, 2)])
    storage.host_pods.mark_launched(job_id, [(2, 1, "host", "agent", {})], NOW)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    progress = storage.jobs.settle(job_id, NOW)
    assert (JobState.KILLING, 3, 0) == (progress.state, progress.kill_count, progress.ready_count)
    assert [PodState.PENDING, READY, LAUNCHED, K] == world.states(storage, job_id)

    storage.host_pods.mark_killing(job_id, 10)
    assert 2 == storage.jobs.settle(job_id, NOW).kill_count
    storage.admission.kill_queued(job_id, NOW)
    progress = storage.jobs.settle(job_id, NOW)
    assert (0, {"KILLED": 3, "KILLING": 1}) == (progress.kill_count, progress.counts)
    world.report(storage, job_id, [2], L, message="gone")
    assert JobState.KILLED == storage.jobs.settle(job_id, NOW).state
    assert [K] * 4 == world.states(storage, job_id)


def test_an_interrupted_stop_is_completed(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle marks the pods when the caller stopped after the job's goal was set."""
    job_id = world.a_running_job(storage, 3)

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("services.storage.jobs.jobs.steer_pods", crash)
        with pytest.raises(RuntimeError):
            storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    assert [S] * 3 == [p.goal for p in world.pods(storage, job_id)]

    assert 3 == storage.jobs.settle(job_id, NOW).kill_count

    job = storage.jobs.get(job_id)
    assert job is not None
    assert [K] * 3 == [p.goal for p in world.pods(storage, job_id)]
    assert job.desired_state_version == job.state_version == 2


@everywhere
def test_pods_that_never_left_home_end_in_settle(storage: Storage) -> None:
    """INITIALIZED pods with goal KILLED end without a call to any other service."""
    job_id = world.a_running_job(storage, 2, retries=5)
    world.report(storage, job_id, [0, 1], F)
    storage.jobs.settle(job_id, NOW)
    storage.pods.want_new_runs(job_id, [(0, 2)])

    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert JobState.KILLED == storage.jobs.settle(job_id, NOW).state
    assert [K, K] == world.states(storage, job_id)
    assert "Non-running task killed" == world.pod(storage, job_id).message


@everywhere
def test_a_killing_pod_that_is_wanted_again_runs_again(storage: Storage) -> None:
    """A restart kills the old run. The next one has the requested run id, and no attempt is used."""
    job_id = world.a_running_job(storage, 2)
    assert [0] == storage.pods.want_new_runs(job_id, [(0, 1)])
    assert [0] == storage.pods.want_new_runs(job_id, [(0, 1)])
    assert 1 == storage.jobs.settle(job_id, NOW).kill_count

    storage.host_pods.mark_killing(job_id, 10)
    assert [KILLING, R] == world.states(storage, job_id)
    world.report(storage, job_id, [0], K)
    assert 1 == storage.jobs.settle(job_id, NOW).admit_count

    assert (I, 2, 0, "Initialize task") == (
        world.pod(storage, job_id).state,
        world.pod(storage, job_id).run_id,
        world.pod(storage, job_id).failure_count,
        world.pod(storage, job_id).message,
    )
