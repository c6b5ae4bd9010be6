"""Writes of the Aurora bridge over a running server of role api: updates, actions on them, and stopped pods."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.update import UpdateState
from services.aurorabridge import pools
from services.aurorabridge.mapping import opaque
from services.aurorabridge.mapping.task_config import task_config_of
from services.aurorabridge.settings import BridgeSettings
from services.aurorabridge.thrift import api
from services.storage.storage import Storage
from tests.conformance.storage.builders import report, settle_all
from tests.conformance.storage.services import roll, turn
from tests.unit.api_service.aurora import (
    GPU_POOL,
    INVALID,
    POOL,
    THERMOS,
    Bridge,
    Make,
    Pools,
    finish,
    jobs_named,
    other_request,
    refusal,
    runs,
    states,
    updates,
)
from tests.unit.aurorabridge.scenario import KEY, NAME, task_config, thermos_data, update_request

pytestmark = pytest.mark.slow

# -- start ---------------------------------------------------------------------------------------------------------


async def test_a_start_creates_the_job(bridge: Bridge, storage: Storage) -> None:
    """The first start creates a job in the bridge's pool, whose update has the words of the request."""
    metadata = [api.Metadata(key="ticket", value="1")]
    update_id = await bridge.start(update_request(metadata=metadata), "first deploy")
    (update,) = updates(storage)
    (job_id,) = jobs_named(storage)
    job = storage.jobs.get(job_id)

    assert job is not None
    assert (POOL, 3, NAME) == (job.respool_id, job.instance_count, job.name)
    data = opaque.decode(update.opaque_data)
    assert (update_id, (), (("ticket", "1"),), "first deploy") == (
        data.update_id,
        data.actions,
        data.metadata,
        data.message,
    )
    assert (1, 1, 1, False) == (
        update.spec.batch_size,
        update.spec.max_instance_attempts,
        update.spec.max_failure_instances,
        update.spec.start_paused,
    )
    assert UpdateState.SUCCEEDED is finish(storage).state


async def test_a_start_replaces_the_spec(bridge: Bridge, storage: Storage) -> None:
    """A second start replaces the spec with the settings of its request, and starts stopped pods."""
    first = await bridge.start()
    finish(storage)
    second = await bridge.start(other_request(4, updateGroupSize=2, rollbackOnFailure=True))
    update = finish(storage)

    assert first != second
    assert [{0, 1, 2}, {3}] == [update.updated, update.added]
    assert (2, True, True) == (update.spec.batch_size, update.spec.rollback_on_failure, update.spec.start_pods)


async def test_an_equal_request_in_another_order_restarts_nothing(make_bridge: Make, storage: Storage) -> None:
    """Thermos's data are compared, too."""
    bridge = make_bridge(settings=THERMOS)
    metadata = [api.Metadata(key=key, value="1") for key in "abc"]
    await bridge.start(update_request(task_config(metadata=metadata)))
    finish(storage)
    data = thermos_data(zone="z", cluster="c")
    assert data != thermos_data()
    other = api.ExecutorConfig(name="AuroraExecutor", data=" " + thermos_data())
    await bridge.start(update_request(task_config(metadata=metadata[::-1], executorConfig=other)))
    update = finish(storage)

    assert (UpdateState.SUCCEEDED, frozenset(), frozenset()) == (update.state, update.updated, update.added)
    assert {0: 1, 1: 1, 2: 1} == runs(storage)


async def test_a_new_start_overwrites_the_current_update(bridge: Bridge, storage: Storage) -> None:
    """The older update is ABORTED when a new one starts."""
    first = await bridge.start()
    turn(storage, jobs_named(storage)[0])
    second = await bridge.start(other_request())
    finish(storage)

    assert [(first, UpdateState.ABORTED), (second, UpdateState.SUCCEEDED)] == [
        (opaque.decode(update.opaque_data).update_id, update.state) for update in updates(storage)
    ]


async def test_the_same_start_again_overwrites_it_too(bridge: Bridge, storage: Storage) -> None:
    """A client that has read the answer asks for a new update; equal instances are not restarted."""
    first = await bridge.start(update_request())
    turn(storage, jobs_named(storage)[0])
    second = await bridge.start(update_request())
    finish(storage)

    assert first != second
    assert [UpdateState.ABORTED, UpdateState.SUCCEEDED] == [update.state for update in updates(storage)]
    assert {1} == set(runs(storage).values())


async def test_a_job_that_was_deleted_is_created_again(bridge: Bridge, storage: Storage) -> None:
    """A deleted job leaves its name, and the next start creates another job."""
    await bridge.start()
    (first,) = jobs_named(storage)
    finish(storage)
    await bridge.call("killTasks", job=KEY)
    settle_all(storage, first)
    for pod, *_ in storage.host_pods.mark_killing(first, 10):
        report(storage, first, [pod.instance_id], PodState.KILLED)
    settle_all(storage, first)
    storage.jobs.delete(first)
    second = await bridge.start()

    assert first != jobs_named(storage)[0]
    assert second == opaque.decode(updates(storage)[-1].opaque_data).update_id


async def test_a_job_that_is_being_deleted_does_not_prevent_another(bridge: Bridge, storage: Storage) -> None:
    """Pods of the old job may take their time to end; calls are about the new job."""
    old = await bridge.start()
    (first,) = jobs_named(storage)
    finish(storage)
    storage.jobs.set_service_goal(first, None, JobState.DELETED, True, 1)
    assert f"job {NAME} not found" == (await refusal(bridge.steer("pauseJobUpdate", old)))[1]
    new = await bridge.start()
    await bridge.steer("pauseJobUpdate", new)

    assert 2 == len(jobs_named(storage))
    assert UpdateState.PAUSED is storage.updates.of_job(jobs_named(storage)[0])[0].state


async def test_gpus_use_the_pool_of_gpus(bridge: Bridge, storage: Storage) -> None:
    """A job that asks for gpus is created in the pool of gpus."""
    resources = [api.Resource(numCpus=1), api.Resource(ramMb=64), api.Resource(numGpus=1)]
    await bridge.start(update_request(task_config(resources=resources)))
    job = storage.jobs.get(jobs_named(storage)[0])

    assert GPU_POOL == getattr(job, "respool_id", "")


async def test_the_revocable_tier_is_accepted(bridge: Bridge, storage: Storage) -> None:
    """Jobs of this tier are preemptible and revocable."""
    await bridge.start(update_request(task_config(tier="revocable", priority=3)))
    job = storage.jobs.get(jobs_named(storage)[0])

    assert job is not None
    assert (3, True, True, 1) == (
        job.sla.priority,
        job.sla.preemptible,
        job.sla.revocable,
        job.sla.maximum_unavailable_instances,
    )


async def test_a_pool_that_is_missing_is_created(
    make_bridge: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up is repeated while the resource manager is away."""
    monkeypatch.setattr(pools, "RETRY_S", 0.01)
    missing = Pools(storage, {})
    missing.unavailable = 2
    await make_bridge(pools=missing).start()
    (config,) = missing.created

    assert ("AuroraBridge", ROOT_POOL_ID, 10, 30) == (
        config.name,
        config.parent.value,
        config.controllerLimit.maxPercent,
        config.slackLimit.maxPercent,
    )
    assert [("cpu", 12, 12, 1), ("memory", 6144, 6144, 1), ("disk", 10240, 20480, 1), ("gpu", 0, 0, 1)] == [
        (one.kind, one.reservation, one.limit, one.share) for one in config.resources
    ]


async def test_a_pool_that_stays_away_is_an_error(
    make_bridge: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last error of the look-up is the answer when retries did not help."""
    monkeypatch.setattr(pools, "RETRIED_S", 0)
    missing = Pools(storage, {})
    missing.unavailable = 1

    with pytest.raises(grpc.aio.AioRpcError, match="no leader"):
        await make_bridge(pools=missing).start()


async def test_a_pool_below_another_is_not_created(make_bridge: Make, storage: Storage) -> None:
    """The bridge does not make parents of pools."""
    bridge = make_bridge(settings=BridgeSettings(pool="/a/b"))

    assert "only pools below the root" in (await refusal(bridge.start()))[1]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (update_request(task_config(constraints=[api.Constraint(name="rack")])), "constraint rack"),
        (other_request(updateGroupSize=-1), "updateGroupSize is -1"),
        (None, "no taskConfig"),
    ],
)
async def test_a_request_that_is_refused_changes_nothing(
    make_bridge: Make, storage: Storage, wanted: Any, text: str
) -> None:
    """The bridge does not create the pool either."""
    missing = Pools(storage, {})
    bridge = make_bridge(pools=missing)

    assert text in (await refusal(bridge.call("startJobUpdate", request=wanted)))[1]
    assert ([], []) == (missing.created, jobs_named(storage))


# -- pinned --------------------------------------------------------------------------------------------------------


async def test_a_pinned_update_touches_the_named_instances(bridge: Bridge, storage: Storage) -> None:
    """Other instances keep their run and their configuration."""
    await bridge.start()
    finish(storage)
    pinned = other_request(updateOnlyTheseInstances=[api.Range(first=1, last=1)])
    await bridge.start(pinned)
    update = finish(storage)

    assert (frozenset({1}), {0: 1, 1: 2, 2: 1}) == (update.updated, runs(storage))


async def test_stopped_instances_start_if_they_are_named(bridge: Bridge, storage: Storage) -> None:
    """Instance 2 is stopped, too, and stays so."""
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=[1, 2])
    turn(storage, jobs_named(storage)[0])
    assert [PodState.RUNNING, PodState.KILLED, PodState.KILLED] == states(storage)

    await bridge.start(
        update_request(settings=api.JobUpdateSettings(updateOnlyTheseInstances=[api.Range(first=0, last=1)]))
    )
    update = finish(storage)

    assert {1} == update.updated
    assert [PodState.RUNNING, PodState.RUNNING, PodState.KILLED] == states(storage)
    await bridge.start(update_request(settings=api.JobUpdateSettings()))  # the label of instance 1 stays
    assert {2} == finish(storage).updated


async def test_instances_that_are_being_stopped_start_again(bridge: Bridge, storage: Storage) -> None:
    """A pod that still runs, but will be killed, does not count as running."""
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=[1])
    assert [PodState.RUNNING] * 3 == states(storage)
    await bridge.start(update_request(settings=api.JobUpdateSettings()))

    assert {1} == finish(storage).updated
    assert [PodState.RUNNING] * 3 == states(storage)


# -- actions -------------------------------------------------------------------------------------------------------


async def test_pause_resume_and_abort(bridge: Bridge, storage: Storage) -> None:
    """Each call changes the state of the current update and keeps its opaque data."""
    update_id = await bridge.start()
    data = updates(storage)[0].opaque_data
    seen = []
    for method in ("pauseJobUpdate", "resumeJobUpdate", "abortJobUpdate"):
        result = await bridge.steer(method, update_id)
        assert result.getTierConfigResult is not None
        seen.append(updates(storage)[0].state)

    assert [UpdateState.PAUSED, UpdateState.INITIALIZED, UpdateState.ABORTED] == seen
    assert data == updates(storage)[0].opaque_data


@pytest.mark.parametrize(
    "method", ["pauseJobUpdate", "resumeJobUpdate", "abortJobUpdate", "rollbackJobUpdate", "pulseJobUpdate"]
)
async def test_another_update_id_is_refused(bridge: Bridge, method: str) -> None:
    """A call for an update that is not the current one is refused, and so is one for an unknown job."""
    unknown = INVALID if method == "pulseJobUpdate" else api.ResponseCode.ERROR
    assert (unknown, f"job {NAME} not found") == await refusal(bridge.steer(method, "u-1"))
    await bridge.start()

    assert (INVALID, "update id does not match current update") == await refusal(bridge.steer(method, "u-1"))


async def test_a_pulsed_update_waits_for_its_first_pulse(bridge: Bridge, storage: Storage) -> None:
    """The first pulse resumes the update; later ones change nothing."""
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(other_request(blockIfNoPulsesAfterMs=60_000))
    assert UpdateState.PAUSED is updates(storage)[-1].state

    for _ in range(2):
        result = await bridge.steer("pulseJobUpdate", update_id)
        assert api.JobUpdatePulseStatus.OK == result.pulseJobUpdateResult.status
    update = updates(storage)[-1]
    assert (UpdateState.INITIALIZED, ("start_pulsed", "pulse")) == (
        update.state,
        opaque.decode(update.opaque_data).actions,
    )
    await bridge.steer("pauseJobUpdate", update_id)
    await bridge.steer("pulseJobUpdate", update_id)
    assert UpdateState.PAUSED is updates(storage)[-1].state  # a pulse resumes only what awaits the first


async def test_a_resumed_update_has_had_no_pulse(bridge: Bridge, storage: Storage) -> None:
    """A resumed update continues, and its opaque data record no pulse."""
    update_id = await bridge.start(other_request(blockIfNoPulsesAfterMs=1))
    await bridge.steer("resumeJobUpdate", update_id)
    update = updates(storage)[-1]

    assert (UpdateState.INITIALIZED, ("start_pulsed",)) == (update.state, opaque.decode(update.opaque_data).actions)


# -- rollback ------------------------------------------------------------------------------------------------------


async def test_a_rollback_is_an_update_with_the_same_id(bridge: Bridge, storage: Storage) -> None:
    """A rollback is a new update with the earlier spec, without a rollback of its own."""
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(other_request(updateGroupSize=1, rollbackOnFailure=True))
    turn(storage, jobs_named(storage)[0])
    await bridge.steer("rollbackJobUpdate", update_id)
    back = finish(storage)

    assert (update_id, ("rollback",)) == (lambda data: (data.update_id, data.actions))(opaque.decode(back.opaque_data))
    assert (UpdateState.SUCCEEDED, False, False, 1) == (
        back.state,
        back.spec.rollback_on_failure,
        back.spec.start_paused,
        back.spec.batch_size,
    )
    assert UpdateState.ABORTED is updates(storage)[-2].state
    spec = stateless_pb2.JobSpec.FromString(storage.configs.job_spec(back.job_id, back.config_version))
    assert task_config("sleep 100").executorConfig.name == task_config_of(spec.default_spec, spec).executorConfig.name
    assert "sleep 100" == spec.default_spec.containers[0].entrypoint.value


async def test_an_update_that_fails_rolls_itself_back(bridge: Bridge, storage: Storage) -> None:
    """The automatic rollback is the same update."""
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(other_request(updateGroupSize=1, rollbackOnFailure=True))
    roll(storage, jobs_named(storage)[0], broken_version=2)
    update = updates(storage)[-1]

    assert (2, UpdateState.ROLLED_BACK, update_id) == (
        len(updates(storage)),
        update.state,
        opaque.decode(update.opaque_data).update_id,
    )


async def test_a_rollback_of_an_update_that_awaits_a_pulse_awaits_it_too(bridge: Bridge, storage: Storage) -> None:
    """The rollback is paused until the first pulse."""
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(other_request(blockIfNoPulsesAfterMs=1))
    await bridge.steer("rollbackJobUpdate", update_id)
    assert UpdateState.PAUSED is updates(storage)[-1].state

    await bridge.steer("pulseJobUpdate", update_id)
    update = updates(storage)[-1]
    assert (UpdateState.INITIALIZED, ("start_pulsed", "rollback", "pulse")) == (
        update.state,
        opaque.decode(update.opaque_data).actions,
    )


async def test_a_rollback_of_a_creation_removes_all_instances(bridge: Bridge, storage: Storage) -> None:
    """There was no spec before the creation, so the job ends with no instances."""
    update_id = await bridge.start()
    turn(storage, jobs_named(storage)[0])
    await bridge.steer("rollbackJobUpdate", update_id)
    update = finish(storage)
    job = storage.jobs.get(jobs_named(storage)[0])

    assert job is not None
    assert 0 == job.instance_count
    assert (UpdateState.SUCCEEDED, {}) == (update.state, runs(storage))


async def test_a_rollback_of_an_ended_update_is_refused(bridge: Bridge, storage: Storage) -> None:
    """The refusal names the states in which an update can be rolled back."""
    update_id = await bridge.start()
    finish(storage)

    assert (
        INVALID,
        "invalid rollback: update must be in {ROLLING_FORWARD, ROLL_FORWARD_PAUSED, ROLL_FORWARD_AWAITING_PULSE}",
    ) == await refusal(bridge.steer("rollbackJobUpdate", update_id))


async def test_a_rollback_is_not_rolled_back(bridge: Bridge, storage: Storage) -> None:
    """A second rollback of an update is refused."""
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(other_request())
    await bridge.steer("rollbackJobUpdate", update_id)

    assert "invalid rollback" in (await refusal(bridge.steer("rollbackJobUpdate", update_id)))[1]
    assert len(updates(storage)) == 3


# -- kill ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [None, [], [2, 0, 1]])
async def test_all_instances_are_the_job(bridge: Bridge, storage: Storage, instances: list[int] | None) -> None:
    """No instances, and all of them, mean the job."""
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=instances, message="away")
    job = storage.jobs.get(jobs_named(storage)[0])

    assert job is not None
    assert JobState.KILLED is job.goal


async def test_named_instances_are_stopped_with_one_call(bridge: Bridge, storage: Storage) -> None:
    """Other instances keep running."""
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=[0, 2])
    turn(storage, jobs_named(storage)[0])

    assert [PodState.KILLED, PodState.RUNNING, PodState.KILLED] == states(storage)


async def test_tasks_that_are_not_there_are_refused(bridge: Bridge, storage: Storage) -> None:
    """An unknown job and an instance beyond the job's count are refused, and nothing is stopped."""
    assert (api.ResponseCode.ERROR, f"job {NAME} not found") == await refusal(bridge.call("killTasks", job=KEY))
    await bridge.start()
    finish(storage)

    assert (
        "has no instance 7: it has 3 instances"
        in (await refusal(bridge.call("killTasks", job=KEY, instances=[0, 7])))[1]
    )
    assert [PodState.RUNNING] * 3 == states(storage)
