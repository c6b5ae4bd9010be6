"""Distribution of changes to all watchers of a process, which reads the log once for them.

Each watcher has a buffer. When the buffer cannot take the next changes, the tail waits briefly for the watcher to read,
and then disconnects it: buffered changes are still sent, then the stream ends with ABORTED, and the watcher can resume
after the last revision that it received. No change is ever dropped silently.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress

from opentelemetry.metrics import Observation

from peloton.api.v1alpha.watch.svc.watch_svc_pb2 import WatchResponse
from peloton.errors import (
    Aborted,
    Cancelled,
    NotFound,
    OutOfRange,
    PelotonError,
    Reason,
    ResourceExhausted,
    Unavailable,
)
from peloton.model.text import shorten
from services.api.calls import RETRY_AFTER_S, Calls
from services.api.v1.watch_changes import Batch, Change, ChangeReader, Filter, Key, Wants
from services.telemetry.metrics import register_gauge

log = logging.getLogger(__name__)

CLIENTS_MAX = 1_000
BUFFER_MAX = 100
"""Maximum number of buffered changes per watcher; repeated changes of an object take one place."""
BATCH = BUFFER_MAX
"""Number of changes read at a time: an empty buffer can take all of them."""
POLL_S = 0.1
CANCEL_S = 2.0
"""Time in which the api that serves a watch reads its cancel request, in seconds."""
TIMEOUT_S = 1.0
"""Time for which a watcher with a full buffer delays the others once, in seconds, before it is disconnected."""


class Watcher:
    """Stream of one watcher. ``after``: the revision up to which it has all changes."""

    def __init__(self, wanted: Filter) -> None:
        self.id = f"{'task' if wanted.is_of_pods else 'job'}_{uuid.uuid4()}"
        self.wanted = wanted
        self.after = 0
        self._pending: OrderedDict[Key, Change] = OrderedDict()
        self._end: PelotonError | None = None
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def select_wanted(self, changes: Iterable[Change]) -> list[Change]:
        return [change for change in changes if change.revision > self.after and self.wanted.admits(change)]

    def has_space_for(self, changes: Iterable[Change]) -> bool:
        return len(self._pending.keys() | {change.key for change in changes}) <= BUFFER_MAX

    def put(self, changes: Sequence[Change]) -> None:
        """Buffer all of ``changes``, by rising revision, or end the stream with ABORTED."""
        if self._end is not None or not changes:
            return
        if not self.has_space_for(changes):
            self.finish(Aborted(f"event overflow: {self.id}").because(Reason.WATCH_OVERFLOW, watch=self.id))
            return
        for change in changes:
            self._pending.pop(change.key, None)  # the newer one moves to the end, so that revisions rise
            self._pending[change.key] = change
        self._empty.clear()
        self._news.set()

    def finish(self, error: PelotonError) -> None:
        """End the stream with ``error`` after the buffered changes."""
        self._end = self._end or error
        self._news.set()

    def check(self) -> None:
        """Raise the error that the stream has ended with."""
        if self._end is not None:
            raise self._end

    async def wait_empty(self) -> None:
        await self._empty.wait()

    async def responses(self) -> AsyncGenerator[WatchResponse, None]:
        while True:
            await self._news.wait()
            while self._pending:
                _, change = self._pending.popitem(last=False)
                if not self._pending:
                    self._empty.set()
                yield change.response
            self.check()
            self._news.clear()


class WatchHub:
    """Hub of one event loop. The tail of the log is read while there is a watcher."""

    def __init__(
        self,
        reader: ChangeReader,
        calls: Calls,
        poll_s: float = POLL_S,
        timeout_s: float = TIMEOUT_S,
        cancel_s: float = CANCEL_S,
    ) -> None:
        self._reader = reader
        self._calls = calls
        self._poll_s = poll_s
        self._timeout_s = timeout_s
        self._cancel_s = cancel_s
        self._watchers: dict[str, Watcher] = {}
        self._joined: dict[str, Watcher] = {}
        self._position = 0
        self._turn = asyncio.Lock()  # held while reading and distributing: no watcher joins in between
        self._tail: asyncio.Task[None] | None = None
        register_gauge("peloton.watch.clients", lambda _: [Observation(len(self._watchers))])

    async def watch(self, wanted: Filter, start_revision: int) -> AsyncGenerator[WatchResponse, None]:
        """Yield the id and the revision after which changes follow, then the changes."""
        if len(self._watchers) >= CLIENTS_MAX:
            raise ResourceExhausted("max client reached", RETRY_AFTER_S).because(Reason.OVERLOADED, rule="watches")
        watcher = Watcher(wanted)
        self._watchers[watcher.id] = watcher
        try:
            if start_revision:
                await self._check_kept(start_revision)
            begin = start_revision or await self._join_now(watcher)
            yield WatchResponse(watch_id=watcher.id, revision=begin)
            if start_revision:
                async with aclosing(self._catch_up(watcher, start_revision)) as earlier:
                    async for response in earlier:
                        yield response
            async with aclosing(watcher.responses()) as later:
                async for response in later:
                    yield response
        finally:
            self._forget(watcher)

    async def cancel(self, watch_id: str) -> None:
        """Cancel a watch of any api. Raises NotFound."""
        kind, _, number = watch_id.partition("_")
        if kind not in ("task", "job"):
            raise NotFound("invalid watch id")
        if not self._end(watch_id) and not (_is_uuid(number) and await self._cancel_elsewhere(watch_id)):
            raise NotFound(f"watch_id {shorten(watch_id)} not exist for {kind} watch client")

    def _end(self, watch_id: str) -> bool:
        watcher = self._watchers.get(watch_id)
        if watcher is not None:
            watcher.finish(Cancelled(f"watch cancelled: {watch_id}"))
        return watcher is not None

    async def _cancel_elsewhere(self, watch_id: str) -> bool:
        """Store a cancel request, which every api's tail reads; the api that serves the watch removes the request."""
        await self._calls.run(self._reader.ask_cancel, watch_id)
        for _ in range(round(self._cancel_s / self._poll_s)):
            await asyncio.sleep(self._poll_s)
            if watch_id not in await self._calls.run(self._reader.cancels):
                return True
        return not await self._calls.run(self._reader.drop_cancel, watch_id)

    async def _end_cancelled(self, batch: Batch) -> None:
        for watch_id in batch.cancelled:
            if watch_id in self._watchers:  # removed first: the tail ends with the last watch
                await self._calls.run(self._reader.drop_cancel, watch_id)
                self._end(watch_id)

    async def close(self) -> None:
        for watcher in self._watchers.values():
            watcher.finish(Unavailable(f"the api stops: resume watch {watcher.id} after the last revision seen"))
        await self._stop_tail()

    # -- joining

    async def _join_now(self, watcher: Watcher) -> int:
        async with self._turn:
            _, newest = await self._calls.run(self._reader.bounds)
            self._join(watcher, newest)
            return newest

    async def _check_kept(self, start_revision: int) -> None:
        oldest, newest = await self._calls.run(self._reader.bounds)
        if start_revision < oldest - 1:
            raise OutOfRange(
                f"revision {start_revision} is too old to resume from: changes from {oldest} on are kept; list the "
                f"present state, and watch from now on"
            )
        if start_revision > newest:
            raise OutOfRange(f"revision {start_revision} does not exist yet: the newest is {newest}")

    async def _catch_up(self, watcher: Watcher, cursor: int) -> AsyncGenerator[WatchResponse, None]:
        """Yield the changes since ``cursor``, then join the watcher."""
        wants = Wants.of([watcher.wanted])
        while True:
            async with self._turn:
                batch = await self._calls.run(self._reader.read, cursor, BATCH, wants)
                if batch.is_last:
                    self._join(watcher, batch.upto)
            await self._end_cancelled(batch)
            if batch.has_gap:
                await self._check_kept(cursor)
                raise Aborted(f"event overflow: {watcher.id}").because(Reason.WATCH_OVERFLOW, watch=watcher.id)
            for change in batch.changes:
                watcher.check()
                if watcher.wanted.admits(change):
                    yield change.response
            if batch.is_last:
                return
            cursor = batch.upto

    def _join(self, watcher: Watcher, after: int) -> None:
        watcher.after = after
        if not self._joined:
            self._position = after
            self._tail = asyncio.create_task(self._follow(), name="watch tail")
        self._joined[watcher.id] = watcher

    def _forget(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher.id, None)
        self._joined.pop(watcher.id, None)
        if not self._joined and self._tail is not None:
            self._tail.cancel()
            self._tail = None

    async def _stop_tail(self) -> None:
        tail, self._tail = self._tail, None
        self._joined.clear()
        if tail is not None:
            tail.cancel()
            await asyncio.gather(tail, return_exceptions=True)

    # -- the tail

    async def _follow(self) -> None:
        try:
            while True:
                async with self._turn:
                    wants = Wants.of(watcher.wanted for watcher in self._joined.values())
                    batch = await self._calls.run(self._reader.read, self._position, BATCH, wants)
                    await self._distribute(batch)
                    await self._end_cancelled(batch)
                    self._position = batch.upto
                if batch.is_last:
                    await asyncio.sleep(self._poll_s)
        except Exception as error:  # of any kind: the watchers resume
            log.exception("cannot follow the log of changes, retrying")
            for watcher in list(self._joined.values()):
                watcher.finish(Unavailable(f"changes cannot be read ({type(error).__name__}): resume"))
            self._joined.clear()

    async def _distribute(self, batch: Batch) -> None:
        late: list[tuple[Watcher, list[Change]]] = []
        for watcher in list(self._joined.values()):
            if batch.has_gap:  # this process slept longer than changes are kept
                watcher.finish(
                    Aborted(f"event overflow: {watcher.id}").because(Reason.WATCH_OVERFLOW, watch=watcher.id)
                )
                continue
            mine = watcher.select_wanted(batch.changes)
            if watcher.has_space_for(mine):
                watcher.put(mine)
            else:
                late.append((watcher, mine))
        if not late:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                for watcher, _ in late:
                    await watcher.wait_empty()
        for watcher, mine in late:
            watcher.put(mine)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
