"""Stop, start and restart of jobs and instances."""

from __future__ import annotations

from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState, TerminationReason
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import KILLING, LAUNCHED, NOW, READY, F, I, K, P, R, S, everywhere

STOP = "Task stop API request"


@everywhere
def test_stopping_a_job_marks_its_pods(storage: Storage) -> None:
    """Each pod has the goal KILLED with message and reason. The version rises once, however often the job is
    stopped."""
    job_id = world.a_running_job(storage, 2)

    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    job = storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert job is not None
    assert (JobState.KILLED, JobState.KILLING, 2) == (job.goal, job.state, job.desired_state_version)
    stopped = world.pod(storage, job_id)
    assert (R, K, STOP, "") == (stopped.state, stopped.goal, stopped.message, stopped.reason)
    assert stopped.termination is not None
    assert TerminationReason.KILLED_ON_REQUEST == stopped.termination.reason
    storage.jobs.settle(job_id, NOW)
    settled = storage.jobs.get(job_id)
    assert settled is not None
    assert 2 == settled.state_version


@everywhere
def test_stopping_keeps_what_ended(storage: Storage) -> None:
    """An ended pod keeps its state, message and reason when its job is stopped, and does not run again."""
    job_id = world.a_running_job(storage, 2, retries=3)
    world.report(storage, job_id, [0], F, message="Command exited with status 1")

    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    storage.jobs.settle(job_id, NOW)

    failed = world.pod(storage, job_id)
    assert (F, K, "Command exited with status 1", 1) == (failed.state, failed.goal, failed.message, failed.run_id)


@everywhere
def test_stopping_some_instances(storage: Storage) -> None:
    """The answer contains the instances of the ranges whose goal changes. Instances that are not queued end at once."""
    job_id = world.a_job(storage, 5)
    storage.admission.mark_pending(job_id, [(1, 1)], 1)

    assert [0, 1, 4] == storage.pods.set_goals(job_id, [(0, 2), (4, 9)], K, NOW, STOP)
    assert [2] == storage.pods.set_goals(job_id, [(0, 3)], K, NOW, STOP)
    assert [] == storage.pods.set_goals(job_id, [(0, 3)], K, NOW, STOP)

    assert [K, P, K, I, K] == world.states(storage, job_id)
    assert STOP == world.pod(storage, job_id, 1).message
    job = storage.jobs.get(job_id)
    assert job is not None
    assert JobState.SUCCEEDED == job.goal


@everywhere
def test_starting_stopped_instances(storage: Storage) -> None:
    """Ended instances have a new run at once, and killed ones after the kill. Running ones continue, and the rest stays
    stopped."""
    job_id = world.a_running_job(storage, 4)
    storage.pods.set_goals(job_id, [(0, 3)], K, NOW, STOP)
    world.report(storage, job_id, [0], K)
    storage.host_pods.mark_killing(job_id, 1)
    assert [K, KILLING, R, R] == world.states(storage, job_id)

    assert [0, 1, 2] == storage.pods.set_goals(job_id, [(0, 4)], S, NOW, "Task start API request")

    assert [I, KILLING, R, R] == world.states(storage, job_id)
    assert [(2, 2), (1, 2), (1, 1), (1, 1)] == [(p.run_id, p.desired_run_id) for p in world.pods(storage, job_id)]
    assert [S] * 4 == [p.goal for p in world.pods(storage, job_id)]
    assert "Task start API request" == world.pod(storage, job_id).message
    world.report(storage, job_id, [1], K)
    storage.jobs.settle(job_id, NOW)
    assert (I, 2) == (world.pod(storage, job_id, 1).state, world.pod(storage, job_id, 1).run_id)


@everywhere
def test_starting_an_instance_of_a_stopping_job_revives_the_job(storage: Storage) -> None:
    """The job has its former goal again, and the other instances still end."""
    job_id = world.a_running_job(storage, 2)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert [1] == storage.pods.set_goals(job_id, [(1, 1)], S, NOW, "start")

    progress = storage.jobs.settle(job_id, NOW)
    job = storage.jobs.get(job_id)
    assert job is not None
    assert (JobState.SUCCEEDED, JobState.RUNNING, 1) == (job.goal, progress.state, progress.kill_count)


@everywhere
def test_a_stopped_service_is_started_again(storage: Storage) -> None:
    """A service returns from KILLED with a new run for each pod."""
    job_id = world.a_running_job(storage, 2, type_=JobType.SERVICE)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [0, 1], K)
    assert JobState.KILLED == world.settle_all(storage, job_id).state

    job = storage.jobs.set_goal(job_id, JobState.RUNNING, NOW)

    assert job is not None
    assert (JobState.PENDING, JobState.RUNNING, 3, 0) == (
        job.state,
        job.goal,
        job.desired_state_version,
        job.completed_ns,
    )
    assert 2 == storage.jobs.settle(job_id, NOW).admit_count
    assert [(I, R, 2)] * 2 == [(p.state, p.goal, p.run_id) for p in world.pods(storage, job_id)]


@everywhere
def test_waiting_pods_take_a_newer_run_when_they_launch(storage: Storage) -> None:
    """A restarted pod keeps its place while it is queued or admitted, and launches only as the new run."""
    job_id = world.a_job(storage, 2)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 1)])

    assert [0, 1] == storage.pods.want_new_runs(job_id, [(0, 2)])

    assert 0 == storage.jobs.settle(job_id, NOW).kill_count
    assert [READY, P] == world.states(storage, job_id)
    [gang] = storage.pods.ready_gangs(job_id, 10)
    assert ((0, 2),) == gang.pods
    assert set() == storage.host_pods.mark_launched(job_id, [(0, 1, "host", "agent", {})], NOW)
    assert {0} == storage.host_pods.mark_launched(job_id, [(0, 2, "host", "agent", {})], NOW)
    assert (LAUNCHED, 2, 2, 1) == (
        world.pod(storage, job_id).state,
        world.pod(storage, job_id).run_id,
        world.pod(storage, job_id).desired_run_id,
        world.pod(storage, job_id).prev_run_id,
    )


@everywhere
def test_restarting_what_ended_runs_it_again(storage: Storage) -> None:
    """A pod of an active job starts over even if it succeeded or has no attempts left."""
    job_id = world.a_running_job(storage, 3)
    world.report(storage, job_id, [0], S)
    world.report(storage, job_id, [1], F)
    storage.jobs.settle(job_id, NOW)

    assert [0, 1] == storage.pods.want_new_runs(job_id, [(0, 2)])

    assert 2 == storage.jobs.settle(job_id, NOW).admit_count
    assert [(I, 2), (I, 2), (R, 1)] == [(p.state, p.run_id) for p in world.pods(storage, job_id)]


@everywhere
def test_a_restart_can_say_why(storage: Storage) -> None:
    """An eviction leaves message, reason and termination, and the pod runs again after its kill."""
    job_id = world.a_running_job(storage, 1)

    storage.pods.want_new_runs(
        job_id,
        [(0, 1)],
        message="evicting running task",
        reason="EvictionReason_PREEMPTION",
        termination=TerminationReason.PREEMPTED_RESOURCES,
    )

    evicted = world.pod(storage, job_id)
    assert ("evicting running task", "EvictionReason_PREEMPTION") == (evicted.message, evicted.reason)
    assert evicted.termination is not None
    assert TerminationReason.PREEMPTED_RESOURCES == evicted.termination.reason


@everywhere
def test_stopped_instances_are_not_restarted(storage: Storage) -> None:
    """A restart passes over pods whose goal is KILLED."""
    job_id = world.a_running_job(storage, 2)
    storage.pods.set_goals(job_id, [(0, 1)], K, NOW, STOP)

    assert [1] == storage.pods.want_new_runs(job_id, [(0, 2)])


@everywhere
def test_restart_hurries_a_waiting_service(storage: Storage) -> None:
    """A pod in backoff runs at once when it is restarted."""
    job_id = world.a_running_job(storage, 1, type_=JobType.SERVICE)
    world.report(storage, job_id, [0], F)
    assert 0 == storage.jobs.settle(job_id, NOW).admit_count

    storage.pods.want_new_runs(job_id, [(0, 1)])

    assert 1 == storage.jobs.settle(job_id, NOW).admit_count
    assert 2 == world.pod(storage, job_id).run_id


def test_events_report_the_story_newest_first(storage: Storage) -> None:
    """Each write is one event, newest first. Events can be read by run or limited in number, and deleted."""
    job_id = world.a_running_job(storage, 1, retries=2)
    world.report(storage, job_id, [0], F)
    storage.jobs.settle(job_id, NOW)
    world.run(storage, job_id)

    newest = [(e.run_id, e.state) for e in storage.pods.events(job_id, 0)]
    assert [(2, R), (2, LAUNCHED), (2, READY), (2, P), (2, I)] == newest
    first = [(1, F), (1, R), (1, LAUNCHED), (1, READY), (1, P), (1, I)]
    assert first == [(e.run_id, e.state) for e in storage.pods.events(job_id, 0, run_id=1)]
    assert newest + first == [(e.run_id, e.state) for e in storage.pods.events(job_id, 0, run_limit=5)]
    assert newest + first == [(e.run_id, e.state) for e in storage.pods.events(job_id, 0, run_limit=0)]
    assert world.pod(storage, job_id).revision == len(newest + first)
    assert 6 == storage.pods.delete_events(job_id, 0, 1)
    assert [] == storage.pods.events(job_id, 0, run_id=1)
    assert PodState.RUNNING == storage.pods.events(job_id, 0)[0].state
