"""Updates of services in storage: requests, progress, steering and rollback."""

from __future__ import annotations

import pytest

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from peloton.lifecycle.sla import Grant
from peloton.model.admission import EvictionOrder
from peloton.model.ids import EntityVersion, PodId, new_job_id
from peloton.model.job import JobState
from peloton.model.pod import PodState, TerminationReason
from peloton.model.update import UpdateAct, UpdateKey, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, K, R
from tests.conformance.storage.services import a_service, roll, service_config, turn, update, versions
from tests.present import require
from tests.reasons import PREEMPTED

ONE_BY_ONE = UpdateSpec(batch_size=1)


def test_a_service_is_created_by_an_update(storage: Storage) -> None:
    """The update adds all instances. The job's versions are 1-1-1 and its update has succeeded."""
    job_id = a_service(storage, 3)
    job = storage.jobs.get(job_id)
    assert job is not None
    done = storage.updates.get(job.update_id)
    assert done is not None
    assert ("1-1-1", JobState.RUNNING, [R] * 3) == (str(job.entity_version), job.state, world.states(storage, job_id))
    assert (UpdateState.SUCCEEDED, frozenset({0, 1, 2}), frozenset({0, 1, 2})) == (done.state, done.added, done.done)
    assert b"spec" == storage.configs.job_spec(job_id)
    assert [job_id] == storage.search.services_named("train")


def test_creating_twice_is_refused(storage: Storage) -> None:
    """A job id is used once."""
    job_id = a_service(storage)
    config = service_config()
    with pytest.raises(AlreadyExists):
        storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", UpdateSpec(), "", NOW)


def test_a_batch_goes_at_a_time(storage: Storage) -> None:
    """Two of five instances are down at any time, and in the end all run the new version."""
    job_id = a_service(storage, 5)
    job = update(storage, job_id, service_config(5, "v2"), UpdateSpec(batch_size=2))
    assert "2-1-2" == str(job.entity_version)
    for _ in range(20):
        progress = turn(storage, job_id, starts=False)
        away = [p.instance_id for p in world.pods(storage, job_id) if p.state is not R]
        assert len(away) <= 2
        turn(storage, job_id)
        if progress.is_finished:
            break
    assert dict.fromkeys(range(5), 2) == versions(storage, job_id)
    assert dict.fromkeys(range(5), 2) == world.runs_of(storage, job_id)


def test_what_does_not_change_is_not_touched(storage: Storage) -> None:
    """Another order of labels is no change, nor is an unchanged configuration of an instance. Such instances take the
    new version's number and continue to run."""
    job_id = a_service(storage, 3)
    config = service_config(3)
    config.instanceConfig[1].command.value = "other"
    update(storage, job_id, config)
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert {0: 1, 1: 2, 2: 1} == world.runs_of(storage, job_id)
    assert {0: 2, 1: 2, 2: 2} == versions(storage, job_id)


def test_overrides_end_with_their_version(storage: Storage) -> None:
    """A new configuration without an override removes the older one."""
    job_id = a_service(storage, 2)
    config = service_config(2)
    config.instanceConfig[1].command.value = "other"
    update(storage, job_id, config)
    roll(storage, job_id)
    assert "other" == storage.configs.task_configs(job_id, 2, [1])[1].command.value
    update(storage, job_id, service_config(2))
    roll(storage, job_id)
    assert "v1" == storage.configs.task_configs(job_id, 3, [1])[1].command.value


def test_growing_and_shrinking(storage: Storage) -> None:
    """Instances are added and removed. An instance that returns continues its run numbers and keeps its history."""
    job_id = a_service(storage, 3)
    update(storage, job_id, service_config(1))
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert {0: 1} == world.runs_of(storage, job_id)
    update(storage, job_id, service_config(4))
    roll(storage, job_id)
    assert {0: 1, 1: 2, 2: 2, 3: 1} == world.runs_of(storage, job_id)
    assert {1, 2} == {event.run_id for event in storage.pods.events(job_id, 2, run_limit=0)}


def test_failures_turn_it_back(storage: Storage) -> None:
    """The older configuration becomes the newest version, and the instances that had moved go back to it."""
    job_id = a_service(storage, 4)
    spec = UpdateSpec(batch_size=1, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)
    update(storage, job_id, service_config(4, "v2"), spec)
    progress = roll(storage, job_id, broken_version=2)
    assert UpdateState.ROLLED_BACK is progress.state
    assert ({0: 3, 1: 3, 2: 3, 3: 3}, 3) == (
        versions(storage, job_id),
        require(storage.jobs.get(job_id)).config_version,
    )
    assert {0: 3, 1: 1, 2: 1, 3: 1} == world.runs_of(storage, job_id)
    assert "v1" == storage.configs.task_configs(job_id, 3, [0])[0].command.value


def test_a_rollback_is_an_act_of_its_own(storage: Storage) -> None:
    """The step that finds too many failures changes no instance, a paused update is not rolled back, and a repeated
    call does nothing."""
    job_id = a_service(storage, 4)
    spec = UpdateSpec(batch_size=1, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)
    update(storage, job_id, service_config(4, "v2"), spec)
    storage.updates.roll_back_failed(job_id, NOW)
    turn(storage, job_id, broken_version=2)
    for _ in range(2):
        assert 1 == storage.updates.advance(job_id, NOW).rolls_back_to
    assert {0: 2, 1: 1, 2: 1, 3: 1} == versions(storage, job_id)
    storage.updates.steer(job_id, None, UpdateAct.PAUSE, None, NOW)
    storage.updates.roll_back_failed(job_id, NOW)
    assert 2 == require(storage.jobs.get(job_id)).config_version
    storage.updates.steer(job_id, None, UpdateAct.RESUME, None, NOW)
    for _ in range(2):
        storage.updates.roll_back_failed(job_id, NOW)
        assert 3 == require(storage.jobs.get(job_id)).config_version
    assert UpdateState.ROLLED_BACK is roll(storage, job_id, broken_version=2).state
    assert {0: 3, 1: 3, 2: 3, 3: 3} == versions(storage, job_id)


def test_an_update_is_rolled_back_once(storage: Storage) -> None:
    """A manual rollback of an update that is rolling back by itself does not install the version that failed."""
    job_id = a_service(storage, 2)
    spec = UpdateSpec(batch_size=1, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)
    update_id = update(storage, job_id, service_config(2, "v2"), spec).update_id
    turn(storage, job_id, broken_version=2)
    storage.updates.roll_back_failed(job_id, NOW)
    for steps in (lambda: None, lambda: roll(storage, job_id, broken_version=2)):
        steps()
        with pytest.raises(InvalidArgument, match=f"update {update_id} is rolled back already"):
            storage.updates.roll_back(update_id, UpdateKey(), NOW)
    assert {0: 3, 1: 3} == versions(storage, job_id)


def test_failures_without_rollback_stop_it(storage: Storage) -> None:
    """The update has failed, and its instances stay where they are."""
    job_id = a_service(storage, 4)
    spec = UpdateSpec(batch_size=1, max_instance_attempts=1, max_failure_instances=1)
    update(storage, job_id, service_config(4, "v2"), spec)
    assert UpdateState.FAILED is roll(storage, job_id, broken_version=2).state
    assert {0: 2, 1: 1, 2: 1, 3: 1} == versions(storage, job_id)


def test_in_place(storage: Storage) -> None:
    """Each instance in flight requests its former host."""
    job_id = a_service(storage, 4)
    pod_hosts = {p.instance_id: p.host for p in world.pods(storage, job_id)}
    update(storage, job_id, service_config(4, "v2"), UpdateSpec(batch_size=1, in_place=True))
    storage.updates.advance(job_id, NOW)
    assert (pod_hosts[0], "") == (
        world.pod(storage, job_id, 0).desired_host,
        world.pod(storage, job_id, 1).desired_host,
    )


def test_pods_in_a_queue_leave_it_for_the_new_configuration(storage: Storage) -> None:
    """A queued pod leaves its queue, because resmgr counts the old resources for it."""
    job_id = new_job_id()
    config = service_config(2)
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", UpdateSpec(), "", NOW)
    storage.updates.advance(job_id, NOW)
    world.settle_all(storage, job_id)
    storage.admission.mark_pending(job_id, storage.admission.queueable(job_id, 10), 1)
    update(storage, job_id, service_config(2, "v2"))
    storage.updates.advance(job_id, NOW)
    progress = storage.jobs.settle(job_id, NOW)
    assert (2, 2) == (progress.kill_count, progress.queued_kill_count)
    assert [(0, 2, PodState.PENDING)] == storage.admission.kill_queued(job_id, NOW)
    assert {0: 2, 1: 2} == versions(storage, job_id)
    assert [PodState.INITIALIZED] * 2 == world.states(storage, job_id)


def test_restart(storage: Storage) -> None:
    """A restart is a new version of the same configuration. The named instances run again, stopped ones too."""
    job_id = a_service(storage, 4)
    storage.pods.set_goals(job_id, [(2, 1)], K, NOW, "stop")
    turn(storage, job_id)
    update(storage, job_id, None, type=UpdateType.RESTART, instances=[1, 2, 9])
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert ({0: 1, 1: 2, 2: 2, 3: 1}, [R] * 4) == (world.runs_of(storage, job_id), world.states(storage, job_id))


def test_stop_and_start(storage: Storage) -> None:
    """A rolling stop and start covers some instances."""
    job_id = a_service(storage, 3)
    update(storage, job_id, None, ONE_BY_ONE, type=UpdateType.STOP, instances=[0, 1])
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert [K, K, R] == world.states(storage, job_id)
    update(storage, job_id, None, ONE_BY_ONE, type=UpdateType.START)
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert ([R] * 3, {0: 2, 1: 2, 2: 1}) == (world.states(storage, job_id), world.runs_of(storage, job_id))


def test_stopped_instances_stay_stopped(storage: Storage) -> None:
    """An update gives stopped instances its version only, unless it has to start them."""
    job_id = a_service(storage, 2)
    storage.pods.set_goals(job_id, [(0, 1)], K, NOW, "stop")
    turn(storage, job_id)
    update(storage, job_id, service_config(2, "v2"))
    roll(storage, job_id)
    assert ([K, R], {0: 2, 1: 2}) == (world.states(storage, job_id), versions(storage, job_id))
    update(storage, job_id, service_config(2, "v3"), UpdateSpec(start_pods=True))
    roll(storage, job_id)
    assert [R, R] == world.states(storage, job_id)


def test_pause_resume_abort(storage: Storage) -> None:
    """Each act raises the workflow version. A paused update begins nothing, and an aborted one ends where it is."""
    job_id = a_service(storage, 3)
    job = update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE)
    job = storage.updates.steer(job_id, job.entity_version, UpdateAct.PAUSE, "note", NOW)
    progress = storage.updates.advance(job_id, NOW)
    assert (0, "an operator to resume it") == (progress.current_count, progress.waiting_for)
    job = storage.updates.steer(job_id, job.entity_version, UpdateAct.RESUME, None, NOW)
    turn(storage, job_id)
    job = storage.updates.steer(job_id, job.entity_version, UpdateAct.ABORT, "", NOW)
    done = storage.updates.get(job.update_id)
    assert done is not None
    assert ("2-1-5", UpdateState.ABORTED, "") == (str(job.entity_version), done.state, done.opaque_data)
    turn(storage, job_id)
    assert {0: 2, 1: 1, 2: 1} == versions(storage, job_id)


def test_a_pod_that_was_placed_is_not_launched_with_an_old_version(storage: Storage) -> None:
    """An update arrives between placement and launch. The pod leaves the queue, and launches with the new version."""
    job_id = a_service(storage, 1)
    update(storage, job_id, service_config(1, "v2"))
    turn(storage, job_id, starts=False)
    world.admit(storage, job_id)
    (placed,) = world.ready_pods(storage, job_id)
    update(storage, job_id, service_config(1, "v3"))
    storage.updates.advance(job_id, NOW)

    assert storage.host_pods.mark_launched(job_id, [(*placed, "host1", "agent", {})], NOW) == set()
    assert world.ready_pods(storage, job_id) == []
    roll(storage, job_id)
    assert ([R], {0: 3}) == (world.states(storage, job_id), versions(storage, job_id))


def test_start_paused(storage: Storage) -> None:
    """An update that starts paused begins nothing until it is resumed."""
    job_id = a_service(storage, 2)
    job = update(storage, job_id, service_config(2, "v2"), UpdateSpec(start_paused=True))
    assert not turn(storage, job_id).current_count
    storage.updates.steer(job_id, None, UpdateAct.RESUME, None, NOW)
    roll(storage, job_id)
    assert ({0: 2, 1: 2}, 2) == (versions(storage, job_id), job.config_version)


def test_the_newer_update_wins(storage: Storage) -> None:
    """The update that is overwritten is ABORTED, and its instances continue to the newer version."""
    job_id = a_service(storage, 3)
    first = update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE)
    turn(storage, job_id)
    second = update(storage, job_id, service_config(3, "v3"))
    assert UpdateState.ABORTED is require(storage.updates.get(first.update_id)).state
    roll(storage, job_id)
    assert ({0: 3, 1: 3, 2: 3}, second.update_id) == (
        versions(storage, job_id),
        storage.updates.of_job(job_id)[0].update_id,
    )


def test_asking_twice_changes_nothing(storage: Storage) -> None:
    """The same request returns the same id and versions while the update is under way. New opaque data are stored."""
    job_id = a_service(storage, 3)
    first = update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE, opaque="a")
    turn(storage, job_id)
    again = update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE, opaque="a")
    assert (first.update_id, first.entity_version) == (again.update_id, again.entity_version)
    other = update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE, opaque="b")
    assert (first.update_id, "2-1-3") == (other.update_id, str(other.entity_version))


def test_refusals(storage: Storage) -> None:
    """Each refusal has its text, and nothing changes."""
    job_id = a_service(storage, 2)
    before = storage.jobs.get(job_id)
    wrong_type, wrong_pool = service_config(2), service_config(2)
    wrong_type.type = job_pb2.BATCH
    wrong_pool.respoolID.value = "other"
    with pytest.raises(NotFound, match=r"job .* not found"):
        update(storage, new_job_id(), service_config())
    with pytest.raises(Aborted, match="unexpected entity version"):
        update(storage, job_id, service_config(), version=EntityVersion(1, 1, 7))
    with pytest.raises(InvalidArgument, match="invalid job configuration version"):
        update(storage, job_id, service_config(), version=9)
    with pytest.raises(InvalidArgument, match="job type is immutable"):
        update(storage, job_id, wrong_type)
    with pytest.raises(InvalidArgument, match="resource pool identifier is immutable"):
        update(storage, job_id, wrong_pool)
    with pytest.raises(InvalidArgument, match="RESTART supported only for service jobs"):
        update(storage, world.a_job(storage, 1), None, type=UpdateType.RESTART)
    assert before == storage.jobs.get(job_id)
    update(storage, job_id, service_config(2, "v2"), ONE_BY_ONE)
    with pytest.raises(InvalidArgument, match="workflow RESTART cannot overwrite workflow UPDATE"):
        update(storage, job_id, None, type=UpdateType.RESTART)
    with pytest.raises(NotFound, match="no workflow found"):
        storage.updates.steer(world.a_job(storage, 1), None, UpdateAct.PAUSE, None, NOW)


def test_ten_updates_are_kept(storage: Storage) -> None:
    """Older updates are deleted with their configurations, unless they are still needed."""
    job_id = a_service(storage, 1)
    for number in range(2, 15):
        update(storage, job_id, service_config(1, f"v{number}"))
        roll(storage, job_id)
    assert list(range(14, 4, -1)) == [one.config_version for one in storage.updates.of_job(job_id)]
    assert [None, "v14"] == [
        config and config.defaultConfig.command.value
        for config in (storage.configs.job_config(job_id, 2), storage.configs.job_config(job_id, 14))
    ]


def test_events_of_an_instance(storage: Storage) -> None:
    """Events of the update and of one instance come newest first, without repetitions."""
    job_id = a_service(storage, 2)
    job = update(storage, job_id, service_config(2, "v2"), ONE_BY_ONE)
    roll(storage, job_id)
    forward, done = UpdateState.ROLLING_FORWARD, UpdateState.SUCCEEDED
    assert [done, forward, UpdateState.INITIALIZED] == [e.state for e in storage.updates.events(job.update_id, 1)]
    assert [done, forward, UpdateState.INITIALIZED] == [e.state for e in storage.updates.events(job.update_id)]
    assert [done] == [e.state for e in storage.updates.events(job.update_id, 1, limit=1)]


def test_difference(storage: Storage) -> None:
    """The difference lists the instances that an update would add, change and remove, and changes nothing."""
    job_id = a_service(storage, 3)
    found = storage.updates.difference(job_id, None, service_config(5, "v2"))
    assert [{3, 4}, {0, 1, 2}, set()] == [found.added, found.updated, found.removed]


def test_delete(storage: Storage) -> None:
    """A service is deleted only when it is stopped, or by force. Its records are unwanted when all pods have ended."""
    job_id = a_service(storage, 2)
    with pytest.raises(Aborted, match="job is not stopped"):
        storage.jobs.set_service_goal(job_id, None, JobState.DELETED, False, NOW)
    job = storage.jobs.set_service_goal(job_id, None, JobState.DELETED, True, NOW)
    with pytest.raises(InvalidArgument, match="job is going to be deleted"):
        update(storage, job_id, service_config())
    assert "1-2-1" == str(job.entity_version)
    turn(storage, job_id)
    assert storage.jobs.settle(job_id, NOW).is_unwanted
    storage.jobs.delete(job_id)
    assert (None, []) == (storage.jobs.get(job_id), storage.updates.of_job(job_id))


def test_stop_and_start_the_job(storage: Storage) -> None:
    """All pods end and return. Each act raises the version of the wanted state."""
    job_id = a_service(storage, 2)
    storage.jobs.set_service_goal(job_id, None, JobState.KILLED, False, NOW)
    turn(storage, job_id)
    assert JobState.KILLED is storage.jobs.settle(job_id, NOW).state
    job = storage.jobs.set_service_goal(job_id, None, JobState.RUNNING, False, NOW)
    turn(storage, job_id)
    assert (JobState.RUNNING, "1-3-1") == (storage.jobs.settle(job_id, NOW).state, str(job.entity_version))


def test_the_sla_is_asked_in_one_place(storage: Storage) -> None:
    """One of four instances may be down: one disruption is granted, and no other until it is back. The answers are
    stored."""
    job_id = a_service(storage, 4, maximumUnavailableInstances=1)

    def ask(instances: list[int], checks_sla: bool = True) -> Grant:
        reason = TerminationReason.KILLED_HOST_MAINTENANCE
        return storage.disruptions.disrupt(
            job_id, instances, reason=reason, message="host h1 is drained", checks_sla=checks_sla, now_ns=NOW
        )

    assert ((0,), (1,)) == ((first := ask([0, 1])).granted, first.refused)
    assert () == ask([1]).granted
    assert (0,) == ask([0]).granted  # it is unavailable anyway
    turn(storage, job_id)
    assert (1,) == ask([1]).granted
    assert (2, 3) == ask([2, 3], checks_sla=False).granted
    kept = storage.disruptions.recent(job_id)
    assert [(1, False), (0, True)] == [(d.instance_id, d.granted) for d in kept[-2:]]


def test_watchers_see_services_only(storage: Storage) -> None:
    """Events come in the order of commits, with the job as -1."""
    world.a_job(storage, 3)
    job_id = a_service(storage, 1)
    oldest, newest = storage.watch_log.bounds()
    log = storage.watch_log.after(0, 1_000)
    assert (oldest, newest) == (log[0][0], log[-1][0])
    assert {job_id} == {job for _, job, _ in log}
    assert {-1, 0} == {instance for _, _, instance in log}
    assert [seq for seq, *_ in log] == list(range(oldest, newest + 1))
    world.report(storage, job_id, [0], K)
    assert [(newest + 1, job_id, 0)] == storage.watch_log.after(newest, 10)
    storage.watch_log.prune(newest)
    assert (newest + 1, newest + 1) == storage.watch_log.bounds()


def test_preemption_asks_the_sla(storage: Storage) -> None:
    """One of two evicted instances leaves if the SLA of the service allows one to be down."""
    job_id = a_service(storage, 3, maximumUnavailableInstances=1)
    (result,) = storage.admission.evict([EvictionOrder(job_id, 0, 2, False, PREEMPTED)])
    assert [(0, 1)] == result.leaving
    assert [PodState.PREEMPTING, R, R] == world.states(storage, job_id)
    assert [(1, False), (0, True)] == [(d.instance_id, d.granted) for d in storage.disruptions.recent(job_id)]


def test_each_pod_waits_with_the_shape_of_its_own_configuration(storage: Storage) -> None:
    """Pods of one job have different resources while an update is under way."""
    job_id = a_service(storage, 3)
    config = service_config(3, "v2")
    config.defaultConfig.resource.cpuLimit = 3
    update(storage, job_id, config, ONE_BY_ONE)
    turn(storage, job_id, starts=False)
    world.report(storage, job_id, [2], PodState.FAILED)
    world.settle_all(storage, job_id, NOW + 3_600 * 10**9)
    shapes = storage.admission.waiting_shapes(job_id, 0, 3)
    assert [(0, 1, 3_000), (2, 1, 1_500)] == [(s.start, s.count, s.shape.resources.cpu_milli) for s in shapes]


def test_a_rollout_whose_pods_crash_has_stalled(storage: Storage) -> None:
    """The row has the reason of the last run and the number of failed runs. Nothing rolls back, and progress ends the
    stall."""
    job_id = a_service(storage, 3)
    update_id = update(storage, job_id, service_config(3, "v2"), UpdateSpec(1, progress_deadline_s=60)).update_id
    for _ in range(4):
        turn(storage, job_id, broken_version=2)
    runs = world.runs_of(storage, job_id)
    storage.host_pods.add_output([(PodId(job_id, 0, runs[0]), "no such table")])

    def advance(after_s: int) -> UpdateRecord:
        storage.updates.advance(job_id, NOW + after_s * SECOND)
        found = storage.updates.get(update_id)
        assert found is not None
        return found

    assert (0, "") == ((early := advance(59)).stalled_ns, early.stall_cause)
    assert storage.updates.advance(job_id, NOW + 20 * SECOND).stalls_in_s == 40
    assert ([], 0) == storage.overview.stuck_updates()
    stalled = advance(60)
    failures = world.pod(storage, job_id, 0).failure_count
    assert failures >= 1
    assert (NOW + 60 * SECOND, failures, UpdateState.ROLLING_FORWARD) == (
        stalled.stalled_ns, stalled.failed_run_count, stalled.state,
    )  # fmt: skip
    assert stalled.stall_cause.startswith("instance 0 fails again and again, last on host")
    assert "no such table" in stalled.stall_cause
    ((_, told),), total = storage.overview.stuck_updates()
    assert (1, stalled) == (total, told)
    assert stalled == storage.updates.of_job(job_id)[0] == storage.updates.some([update_id])[update_id]

    world.settle_all(storage, job_id, NOW + 7_200 * SECOND)  # the next run is due
    for _ in range(6):  # it runs well now
        turn(storage, job_id)
    seen = storage.updates.get(update_id)
    assert seen is not None
    assert (0, "", 0) == (seen.stalled_ns, seen.stall_cause, seen.failed_run_count)
    assert ([], 0) == storage.overview.stuck_updates()


def test_a_named_update_alone_is_steered(storage: Storage) -> None:
    """An abort of the former update does not affect the current one."""
    job_id = a_service(storage, 2)
    first = update(storage, job_id, service_config(2, "v2"), ONE_BY_ONE).update_id
    second = update(storage, job_id, service_config(2, "v3"), ONE_BY_ONE).update_id

    with pytest.raises(Aborted, match=f"update {first} is not the latest of job {job_id}, which is {second}"):
        storage.updates.steer(job_id, None, UpdateAct.ABORT, None, NOW, first)
    assert second == storage.updates.steer(job_id, None, UpdateAct.ABORT, None, NOW, second).update_id


def test_a_rollback_with_a_key_is_made_once(storage: Storage) -> None:
    """A repeated rollback is the one under way. It has the former configuration, and the client's data of it."""
    job_id = a_service(storage, 2)
    before = update(storage, job_id, service_config(2, "v2"), ONE_BY_ONE).update_id
    first, second = (storage.updates.roll_back(before, UpdateKey("back"), NOW).update_id for _ in range(2))

    assert first == second != before
    assert (b"spec", 3) == (storage.configs.job_spec(job_id), len(storage.updates.of_job(job_id)))
    with pytest.raises(InvalidArgument, match="only the latest can be rolled back"):
        storage.updates.roll_back(before, UpdateKey(), NOW)
