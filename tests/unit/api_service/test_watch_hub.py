"""Distribution of changes to watchers: one reader of the log, bounded buffers, no silent loss."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from peloton.api import convert, convert_v1
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch.svc.watch_svc_pb2 import WatchResponse
from peloton.errors import Aborted, Cancelled, NotFound, PelotonError, ResourceExhausted, Unavailable
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec
from services.api.calls import Calls
from services.api.v1 import watch_hub
from services.api.v1.watch_changes import THE_JOB, Batch, ChangeReader, Filter, Wants
from services.api.v1.watch_hub import BUFFER_MAX, WatchHub
from services.storage.storage import Storage
from tests.conformance.storage.services import service_config
from tests.unit.api_service.story import JOB, NOW_NS

COUNT = 3 * BUFFER_MAX
OF_PODS = Filter(is_of_pods=True)
OF_JOBS = Filter(is_of_pods=False)
WAIT_S = 120.0


class CountedReader(ChangeReader):
    """A reader that records its reads, and fails on request."""

    def __init__(self, records: Storage) -> None:
        super().__init__(records)
        self.reads: list[int] = []
        self.wants: set[Wants] = set()
        self.is_broken = False

    def read(self, after: int, limit: int, wants: Wants) -> Batch:
        if self.is_broken:
            raise OSError("disk is gone")
        self.reads.append(after)
        self.wants.add(wants)
        return super().read(after, limit, wants)


@pytest.fixture
def reader(storage: Storage) -> CountedReader:
    """Return a reader of storage with one service, whose pods do not exist yet."""
    config = service_config(COUNT)
    record = convert.new_job_record(JOB, config, NOW_NS)
    storage.updates.create_service(record, config, b"spec", UpdateSpec(), "", NOW_NS)
    return CountedReader(storage)


@pytest.fixture
async def hub(reader: CountedReader, calls: Calls) -> AsyncIterator[WatchHub]:
    """Return a hub with timeout 0: a slow watcher is cut off at once."""
    hub = WatchHub(reader, calls, poll_s=0.001, timeout_s=0.0)
    yield hub
    await hub.close()


Stream = AsyncGenerator[WatchResponse, None]


async def open_stream(hub: WatchHub, wanted: Filter = OF_PODS, after: int = 0) -> Stream:
    """Return a stream after its first message, from which on it misses no change."""
    stream = hub.watch(wanted, after)
    await anext(stream)
    return stream


async def until(stream: Stream, revision: int) -> list[WatchResponse]:
    found: list[WatchResponse] = []
    async with asyncio.timeout(WAIT_S):
        while not found or found[-1].revision != revision:
            found.append(await anext(stream))
    return found


async def to_the_end(stream: Stream) -> tuple[list[WatchResponse], Exception]:
    """Return the stream's remaining messages and its final error."""
    found: list[WatchResponse] = []
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                found.append(await anext(stream))
            except PelotonError as error:
                return found, error


def last_of_pods(storage: Storage) -> int:
    """Return the newest revision of a pod, which is the last one for a watcher of pods."""
    return max(seq for seq, _, instance in storage.watch_log.after(0, 100_000) if instance != THE_JOB)


async def count_handed_out(reader: CountedReader, storage: Storage) -> int:
    """Wait until the hub has read the log to its end, while no watcher reads."""
    newest = storage.watch_log.bounds()[1]
    async with asyncio.timeout(WAIT_S):
        while not reader.reads or reader.reads[-1] != newest:
            await asyncio.sleep(0)
    return newest


def names(responses: list[WatchResponse]) -> list[str]:
    return [pod.pod_name.value for response in responses for pod in response.pods]


EVERY_POD = [f"{JOB}-{i}" for i in range(COUNT)]


async def test_what_changes_again_takes_no_space(hub: WatchHub, reader: CountedReader, storage: Storage) -> None:
    """A watcher that pauses receives each object once, in its current state, by rising revisions."""
    storage.updates.advance(JOB, NOW_NS)
    stream = await open_stream(hub)
    for goal in (PodState.KILLED, PodState.RUNNING) * 30:
        storage.pods.set_goals(JOB, [(0, 5)], goal, NOW_NS, f"to be {goal}")
    await count_handed_out(reader, storage)
    newest = last_of_pods(storage)
    found = await until(stream, newest)

    assert [response.revision for response in found] == list(range(newest - 4, newest + 1))
    assert names(found) == EVERY_POD[:5]
    assert {response.pods[0].status.desired_state for response in found} == {pod_pb2.POD_STATE_RUNNING}
    await stream.aclose()


async def test_a_slow_watcher_is_cut_off_and_resumes(hub: WatchHub, reader: CountedReader, storage: Storage) -> None:
    """A slow watcher receives its buffer, then ABORTED; a resumption from its last revision has the rest."""
    stream = await open_stream(hub)
    storage.updates.advance(JOB, NOW_NS)
    await count_handed_out(reader, storage)
    found, error = await to_the_end(stream)
    resumed = await open_stream(hub, after=found[-1].revision)
    rest = await until(resumed, last_of_pods(storage))

    assert (type(error), str(error).partition("_")[0]) == (Aborted, "event overflow: task")
    assert 0 < len(found) <= BUFFER_MAX
    assert names(found + rest) == EVERY_POD
    await resumed.aclose()


async def test_a_watcher_that_reads_keeps_up(reader: CountedReader, calls: Calls, storage: Storage) -> None:
    """The reader of the log waits for a watcher that keeps reading, for any number of changes."""
    hub = WatchHub(reader, calls, timeout_s=WAIT_S)
    stream = await open_stream(hub)
    storage.updates.advance(JOB, NOW_NS)
    found = await until(stream, last_of_pods(storage))

    assert names(found) == EVERY_POD
    await stream.aclose()
    await hub.close()


async def test_one_tail_serves_all(hub: WatchHub, reader: CountedReader, storage: Storage) -> None:
    """The hub reads the log once for any number of watchers, and not at all without them."""
    streams = [await open_stream(hub) for _ in range(20)]
    before = len(reader.reads)
    storage.updates.advance(JOB, NOW_NS)
    newest = await count_handed_out(reader, storage)
    changed = [after for after in reader.reads[before:] if after not in (reader.reads[before], newest)]
    for stream in streams:
        await stream.aclose()
    idle = len(reader.reads)
    for _ in range(20):  # far more than between two reads
        storage.pods.set_goals(JOB, [(0, 5)], PodState.KILLED, NOW_NS, "stop")
        await asyncio.sleep(0)

    assert sorted(set(changed)) == changed
    assert len(reader.reads) - idle <= 1  # one may have been under way


async def test_only_what_a_watcher_wants_is_read(hub: WatchHub, reader: CountedReader, storage: Storage) -> None:
    """Pods are not read for watchers of jobs, nor labels of pods for watchers without a filter by labels."""
    stream = await open_stream(hub, OF_JOBS)
    storage.updates.advance(JOB, NOW_NS)
    await count_handed_out(reader, storage)

    assert reader.wants == {Wants(jobs=True)}
    await stream.aclose()


async def test_watchers_are_bounded(hub: WatchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """One watcher above the bound is refused; after the end of another one it is accepted."""
    monkeypatch.setattr(watch_hub, "CLIENTS_MAX", 2)
    first, second = await open_stream(hub), await open_stream(hub)
    with pytest.raises(ResourceExhausted, match=r"^max client reached$"):
        await open_stream(hub)
    await first.aclose()
    third = await open_stream(hub)

    assert third is not second
    await second.aclose()
    await third.aclose()


async def test_storage_fails(hub: WatchHub, reader: CountedReader) -> None:
    """The watchers' error says that changes cannot be read, and that they may resume."""
    stream = await open_stream(hub)
    reader.is_broken = True
    _, error = await to_the_end(stream)
    reader.is_broken = False
    again = await open_stream(hub)

    assert (type(error), str(error)) == (Unavailable, "changes cannot be read (OSError): resume")
    await again.aclose()


async def test_changes_that_were_forgotten_meanwhile(hub: WatchHub, storage: Storage, reader: CountedReader) -> None:
    """A process that slept while the log was cut ends its watches with an overflow."""
    stream = await open_stream(hub)
    storage.updates.advance(JOB, NOW_NS)
    storage.watch_log.prune(storage.watch_log.bounds()[1] - 1)
    _, error = await to_the_end(stream)

    assert (type(error), str(error).partition("_")[0]) == (Aborted, "event overflow: task")


async def test_a_resumed_watcher_ends_where_the_others_are(
    hub: WatchHub, reader: CountedReader, storage: Storage
) -> None:
    """A watcher from the beginning and one resumed during changes have the same final state."""
    begin = storage.watch_log.bounds()[1]
    storage.updates.advance(JOB, NOW_NS)
    resumed = await open_stream(hub, after=begin)
    seen: dict[str, int] = {}
    changes = iter([PodState.KILLED, PodState.RUNNING, PodState.KILLED])
    revisions: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while not revisions or revisions[-1] != last_of_pods(storage):
            response = await anext(resumed)
            revisions.append(response.revision)
            seen |= {pod.pod_name.value: pod.status.desired_state for pod in response.pods}
            if goal := next(changes, None):
                storage.pods.set_goals(JOB, [(0, 40)], goal, NOW_NS, "change")
    now = {f"{JOB}-{pod.instance_id}": pod.goal for pod in storage.pods.page(JOB)}

    assert revisions == sorted(set(revisions))
    assert {name: convert_v1.POD_STATES[state] for name, state in seen.items()} == now
    await resumed.aclose()


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_watch_is_cancelled_from_another_api(
    hub: WatchHub, reader: CountedReader, calls: Calls, storage: Storage, is_behind: bool
) -> None:
    """Any api ends a watch, including one that is still catching up, and no cancellation remains."""
    storage.updates.advance(JOB, NOW_NS)
    other = WatchHub(ChangeReader(storage), calls, poll_s=0.001, cancel_s=WAIT_S)
    stream = hub.watch(OF_PODS, 1 if is_behind else 0)
    watch_id = (await anext(stream)).watch_id
    _, (_, error) = await asyncio.gather(other.cancel(watch_id), to_the_end(stream))

    assert isinstance(error, Cancelled)
    assert error.message == f"watch cancelled: {watch_id}"
    assert storage.watch_log.cancels() == set()


async def test_no_process_serves_the_watch(calls: Calls, storage: Storage) -> None:
    """The call fails after a timeout and deletes its cancellation; an id that cannot be a watch's is not stored at
    all."""
    hub = WatchHub(ChangeReader(storage), calls, poll_s=0.001, cancel_s=0.01)
    for number in (str(uuid.uuid4()), "1"):
        with pytest.raises(NotFound, match=f"watch_id task_{number} not exist for task watch client"):
            await hub.cancel(f"task_{number}")

    assert storage.watch_log.cancels() == set()


async def test_what_a_dead_api_asked_is_forgotten(storage: Storage) -> None:
    """A cancellation whose api died is deleted after a minute."""
    storage.watch_log.ask_cancel("task_1", NOW_NS)
    storage.watch_log.ask_cancel("task_2", NOW_NS + 61 * 10**9)

    assert storage.watch_log.cancels() == {"task_2"}
