"""pymesos's scheduler driver with its I/O replaced.

pymesos keeps subscription, master detection and calls. This module replaces the parts that do not scale: events are
read in large pieces, an exception in a callback never ends the stream (and never tears the framework down), any number
of descriptors may be open, and calls are pipelined over one connection instead of one at a time under a lock.
"""

from __future__ import annotations

import logging
import os
import random
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlparse

import orjson

from peloton.api.mesos_access import DENIED, OPEN, MesosAccess
from peloton.errors import Unavailable
from services.hostmgr.mesos.wire import EventStream, MesosRefusal, Pipe, connect

# pymesos replaces the SIGINT handler when it is imported: this is undone.
_sigint = signal.getsignal(signal.SIGINT)
from services.hostmgr.mesos.pymesos.scheduler import MesosSchedulerDriver  # noqa: E402

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _sigint)

log = logging.getLogger(__name__)

STOPPED = "stopped"
MISSED_HEARTBEATS_MAX = 5
POLL_EVERY_S = 0.5
"""Seconds between checks for a stop, and for missing heartbeats."""
BACKOFF_MAX_S = 5.0
SUPERSEDED_WAIT_S = 15.0
"""Seconds to wait after another process has subscribed as this framework: by then it leads and the lease here is lost,
or it is gone. Subscribing again at once would supersede it in turn."""
SUPERSEDED = "Framework failed over"
REMOVED = "Framework has been removed"
Json = dict[str, Any]


class Disconnected(ConnectionError):
    """The driver has no subscribed stream: nothing was sent."""


class Callbacks:
    """Events that the host manager does not use."""

    def processHeartBeat(self, driver: Subscription) -> None:
        """Ignore the heartbeat: the driver watches the stream itself."""

    def executorLost(self, driver: Subscription, executor_id: Json, agent_id: Json, status: int) -> None:
        """Log the end of an executor, whose pods have status updates of their own."""
        log.info("executor %s on %s ended with %d", executor_id["value"], agent_id["value"], status)

    def inverseOfferRescinded(self, driver: Subscription, offer_id: Json) -> None:
        """Ignore the event: Mesos expects no answer any more."""

    def frameworkMessage(self, driver: Subscription, executor_id: Json, agent_id: Json, message: str) -> None:
        """Ignore the message: Peloton's executors send none."""


class Subscription(MesosSchedulerDriver):  # type: ignore[misc]
    """One subscription to a Mesos master. Callbacks run on the driver's own thread."""

    # Attributes of the base class, which has no annotations.
    stream_id: str | None
    _master: str | None
    _new_master: str | None
    _wakeup_fds: Any
    _started: bool
    _basic_credential: str | None

    def __init__(
        self,
        scheduler: Any,
        framework: Json,
        master: str,
        access: MesosAccess = OPEN,
        refusal: Callable[[], str] = str,
    ) -> None:
        """``refusal`` returns why this process may send nothing now, or "". A subscription of another process makes the
        master refuse the calls of this one; this one must not subscribe again then."""
        # failover=True: a crash or a stop of this process never tears the framework down.
        super().__init__(scheduler, framework, master, failover=True, implicit_acknowledgements=False)
        self._access = access
        self._refusal = refusal
        self._basic_credential = access.authorization or None
        self.leader_id = ""  # of the master of the current or last subscription
        self._heartbeat_s = 15.0
        self._failures = 0  # consecutive, until a subscription succeeds
        self._not_before_s = 0.0
        self._pipe: Pipe | None = None
        self._pipe_stream_id = ""
        self._pipe_losses = 0
        self._pipe_lock = threading.Lock()

    # The event stream: replaces Process._run.

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        wakeup = self._wakeup_fds[0]
        selector.register(wakeup, selectors.EVENT_READ)
        stream: EventStream | None = None
        try:
            while self._is_wanted():
                if stream is not None and self._new_master != self._master:
                    self._drop(stream, selector, "the master changed")
                    stream = None
                self._master = self._new_master
                if stream is None and self._master and time.monotonic() >= self._not_before_s:
                    stream = self._open(selector)
                for key, _ in selector.select(self._pause_s(stream)):
                    if key.fd == wakeup:
                        os.read(wakeup, 4096)
                    elif stream is not None and (why := self._read(stream)):
                        self._drop(stream, selector, why)
                        stream = None
                        self._step_back()
                if stream is not None and stream.silent_s() > MISSED_HEARTBEATS_MAX * self._heartbeat_s:
                    self._drop(stream, selector, "no heartbeat")
                    stream = None
                    self._step_back()
        finally:
            if stream is not None:
                self._drop(stream, selector, STOPPED)
            selector.close()
            self._close_pipe()
            with self._lock:
                for fd in self._wakeup_fds:
                    os.close(fd)
                self._wakeup_fds = None
                self._started = False

    def _pause_s(self, stream: EventStream | None) -> float:
        """Return the seconds until the next check, or until a master may be tried again."""
        if stream is not None or not self._master:
            return POLL_EVERY_S
        return min(POLL_EVERY_S, max(0.0, self._not_before_s - time.monotonic()))

    def _is_wanted(self) -> bool:
        with self._lock:
            return bool(self._started)

    def _open(self, selector: selectors.BaseSelector) -> EventStream | None:
        try:
            if why := self._refusal():
                raise Disconnected(why)
            stream = EventStream(self._master or "", self.gen_request(), self._access)
        except (OSError, ValueError) as error:
            log.warning("cannot reach Mesos master %s: %s", self._master, error)
            self._step_back()
            return None
        selector.register(stream.sock, selectors.EVENT_READ)
        return stream

    def _step_back(self) -> None:
        """Increases the backoff. Without a detector the next attempt goes to the configured master, whatever redirect
        it sent before."""
        self._failures += 1
        self._not_before_s = max(self._not_before_s, time.monotonic() + _backoff_s(self._failures))
        if self.detector is None and "://" not in self.master_uri and self._new_master == self._master:
            self._new_master = self.master_uri if ":" in self.master_uri else f"{self.master_uri}:5050"

    def _read(self, stream: EventStream) -> str:
        """Handle received data; return why the stream is over, or ""."""
        try:
            records, is_open = stream.read()
            events = [orjson.loads(record) for record in records]
        except Exception as error:
            return f"broken stream: {error}"
        if self.stream_id is None and stream.status:
            if stream.status == 307:
                target = stream.headers.get("location", "")
                if leader := urlparse(target).netloc or target:
                    self.change_master(leader)
                return f"redirected to the leading master {leader}"
            if stream.status != 200:
                why = f"HTTP {stream.status} {stream.error.decode(errors='replace')}" if not is_open else ""
                if why and stream.status in DENIED:
                    self._call(self.sched.denied, self, why)
                return why
            self.stream_id = stream.headers.get("mesos-stream-id", "")
        for event in events:
            self._call(self.on_event, event)
        return "" if is_open else "closed by the master"

    def _drop(self, stream: EventStream, selector: selectors.BaseSelector, why: str) -> None:
        log.log(logging.INFO if why == STOPPED else logging.WARNING, "Mesos event stream lost: %s", why)
        selector.unregister(stream.sock)
        stream.close()
        self.stream_id = None
        self._call(self.sched.disconnected, self)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a Mesos callback failed")

    def on_subscribed(self, info: Json) -> None:
        self._failures = 0
        self.leader_id = info.get("master_info", {}).get("id", "")
        self._heartbeat_s = float(info.get("heartbeat_interval_seconds", 15.0))
        super().on_subscribed(info)

    def on_error(self, event: Json) -> None:
        if event.get("message") == SUPERSEDED:
            self._not_before_s = time.monotonic() + SUPERSEDED_WAIT_S
        super().on_error(event)

    def forget_framework(self) -> None:
        """Make the next subscription register a new framework: the master has removed this one."""
        self._framework.pop("id", None)

    def start(self) -> None:
        """Start the driver. Raises Unavailable when ZooKeeper cannot be asked for the leading master."""
        try:
            super().start()
        except Exception as error:  # kazoo's errors, some of which have no common class
            self.stop()
            raise Unavailable(f"ZooKeeper of {self.master_uri} not reached: {error}") from error

    def stop(self, failover: bool = True) -> None:
        super().stop(failover=True)

    def _get_version(self, master: str | None) -> str | None:
        """Return a fixed version: the stock parser fails on versions like 1.11.0-rc1, and then silently drops
        GPU_RESOURCES."""
        return "1.11.0" if master else None

    # Calls.

    def send_all(self, calls: Sequence[Json]) -> list[MesosRefusal | None]:
        """Send calls in order over one pipelined connection; return an entry per call: None, or the rejection.

        Raises Disconnected when nothing was sent, OSError when it is not known what arrived.
        """
        stream_id, master, losses = self.stream_id, self._master, self._pipe_losses
        if not stream_id or not master:
            raise Disconnected(f"not subscribed to Mesos at {master}")
        framework_id = {"value": self.framework_id}
        bodies = [orjson.dumps({"framework_id": framework_id, **call}) for call in calls]
        with self._pipe_lock:
            # Threads that waited for a hanging master do not each wait for it again.
            if losses != self._pipe_losses or stream_id != self.stream_id:
                raise Disconnected(f"the connection to Mesos at {master} was lost meanwhile")
            pipe = self._pipe_to(master, stream_id)
            if why := self._refusal():
                raise Disconnected(why)
            try:
                return pipe.post(bodies, stream_id)
            except OSError:
                self._lose_pipe()
                raise

    def _pipe_to(self, master: str, stream_id: str) -> Pipe:
        """Return the connection of this subscription: an older one may lead to a master that is gone."""
        if self._pipe is None or self._pipe_stream_id != stream_id:
            self._lose_pipe(count=False)
            try:
                self._pipe = Pipe(master, self._access)
            except OSError as error:
                self._lose_pipe()
                raise Disconnected(f"Mesos master {master} not reached: {error}") from error
            self._pipe_stream_id = stream_id
        return self._pipe

    def _lose_pipe(self, count: bool = True) -> None:
        self._pipe_losses += count
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _close_pipe(self) -> None:
        with self._pipe_lock:
            self._lose_pipe()

    def _send(self, body: Json, path: str = "", method: str = "POST", headers: Json | None = None) -> Json:
        """Send one call; all of pymesos's own calls use this method."""
        refusal = self.send_all([{k: v for k, v in body.items() if k != "framework_id"}])[0]
        if refusal:
            raise refusal
        return {}


def _backoff_s(failures: int) -> float:
    return min(BACKOFF_MAX_S, 0.1 * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1.0) if failures else 0.0


def local_address(master: str) -> str:
    """Return the address of this machine on the route to the master; with ZooKeeper, where the master is not known
    yet, the host name."""
    if "://" not in master:
        with suppress(OSError, ValueError), connect(master) as sock:
            return str(sock.getsockname()[0])
    return socket.gethostname()
