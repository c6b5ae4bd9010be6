"""Peloton's BulkService over real storage: a job is created completely or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa

from peloton.api.bulk import create_messages
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.bulk.bulk_pb2_grpc import BulkServiceStub
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import Unavailable
from peloton.model.ids import JobId
from services.api import bulk_service
from services.storage.jobs.job_streams import JobStream
from services.storage.storage import Storage
from services.storage.tables import JOB, JOB_STREAM, OVERRIDE
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import ID, INNER, Config
from tests.unit.api_service.story import JOB as JOB_ID


@pytest.fixture
def bulk(channel: grpc.aio.Channel) -> Any:
    return BulkServiceStub(channel)


def own(instances: Iterable[int], command: str = "own {}", **fields: Any) -> list[tuple[int, task_pb2.TaskConfig]]:
    configs = [(i, task_pb2.TaskConfig(name=f"pod{i}", **fields)) for i in instances]
    for i, config in configs:
        config.command.value = command.format(i)
    return configs


def count_left(storage: Storage) -> dict[str, int]:
    """Return the rows of tables that a broken stream must not leave."""

    def count(conn: sa.Connection) -> dict[str, int]:
        return {
            t.name: conn.execute(sa.select(sa.func.count()).select_from(t)).scalar_one()
            for t in (JOB, OVERRIDE, JOB_STREAM)
        }

    return {name: rows for name, rows in storage.db.read(count).items() if rows}


async def test_a_job_in_pieces(
    bulk: Any, config: Config, storage: Storage, wakes: RecordedWakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streamed job is stored like the unary call's job, in several messages, and its workflow is started."""
    monkeypatch.setattr("peloton.api.bulk.PIECE_BYTES", 20)
    wanted = config(7)

    messages = list(create_messages(JOB_ID, wanted, own([0, 1, 2, 5, 6])))
    answer = await bulk.CreateJob(iter(messages))

    assert len(messages) > 4
    assert (answer.jobId.value, answer.HasField("error")) == (JOB_ID, False)
    stored = storage.configs.job_config(JOB_ID, overrides=True)
    assert stored is not None
    assert sorted(stored.instanceConfig) == [0, 1, 2, 5, 6]
    assert stored.instanceConfig[5].command.value == "own 5"
    assert storage.configs.task_configs(JOB_ID, 1, [3])[3] == wanted.defaultConfig
    assert [(r.start, r.count) for r in storage.configs.shapes_of([(JOB_ID, 1, 0, 7)])[0]] == [(0, 7)]
    assert wakes.started == [JOB_ID]
    assert count_left(storage) == {"job": 1, "job_config_override": 5}


async def test_the_same_as_a_call(bulk: Any, jobs: Any, config: Config, storage: Storage) -> None:
    """Records and facts of a streamed job equal the ones of the same job in one message."""
    first = own([0], controller=True, resource=task_pb2.ResourceConfig(cpuLimit=3))
    whole = config(4)
    for instance, override in first:
        whole.instanceConfig[instance].CopyFrom(override)
    other = JobId((await jobs.Create(job_pb2.CreateRequest(config=whole))).jobId.value)

    await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(4), first))))

    streamed, called = storage.jobs.get(JOB_ID), storage.jobs.get(other)
    assert streamed is not None
    assert called is not None
    assert (streamed.has_controller, called.has_controller) == (True, True)
    assert streamed.pod_counts == called.pod_counts
    assert storage.configs.shapes_of([(JOB_ID, 1, 0, 4)])[0] == storage.configs.shapes_of([(other, 1, 0, 4)])[0]


async def test_repeated(bulk: Any, config: Config, storage: Storage, wakes: RecordedWakes) -> None:
    """A stream whose answer was lost is repeated with the same id: the job exists once, and has its workflow."""
    messages = list(create_messages(JOB_ID, config(2), own([0, 1])))
    await bulk.CreateJob(iter(messages))

    again = await bulk.CreateJob(iter(messages))

    assert again.error.alreadyExists.id.value == JOB_ID
    assert wakes.started == [JOB_ID, JOB_ID]
    assert count_left(storage) == {"job": 1, "job_config_override": 2}


REFUSED: dict[str, tuple[Callable[[], list[tuple[int, task_pb2.TaskConfig]]], str]] = {
    "a negative amount": (
        lambda: own([0, 1]) + own([2], resource=task_pb2.ResourceConfig(cpuLimit=-1)),
        "Invalid config for instance 2, cpuLimit -1 is negative",
    ),
    "beyond the pool": (
        lambda: own([3], resource=task_pb2.ResourceConfig(cpuLimit=13)),
        "instance 3 asks cpu 13, limit of resource pool /eng/maps is 12",
    ),
    "beyond the job": (lambda: own([4]), "instanceConfig is given for instance 4, instanceCount is 4"),
    "no fault of instances": (lambda: own([0, 1]), "only task 0 can be controller task"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused(bulk: Any, config: Config, storage: Storage, name: str) -> None:
    """The refusal has instance, rule and numbers, and no rows remain."""
    instances, text = REFUSED[name]
    wanted = config(4)
    wanted.defaultConfig.controller = name == "no fault of instances"

    answer = await bulk.CreateJob(iter(list(create_messages(JOB_ID, wanted, instances()))))

    assert answer.error.invalidConfig.message == text
    assert answer.error.invalidConfig.id.value == JOB_ID
    assert count_left(storage) == {}


async def test_refused_before_instances(bulk: Any, config: Config, storage: Storage) -> None:
    """An invalid job is refused before its instances are sent."""
    wanted = config(4)
    wanted.respoolID.value = INNER

    answer = await bulk.CreateJob(iter(list(create_messages("", wanted, own([0])))))
    bad_id = await bulk.CreateJob(iter(list(create_messages("no", config(4), own([0])))))

    assert "non leaf resource pool: /eng has child pools" in answer.error.invalidConfig.message
    assert bad_id.error.invalidJobId.message == "JobID must be valid UUID"
    assert count_left(storage) == {}


Messages = list[bulk_pb2.CreateJobRequest]


def _twice() -> bulk_pb2.CreateJobRequest:
    piece = bulk_pb2.CreateJobRequest()
    piece.instances.first = 1
    piece.instances.configs.add(name="again")
    return piece


def _start_again(config: Config) -> bulk_pb2.CreateJobRequest:
    return next(create_messages(JOB_ID, config(3), []))


DISORDER: dict[str, tuple[Callable[[Messages, Config], Messages], str]] = {
    "no start": (lambda m, c: m[1:], "the first message of a stream has to be its start"),
    "no commit": (lambda m, c: m[:-1], f"the stream of job {JOB_ID} ended without its commit; nothing is kept"),
    "nothing": (lambda m, c: [], "the first message of a stream has to be its start"),
    "an instance twice": (
        lambda m, c: [*m[:-1], _twice(), m[-1]],
        "configs from instance 1 on follow that of instance 1: they have to rise",
    ),
    "a piece is missing": (
        lambda m, c: [m[0], m[-1]],
        "the commit is of 2 instance configs, 0 have come; nothing is kept",
    ),
    "a second start": (
        lambda m, c: [*m[:-1], _start_again(c)],
        "a message of a stream holds start, want instances or commit",
    ),
}


@pytest.mark.parametrize("name", DISORDER)
async def test_disorder(bulk: Any, config: Config, storage: Storage, name: str) -> None:
    """The error of a stream that is not start, instances, commit gives the reason, and no rows remain."""
    change, text = DISORDER[name]
    messages = list(create_messages(JOB_ID, config(3), own([0, 1])))

    with pytest.raises(grpc.aio.AioRpcError) as error:
        await bulk.CreateJob(iter(change(messages, config)))

    assert error.value.details() == text
    assert count_left(storage) == {}


async def test_a_message_is_bounded(bulk: Any, config: Config, storage: Storage) -> None:
    """A piece above the limit is refused with both numbers."""
    heavy = own([0], "x" * (bulk_service.PIECE_BYTES_MAX + 1))

    with pytest.raises(grpc.aio.AioRpcError, match=r"has \d+ bytes, the limit is 8388608"):
        await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(1), heavy))))

    assert count_left(storage) == {}


class Held:
    """A stream that sends its messages, then pauses until the event is set."""

    def __init__(self, messages: list[bulk_pb2.CreateJobRequest], rest: list[bulk_pb2.CreateJobRequest]) -> None:
        self.go_on = asyncio.Event()
        self._messages, self._rest = messages, rest

    async def __aiter__(self) -> AsyncIterator[bulk_pb2.CreateJobRequest]:
        for message in self._messages:
            yield message
        await self.go_on.wait()
        for message in self._rest:
            yield message


async def until(condition: Any) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def test_broken_off(bulk: Any, config: Config, storage: Storage) -> None:
    """A client that disconnects in the middle leaves no rows."""
    messages = list(create_messages(JOB_ID, config(3), own([0, 1])))
    call = bulk.CreateJob(aiter(Held(messages[:-1], messages[-1:])))
    await until(lambda: count_left(storage).get("job_config_override") == 2)

    call.cancel()

    await until(lambda: count_left(storage) == {})


async def test_silence(bulk: Any, config: Config, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without messages for too long is aborted, and no rows remain."""
    monkeypatch.setattr(bulk_service, "IDLE_S_MAX", 0.2)
    messages = list(create_messages(JOB_ID, config(3), own([0, 1])))

    with pytest.raises(grpc.aio.AioRpcError, match=r"nothing came for 0\.2 s; nothing is kept"):
        await bulk.CreateJob(aiter(Held(messages[:-1], [])))

    assert count_left(storage) == {}


async def test_what_cannot_be_discarded_is_left_to_the_sweep(
    bulk: Any, config: Config, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage failure while discarding changes neither the answer of a commit nor the reason of a refusal."""

    def fail(stream: JobStream) -> None:
        raise Unavailable("storage is away")

    monkeypatch.setattr(storage.job_streams, "discard", fail)
    refused = await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(2), own([2])))))
    created = await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(2), own([0, 1])))))

    assert "instanceConfig is given for instance 2" in refused.error.invalidConfig.message
    assert created.jobId.value == JOB_ID
    assert count_left(storage) == {"job": 1, "job_config_override": 2}


async def test_taken_over(bulk: Any, config: Config, storage: Storage) -> None:
    """A second stream takes over the job from the first one, which is aborted and adds nothing."""
    messages = list(create_messages(JOB_ID, config(3), own([0, 1])))
    held = Held(messages[:-1], messages[-1:])
    first = bulk.CreateJob(aiter(held))
    await until(lambda: count_left(storage).get("job_config_override") == 2)

    answer = await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(3), own([2])))))
    held.go_on.set()

    assert answer.jobId.value == JOB_ID
    with pytest.raises(grpc.aio.AioRpcError, match="is being created by another call"):
        await first
    assert count_left(storage) == {"job": 1, "job_config_override": 1}


async def test_a_call_takes_the_id(bulk: Any, jobs: Any, config: Config, storage: Storage) -> None:
    """A unary creation during a stream with the same id contains nothing of the stream."""
    messages = list(create_messages(JOB_ID, config(3), own([0, 1])))
    held = Held(messages[:-1], messages[-1:])
    first = bulk.CreateJob(aiter(held))
    await until(lambda: count_left(storage).get("job_config_override") == 2)

    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=config(3)))
    held.go_on.set()

    assert answer.jobId.value == JOB_ID
    with pytest.raises(grpc.aio.AioRpcError, match="is being created by another call"):
        await first
    assert count_left(storage) == {"job": 1}


async def test_streams_are_bounded(bulk: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of open streams has a bound, since each holds a piece in memory."""
    monkeypatch.setattr(bulk_service, "STREAMS_MAX", 0)

    with pytest.raises(grpc.aio.AioRpcError, match="0 jobs are being created by streams, the limit"):
        await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(1), []))))


async def test_without_instances(bulk: Any, config: Config, storage: Storage) -> None:
    """A stream may contain the job alone, and may leave the id to the api."""
    answer = await bulk.CreateJob(iter(list(create_messages("", config(2), []))))

    assert storage.jobs.get(answer.jobId.value) is not None


async def test_instances_in_the_start(bulk: Any, config: Config) -> None:
    """Instances in the start message are refused, since they would have no bound."""
    wanted = config(2)
    wanted.instanceConfig[1].name = "odd"
    start = bulk_pb2.CreateJobRequest(start=bulk_pb2.JobStart(id=peloton_pb2.JobID(value=JOB_ID), config=wanted))

    with pytest.raises(grpc.aio.AioRpcError, match="the start of a stream carries 1 instance configs; they follow it"):
        await bulk.CreateJob(iter([start]))


async def test_locked(bulk: Any, config: Config, storage: Storage) -> None:
    """A stream is refused while writes are locked down."""
    storage.lockdowns.set("Write", True)

    with pytest.raises(grpc.aio.AioRpcError, match="All write APIs are locked down"):
        await bulk.CreateJob(iter(list(create_messages(JOB_ID, config(1), own([0])))))

    assert count_left(storage) == {}
