"""Writes of the Aurora bridge over a running server of role api: updates, actions on them, and stopped pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pools_pb
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec
from peloton.model.update import UpdateRecord, UpdateState
from services.aurorabridge import pools
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping import opaque
from services.aurorabridge.mapping.task_config import task_config_of
from services.aurorabridge.method import Refusal
from services.aurorabridge.settings import DEFAULTS, BridgeSettings
from services.aurorabridge.thrift import api
from services.aurorabridge.writes import METHODS
from services.storage.storage import Storage
from tests.conformance.storage.builders import report, settle_all
from tests.conformance.storage.services import roll, turn
from tests.simulation.pool_changes import config_of
from tests.unit.aurorabridge.scenario import KEY, NAME, task_config, thermos_data, update_request

POOL, GPU_POOL = RespoolId("33333333-3333-3333-3333-333333333333"), RespoolId("44444444-4444-4444-4444-444444444444")
THERMOS = BridgeSettings(thermos="/opt/thermos_executor.pex")
INVALID = api.ResponseCode.INVALID_REQUEST


class Died(Exception):
    """The end of a bridge, as by kill -9."""


class Pools:
    """Pools of the resource manager: the bridge's, which exist from the start or are created."""

    def __init__(self, storage: Storage, known: dict[str, RespoolId]) -> None:
        self._storage, self.known = storage, known
        self.unavailable = 0
        self.created: list[pools_pb.ResourcePoolConfig] = []
        for path, pool_id in known.items():
            resources = tuple(PoolResource(kind, 10**6, UNLIMITED, 1) for kind in RESOURCE_KINDS)
            storage.pools.put(pool_id, config_of(PoolSpec(pool_id, ROOT_POOL_ID, path.strip("/"), resources)))

    async def LookupResourcePoolID(self, request: Any) -> Any:
        if self.unavailable:
            self.unavailable -= 1
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "no leader"
            )
        response = pools_pb.LookupResponse()
        response.id.value = self.known.get(request.path.value, "")
        return response

    async def CreateResourcePool(self, request: Any) -> Any:
        self.created.append(request.config)
        self.known["/" + request.config.name] = POOL
        self._storage.pools.put(POOL, request.config)
        return pools_pb.CreateResponse(result=ResourcePoolID(value=POOL))


class Mortal:
    """A stub whose process dies before or after one of its calls; all stubs of a bridge count together."""

    def __init__(self, stub: Any, calls: Iterator[int], dies: tuple[int, str] | None) -> None:
        self._stub, self._calls, self._dies = stub, calls, dies

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stub, name)
        if name == "ListPods":
            return method

        async def call(request: Any) -> Any:
            number = next(self._calls)
            if self._dies == (number, "before"):
                raise Died
            try:
                return await method(request)
            finally:
                if self._dies == (number, "after"):
                    raise Died

        return call


class Bridge(Backend):
    def __init__(
        self,
        address: str,
        pools: Pools,
        settings: BridgeSettings = DEFAULTS,
        dies: tuple[int, str] | None = None,
    ) -> None:
        super().__init__(address, settings)
        self.numbers = iter(range(1_000))
        self.__dict__["jobs"] = Mortal(self.jobs, self.numbers, dies)
        self.__dict__["pools"] = Mortal(pools, self.numbers, dies)

    async def call(self, method: str, **args: Any) -> Any:
        return await METHODS[method](self, getattr(api.AuroraSchedulerManager, f"{method}_args")(**args))

    async def start(self, request: Any = None, message: str | None = None) -> str:
        """Start an update, and return its id."""
        result = await self.call("startJobUpdate", request=request or update_request(), message=message)
        assert result.startJobUpdateResult.key.job == KEY
        return str(result.startJobUpdateResult.key.id)

    async def steer(self, method: str, update_id: str) -> Any:
        return await self.call(method, key=api.JobUpdateKey(job=KEY, id=update_id))


Make = Callable[..., Bridge]


@pytest.fixture
def bridge_pools(storage: Storage) -> Pools:
    return Pools(storage, {"/AuroraBridge": POOL, "/GPUAuroraBridge": GPU_POOL})


@pytest.fixture
async def make(address: str, bridge_pools: Pools) -> AsyncIterator[Make]:
    """Return a maker of bridges: each is another process."""
    made: list[Bridge] = []

    def new(**more: Any) -> Bridge:
        made.append(Bridge(address, **({"pools": bridge_pools} | more)))
        return made[-1]

    yield new
    for bridge in made:
        await bridge.close()


@pytest.fixture
def bridge(make: Make) -> Bridge:
    return make()


def jobs_named(storage: Storage) -> list[JobId]:
    return storage.search.services_named(NAME)


def updates(storage: Storage) -> list[UpdateRecord]:
    """Return the updates of all jobs of the name, oldest first."""
    found = [update for job_id in jobs_named(storage) for update in storage.updates.of_job(job_id)]
    return sorted(found, key=lambda update: (update.created_ns, update.config_version))


def finish(storage: Storage) -> UpdateRecord:
    """Take the current update to its end, and return it."""
    (job_id, *_) = jobs_named(storage)
    roll(storage, job_id)
    return updates(storage)[-1]


def runs(storage: Storage) -> dict[int, int]:
    (job_id, *_) = jobs_named(storage)
    return {pod.instance_id: pod.run_id for pod in storage.pods.page(job_id, 0, 1_000)}


def states(storage: Storage) -> list[PodState]:
    (job_id, *_) = jobs_named(storage)
    return [pod.state for pod in storage.pods.page(job_id, 0, 1_000)]


async def refusal(call: Any) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code, str(caught.value)


def changed(count: int = 3, **settings: Any) -> Any:
    return update_request(task_config("sleep 200"), count, api.JobUpdateSettings(**settings))


# -- start ---------------------------------------------------------------------------------------------------------


async def test_a_start_creates_the_job(bridge: Bridge, storage: Storage) -> None:
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
    first = await bridge.start()
    finish(storage)
    second = await bridge.start(changed(4, updateGroupSize=2, rollbackOnFailure=True))
    update = finish(storage)

    assert first != second
    assert ({0, 1, 2}, {3}) == (update.updated, update.added)
    assert (2, True, True) == (update.spec.batch_size, update.spec.rollback_on_failure, update.spec.start_pods)


async def test_an_equal_request_in_another_order_restarts_nothing(make: Make, storage: Storage) -> None:
    """Thermos's data are compared, too."""
    bridge = make(settings=THERMOS)
    metadata = [api.Metadata(key=key, value="1") for key in "abc"]
    await bridge.start(update_request(task_config(metadata=metadata)))
    finish(storage)
    data = thermos_data(zone="z", cluster="c")
    assert data != thermos_data()
    other = api.ExecutorConfig(name="AuroraExecutor", data=" " + thermos_data())
    await bridge.start(update_request(task_config(metadata=metadata[::-1], executorConfig=other)))
    update = finish(storage)

    assert (UpdateState.SUCCEEDED, set(), set()) == (update.state, update.updated, update.added)
    assert {0: 1, 1: 1, 2: 1} == runs(storage)


async def test_a_new_start_overwrites_the_current_update(bridge: Bridge, storage: Storage) -> None:
    first = await bridge.start()
    turn(storage, jobs_named(storage)[0])
    second = await bridge.start(changed())
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


async def test_gpus_use_the_pool_of_gpus(bridge: Bridge, storage: Storage) -> None:
    resources = [api.Resource(numCpus=1), api.Resource(ramMb=64), api.Resource(numGpus=1)]
    await bridge.start(update_request(task_config(resources=resources)))
    job = storage.jobs.get(jobs_named(storage)[0])

    assert GPU_POOL == getattr(job, "respool_id", "")


async def test_a_pool_that_is_missing_is_created(make: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up is repeated while the resource manager is away."""
    monkeypatch.setattr(pools, "RETRY_S", 0.01)
    missing = Pools(storage, {})
    missing.unavailable = 2
    await make(pools=missing).start()
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
    make: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "RETRIED_S", 0)
    missing = Pools(storage, {})
    missing.unavailable = 1

    with pytest.raises(grpc.aio.AioRpcError, match="no leader"):
        await make(pools=missing).start()


async def test_a_pool_below_another_is_not_created(make: Make, storage: Storage) -> None:
    bridge = make(settings=BridgeSettings(pool="/a/b"))

    assert "only pools below the root" in (await refusal(bridge.start()))[1]


# -- pinned --------------------------------------------------------------------------------------------------------


async def test_a_pinned_update_touches_the_named_instances(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    pinned = changed(updateOnlyTheseInstances=[api.Range(first=1, last=1)])
    await bridge.start(pinned)
    update = finish(storage)

    assert ({1}, {0: 1, 1: 2, 2: 1}) == (update.updated, runs(storage))


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


# -- actions -------------------------------------------------------------------------------------------------------


async def test_pause_resume_and_abort(bridge: Bridge, storage: Storage) -> None:
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
    unknown = INVALID if method == "pulseJobUpdate" else api.ResponseCode.ERROR
    assert (unknown, f"job {NAME} not found") == await refusal(bridge.steer(method, "u-1"))
    await bridge.start()

    assert (INVALID, "update id does not match current update") == await refusal(bridge.steer(method, "u-1"))


async def test_a_pulsed_update_waits_for_its_first_pulse(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(changed(blockIfNoPulsesAfterMs=60_000))
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
    update_id = await bridge.start(changed(blockIfNoPulsesAfterMs=1))
    await bridge.steer("resumeJobUpdate", update_id)
    update = updates(storage)[-1]

    assert (UpdateState.INITIALIZED, ("start_pulsed",)) == (update.state, opaque.decode(update.opaque_data).actions)


# -- rollback ------------------------------------------------------------------------------------------------------


async def test_a_rollback_is_an_update_with_the_same_id(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(changed(updateGroupSize=1, rollbackOnFailure=True))
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


async def test_a_rollback_of_an_update_that_awaits_a_pulse_awaits_it_too(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(changed(blockIfNoPulsesAfterMs=1))
    await bridge.steer("rollbackJobUpdate", update_id)
    assert UpdateState.PAUSED is updates(storage)[-1].state

    await bridge.steer("pulseJobUpdate", update_id)
    update = updates(storage)[-1]
    assert (UpdateState.INITIALIZED, ("start_pulsed", "rollback", "pulse")) == (
        update.state,
        opaque.decode(update.opaque_data).actions,
    )


async def test_a_rollback_of_a_creation_removes_all_instances(bridge: Bridge, storage: Storage) -> None:
    update_id = await bridge.start()
    turn(storage, jobs_named(storage)[0])
    await bridge.steer("rollbackJobUpdate", update_id)
    update = finish(storage)
    job = storage.jobs.get(jobs_named(storage)[0])

    assert job is not None
    assert 0 == job.instance_count
    assert (UpdateState.SUCCEEDED, {}) == (update.state, runs(storage))


async def test_a_rollback_of_an_ended_update_is_refused(bridge: Bridge, storage: Storage) -> None:
    update_id = await bridge.start()
    finish(storage)

    assert (
        INVALID,
        "invalid rollback: update must be in {ROLLING_FORWARD, ROLL_FORWARD_PAUSED, ROLL_FORWARD_AWAITING_PULSE}",
    ) == await refusal(bridge.steer("rollbackJobUpdate", update_id))


async def test_a_rollback_is_not_rolled_back(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    update_id = await bridge.start(changed())
    await bridge.steer("rollbackJobUpdate", update_id)

    assert "invalid rollback" in (await refusal(bridge.steer("rollbackJobUpdate", update_id)))[1]
    assert len(updates(storage)) == 3


# -- kill ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [None, [], [2, 0, 1]])
async def test_all_instances_are_the_job(bridge: Bridge, storage: Storage, instances: list[int] | None) -> None:
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=instances, message="away")
    job = storage.jobs.get(jobs_named(storage)[0])

    assert job is not None
    assert JobState.KILLED is job.goal


async def test_named_instances_are_stopped_with_one_call(bridge: Bridge, storage: Storage) -> None:
    await bridge.start()
    finish(storage)
    await bridge.call("killTasks", job=KEY, instances=[0, 2])
    turn(storage, jobs_named(storage)[0])

    assert [PodState.KILLED, PodState.RUNNING, PodState.KILLED] == states(storage)


async def test_tasks_that_are_not_there_are_refused(bridge: Bridge, storage: Storage) -> None:
    assert (api.ResponseCode.ERROR, f"job {NAME} not found") == await refusal(bridge.call("killTasks", job=KEY))
    await bridge.start()
    finish(storage)

    assert (
        "has no instance 7: it has 3 instances"
        in (await refusal(bridge.call("killTasks", job=KEY, instances=[0, 7])))[1]
    )
    assert [PodState.RUNNING] * 3 == states(storage)


# -- repeated calls, and two bridges -------------------------------------------------------------------------------


async def test_a_bridge_that_dies_amid_a_start_has_made_one_update_when_it_is_called_again(
    make: Make, storage: Storage
) -> None:
    """The bridge dies before or after each of its calls, in a creation and in a replacement."""
    await _die_in_each_step(make, storage, update_request(), 0)
    finish(storage)
    await _die_in_each_step(make, storage, changed(updateGroupSize=1), 1)


async def _die_in_each_step(make: Make, storage: Storage, request: Any, before: int) -> None:
    for step in range(100):
        for when in ("before", "after"):
            mortal = make(dies=(step, when))
            try:
                answered = await mortal.start(request, "deploy")
            except Died:
                continue
            assert step > 2, "the bridge takes several steps"
            assert before + 1 == len(updates(storage))
            assert answered == opaque.decode(updates(storage)[-1].opaque_data).update_id
            return
    raise AssertionError("the start never ends")


async def test_a_repeated_start_answers_the_update_that_has_ended(make: Make, storage: Storage) -> None:
    await make().start()
    update = finish(storage)

    assert opaque.decode(update.opaque_data).update_id == await make().start()
    assert len(updates(storage)) == 1


@pytest.mark.parametrize("ending", ["abort", "kill", "old", "other", "rollback"])
async def test_a_start_after_other_calls_is_a_new_one(
    make: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A bridge that does not know whether the first start was answered asks what became of it."""
    first = make()
    await first.start()
    finish(storage)
    update_id = await first.start(changed())
    if ending == "abort":
        await first.steer("abortJobUpdate", update_id)
    elif ending == "rollback":
        await first.steer("rollbackJobUpdate", update_id)
    elif ending == "kill":
        finish(storage)
        await first.call("killTasks", job=KEY, instances=[1])
        turn(storage, jobs_named(storage)[0])
    elif ending == "old":
        monkeypatch.setattr("services.aurorabridge.mapping.repeats.WINDOW_S", -1)
    known = len(updates(storage))
    again = await make().start(changed(updateGroupSize=2) if ending == "other" else changed())

    assert update_id != again
    assert known + 1 == len(updates(storage))


async def test_the_id_of_aurora_s_client_is_recognised_always(bridge: Bridge, storage: Storage) -> None:
    metadata = [api.Metadata(key="org.apache.aurora.client.update_id", value="c-1")]
    request = update_request(metadata=metadata)

    assert await bridge.start(request) == await bridge.start(request)
    assert len(updates(storage)) == 1


async def test_two_bridges_create_a_job_once(make: Make, storage: Storage) -> None:
    """Both read that there is no job before either creates it."""
    outcomes = await _start_together(make, storage)

    assert [INVALID, "started"] == sorted(outcomes, key=str)
    assert (1, 1) == (len(jobs_named(storage)), len(updates(storage)))


async def test_two_bridges_replace_a_spec_once(make: Make, storage: Storage) -> None:
    await make().start()
    finish(storage)
    outcomes = await _start_together(make, storage)

    assert [INVALID, "started"] == sorted(outcomes, key=str)
    assert 2 == len(updates(storage))


async def _start_together(make: Make, storage: Storage) -> list[Any]:
    """Start two different updates, whose writes begin when both have read the job."""
    both = asyncio.Barrier(2)
    outcomes = []

    async def start(bridge: Bridge, request: Any) -> None:
        for name in ("CreateJob", "ReplaceJob"):
            write = getattr(bridge.jobs, name)

            async def wait(request: Any, write: Any = write) -> Any:
                await both.wait()
                return await write(request)

            setattr(bridge.jobs, name, wait)
        try:
            await bridge.start(request)
            outcomes.append("started")
        except Refusal as refused:
            outcomes.append(refused.code)

    await asyncio.gather(start(make(), changed(updateGroupSize=1)), start(make(), changed(updateGroupSize=2)))
    return outcomes
