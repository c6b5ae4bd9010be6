"""Re-sends a recording's calls to a minicluster, in virtual time, and compares what comes back.

Recorded names (framework, offer, agent, stream ids, uuids) are bound to the actual ones when the event that
introduces them arrives. Events are compared one to one per stream and subject (the task, the offer),
because the order between different subjects is not fixed in a real cluster either. Offers are compared as amounts
per agent: whether two halves of an agent come in one offer or two depends on the phase of the allocation tick.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from services.lab.mesos.agents.containers import Container
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import parse
from services.lab.mesos.server import Minicluster
from services.lab.mesos.settings import MiniclusterSettings
from tests.conformance.minicluster.binding import Bindings
from tests.conformance.minicluster.client import DATE, Stream, call, exchange
from tests.conformance.minicluster.differences import is_left_out
from tests.conformance.minicluster.matching import (
    ANYWHERE,
    HeldOffer,
    Subscription,
    brief,
    cover,
    introduces,
    may_cause,
    strings,
    subject,
)
from tests.conformance.minicluster.normalise import Normaliser, difference
from tests.conformance.minicluster.paced import INSTANT_S, LoopClock, ReplayLoop, Sleeps
from tests.conformance.minicluster.plan import Found, Plan, make_host
from tests.conformance.minicluster.recording import Recording

# Recorded seconds an event may be late before it counts as missing.
LATE_S = 7.5
# Recorded seconds a call waits for older events that it does not need itself.
SHORT_S = 1.2
# Recorded seconds our allocation ticks come before the recorded ones, which wander: what they bring is there in time.
AHEAD_S = 0.06
# Recorded seconds: a call's own effects may stand that far before the line of its answer.
CAUSED_S = 0.12
_IGNORED_HEADERS = frozenset(("Date", "Content-Length", "Connection", "Transfer-Encoding"))

# Lines that say what came, not what was sent.
_EXPECTED = frozenset(("event", "stream_end_chunk", "stream_closed", "stream_response", "stream_body"))


class Replay:
    def __init__(self, recording: Recording, plan: Plan, data_dir: Path) -> None:
        self.recording = recording
        self.plan = plan
        names = plan.hosts or tuple(recording.hosts)
        settings = MiniclusterSettings(
            data_dir=data_dir,
            hosts=tuple(make_host(name) for name in names),
            switch_user=True,
            **{"executor_start_s": 0.2, "allowed_hosts": ("x",), **plan.settings},
        )
        self._clock = LoopClock(asyncio.get_running_loop())
        self.cluster = Minicluster(settings, self._clock)
        self.found: list[Found] = []
        self._streams: dict[str, Subscription] = {}
        self._bindings = Bindings(lambda command: self._sleeps.command(command), str(self.cluster.settings.data_dir))
        self._pending: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._theirs = Normaliser({}, {})
        self._ours = Normaliser({}, {})

    # methods for hooks

    def agent(self, host: str) -> Agent:
        return self.cluster.master.registry.by_host[host]

    def later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call a function after this many recorded seconds."""
        self.cluster.clock.call_later(seconds, function, *args)

    def crash(self, task_id: str) -> None:
        """Kill the executor of the task, as kill -9 does."""
        frameworks = self.cluster.master.registry.frameworks.values()
        tasks = [task for one in frameworks for task in one.tasks.values() if task.id == task_id]
        if tasks:
            runner = tasks[0].runner
            assert isinstance(runner, Container)
            runner.crash()
        else:
            self.found.append(Found(0, "hook", "crash", task_id, "<no such task>"))

    # replay of the lines

    async def run(self) -> list[Found]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ReplayLoop)
        self._started = self._clock.now()
        await self.cluster.start()
        assert self.cluster._processes is not None
        self._sleeps = Sleeps(loop, self._clock, self.cluster._processes)
        await self._sleeps.start()
        try:
            self._bind_names()
            await self._walk()
            await self._settle(self._pending, LATE_S)
            self._add_unexpected()
        finally:
            for subscription in self._streams.values():
                await subscription.stream.close()
            await self.cluster.stop()
            await self._sleeps.stop()
        return self.found

    def _bind_names(self) -> None:
        registry, recording = self.cluster.master.registry, self.recording
        for id_, host in recording.agents.items():
            agent = registry.by_host.get(host)
            if agent is not None:
                self._bindings.names[id_] = agent.id
            self._theirs.strings[id_] = f"<{host}>"
        for id_ in recording.master_ids:
            self._bindings.names[id_] = registry.id
            self._theirs.strings[id_] = "M"
        self._theirs.ports = recording.ports
        self._ours.strings = {agent.id: f"<{name}>" for name, agent in registry.by_host.items()}
        self._ours.strings[registry.id] = "M"
        self._ours.strings[str(self.cluster.settings.data_dir)] = "<work_dir>"
        self._ours.ports = {agent.port: name for name, agent in registry.by_host.items()}
        self._ours.ports[self.cluster.port] = "master"

    def _is_skipped(self, line: dict[str, Any]) -> bool:
        if any(first <= line["seq"] <= last for first, last in self.plan.skip):
            return True
        return is_left_out(line, self.recording.ports.get(line.get("port", 0), "master") == "master")

    async def _walk(self) -> None:
        lines = self.recording.lines
        origin = lines[0]["t"]
        await self._align(origin)
        start = self._clock.now()
        for line in lines:
            seq = line["seq"]
            hook = self.plan.hooks.get(seq)
            if hook is None and (self._is_skipped(line) or line["kind"] == "note"):
                continue
            if line.get("_early"):
                continue
            if seq in self.plan.absent:
                self._add(line, line["kind"], brief(line), "<missing>")
                continue
            expected = line["kind"] in _EXPECTED
            if expected and hook is None:
                self._pending.append(line)
                continue
            await self._clock.advance_to(due := start + line["t"] - origin)
            await self._before(line)
            if hook is not None:
                await hook(self)
            if self._is_skipped(line):
                continue
            if expected:
                self._pending.append(line)
            else:
                await self._act(line)
            # When events came late keep the recorded distances, in whole ticks so that the phase stays.
            tick = self.cluster.settings.allocation_interval_s
            late = self._clock.now() - due
            if late > 0.25 * tick:
                start += math.ceil(late / tick) * tick

    async def _align(self, origin: float) -> None:
        """Begin at the recorded distance from an allocation tick: it decides what is offered together."""
        tick = self.cluster.settings.allocation_interval_s
        now = self._clock.now()
        phase = self.recording.phase(tick) if self.plan.phase is None else self.plan.phase
        await self._clock.advance_to(now + (origin + AHEAD_S - phase - (now - self._started)) % tick)

    async def _before(self, line: dict[str, Any]) -> None:
        """Wait for the events the call requires, and shortly for events it may itself cause."""
        names = set(strings(line.get("request")))
        needed = [event for event in self._pending if event.get("_calls", 0) > 0 or names & introduces(event)]
        await self._settle(needed, LATE_S, drop=True)
        # What came well before the call was not caused by it.
        older = [event for event in self._pending if event["t"] < line["t"] - CAUSED_S or not may_cause(line, event)]
        await self._settle(older, SHORT_S)
        await self._settle(self._pending, 0.0)
        for event in self._pending:
            event["_calls"] = event.get("_calls", 0) + 1

    async def _settle(self, lines: list[dict[str, Any]], timeout_s: float, drop: bool = False) -> None:
        """Match recorded events with actual ones until all are matched or time is up."""
        waiting, until_s = lines, self._clock.now() + timeout_s
        while True:
            self._changed.clear()
            waiting = [line for line in waiting if not self._match(line)]
            if not waiting or (left_s := until_s - self._clock.now()) < INSTANT_S:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
        matched = {id(line) for line in lines} - {id(line) for line in waiting}
        if drop or timeout_s == LATE_S:
            for line in waiting:
                self._add(line, line["kind"], brief(line), "<missing>")
            matched |= {id(line) for line in waiting}
        self._pending = [line for line in self._pending if id(line) not in matched]

    # calls

    async def _act(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind == "stream_request":
            await self._subscribe(line)
        elif kind == "client_closes_stream":
            await self._close(line)
        elif kind == "call":
            await self._call(line)
        elif kind == "raw_exchange":
            await self._raw(line)

    async def _close(self, line: dict[str, Any]) -> None:
        """Close the stream after the events that the recording script received before it closed the connection."""
        name = line["stream"]
        for later in self.recording.lines[line["seq"] :]:
            if later.get("stream") == name and later["kind"] == "event":
                self._pending.append(later)
                later["_early"] = True
            elif later.get("stream") == name:
                break
        mine = [event for event in self._pending if event.get("stream") == name and event["kind"] == "event"]
        await self._settle(mine, LATE_S)
        await self._streams[name].stream.close()

    def _port(self, line: dict[str, Any]) -> int:
        name = self.recording.ports.get(line["port"], "master")
        return self.cluster.port if name == "master" else self.cluster.master.registry.by_host[name].port

    def _use_up(self, offer_id: str) -> None:
        """Mark an offer as used up: it was answered or rescinded."""
        for subscription in self._streams.values():
            for held in subscription.offers.values():
                for item in held:
                    if item.id == offer_id:
                        item.remaining = {}

    async def _subscribe(self, line: dict[str, Any]) -> None:
        name = line["stream"]
        old = self._streams.get(name)
        if old is not None:
            await old.stream.close()
        subscription = Subscription(Stream(lambda event: self._note_arrival(subscription, event)))
        self._streams[name] = subscription
        body = self._bindings.body(line["request"])
        await subscription.stream.open(self._port(line), line["path"], self._bindings.headers(line), body)
        self._changed.set()

    async def _call(self, line: dict[str, Any]) -> None:
        names = self._bindings
        path = names.query(line["path"]) if "/var/lib" in line["path"] else names.path(line["path"])
        body = names.body(self.plan.rewrites.get(line["seq"], lambda request: request)(line["request"]))
        answer = await call(self._port(line), line["method"], path, names.headers(line), body)
        recorded_headers = {k: v for k, v in line["response_headers"].items() if k not in _IGNORED_HEADERS}
        actual_headers = {k: v for k, v in answer.headers.items() if k not in _IGNORED_HEADERS}
        recorded = {
            "status": line["status"],
            "headers": self._theirs.value(recorded_headers),
            "body": self._theirs.value(line["response"]),
        }
        actual = {
            "status": answer.status,
            "headers": self._ours.value(actual_headers),
            "body": self._ours.value(answer.value),
        }
        self._compare(line, recorded, actual)
        request = line["request"]
        for item in strings(self._bindings.translate(request)):
            self._use_up(item)
        if self.plan.tidy and isinstance(request, dict) and request.get("type") == "SUPPRESS":
            await self._give_back(line)

    async def _give_back(self, line: dict[str, Any]) -> None:
        headers = self._bindings.headers(line)
        ids = []
        for subscription in self._streams.values():
            if subscription.stream.headers.get("Mesos-Stream-Id") == headers.get("Mesos-Stream-Id"):
                for held in subscription.offers.values():
                    ids += [{"value": item.id} for item in held if item.remaining == parse(item.offer["resources"])]
        body = {"offer_ids": ids, "filters": {"refuse_seconds": 0}}
        decline = {"type": "DECLINE", "framework_id": line["request"]["framework_id"], "decline": body}
        await call(self._port(line), "POST", line["path"], headers, orjson.dumps(self._bindings.translate(decline)))
        for item in ids:
            self._use_up(item["value"])

    async def _raw(self, line: dict[str, Any]) -> None:
        """Exchange exact bytes, and compare the answer: only the date may differ."""
        answer = await exchange(self.cluster.port, line["request"].encode("latin-1"))
        recorded, actual = (DATE.sub("Date: #", text) for text in (line["raw_response"], answer.decode("latin-1")))
        self._compare(line, {"raw": recorded}, {"raw": actual})

    # events

    def _note_arrival(self, subscription: Subscription, event: Any) -> None:
        if event is not None:
            if event["type"] == "OFFERS":
                for offer in event["offers"]["offers"]:
                    held = HeldOffer(offer["id"]["value"], offer, parse(offer["resources"]))
                    subscription.offers.setdefault(offer["hostname"], []).append(held)
            else:
                if event["type"] == "RESCIND":
                    self._use_up(event["rescind"]["offer_id"]["value"])
                key = subject(event, self._ours)
                subscription.events.setdefault(key, deque()).append(event)
        self._changed.set()

    def _match(self, line: dict[str, Any]) -> bool:
        """Try to find the actual counterpart of a recorded line; compares and binds names when found."""
        subscription = self._streams.get(line["stream"])
        if subscription is None:
            return False
        kind = line["kind"]
        stream = subscription.stream
        if kind == "stream_response":
            return self._match_response(line, stream)
        if kind == "stream_body":
            self._compare(line, {"body": self._theirs.value(line["body"])}, {"body": stream.body.decode()})
            return True
        if kind == "stream_end_chunk":
            return stream.ended
        if kind == "stream_closed":
            return stream.closed or stream.status != 200
        event = line["event"]
        if event["type"] == "OFFERS":
            return self._match_offers(line, subscription)
        if event["type"] == "RESCIND":
            return self._match_rescind(event, subscription)
        queue = subscription.events.get(subject(event, self._theirs))
        if not queue:
            return False
        actual = queue.popleft()
        self._bindings.bind(event, actual)
        self._compare(line, self._theirs.value(event), self._ours.value(actual))
        return True

    def _match_response(self, line: dict[str, Any], stream: Stream) -> bool:
        headers = dict(item.split(": ", 1) for item in line["raw_headers"][1:])
        if "Mesos-Stream-Id" in headers and "Mesos-Stream-Id" in stream.headers:
            self._bindings.names[headers["Mesos-Stream-Id"]] = stream.headers["Mesos-Stream-Id"]
        recorded = {"status": line["status"], "headers": list(headers), "length": headers.get("Content-Length")}
        actual = {
            "status": stream.status,
            "headers": list(stream.headers),
            "length": stream.headers.get("Content-Length"),
        }
        self._compare(line, recorded, actual)
        return True

    def _match_offers(self, line: dict[str, Any], subscription: Subscription) -> bool:
        """True once everything offered in the recording is on offer here; the rest of the offer must be equal."""
        done = line.setdefault("_done", set())
        anywhere = any(first <= line["seq"] <= last for first, last in self.plan.any_agent)
        for index, offer in enumerate(line["event"]["offers"]["offers"]):
            if index in done:
                continue
            taking = cover(offer, subscription.offers, anywhere)
            if taking is None:
                return False
            self._bindings.offers[offer["id"]["value"]] = [item.id for item in taking]
            self._bindings.names[offer["id"]["value"]] = taking[0].id
            left_out = {"resources"} | (ANYWHERE if anywhere else set())
            theirs = {key: value for key, value in offer.items() if key not in left_out}
            ours = {key: value for key, value in taking[0].offer.items() if key not in left_out}
            self._compare(line, self._theirs.value(theirs), self._ours.value(ours))
            done.add(index)
        return True

    def _match_rescind(self, event: dict[str, Any], subscription: Subscription) -> bool:
        """All actual offers behind the recorded one must be rescinded; one may stand behind two recorded ones."""
        ids = self._bindings.offers.get(event["rescind"]["offer_id"]["value"])
        if ids is None:
            return False
        queues = [subscription.events.get(("RESCIND", id_)) for id_ in ids]
        return all(queues)

    def _add_unexpected(self) -> None:
        """Add events that the recording does not have. Offers and heartbeats depend on time, not on the recording."""
        for name, subscription in self._streams.items():
            for key, queue in subscription.events.items():
                if key[0] in ("HEARTBEAT", "RESCIND"):
                    continue
                for event in queue:
                    self.found.append(Found(0, name, "unexpected", "<absent>", self._ours.value(event)))

    def _compare(self, line: dict[str, Any], recorded: Any, actual: Any) -> None:
        for path, left, right in difference(recorded, actual):
            self._add(line, path, left, right)

    def _add(self, line: dict[str, Any], path: str, recorded: Any, actual: Any) -> None:
        where = line.get("label") or line.get("stream") or f"{line.get('method')} {line.get('path')}"
        self.found.append(Found(line["seq"], str(where), path, recorded, actual))
