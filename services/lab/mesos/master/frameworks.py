"""Lifecycle of frameworks: SUBSCRIBE, failover, disconnection, removal."""

from __future__ import annotations

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.framework_rules import check_suppressed, info_fault
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import COMPLETED_FRAMEWORKS_MAX, Registry
from services.lab.mesos.model import Framework
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock
from services.lab.shared.http.server import EventStream


class Frameworks:
    def __init__(self, clock: Clock, registry: Registry, offers: Offers) -> None:
        self._clock = clock
        self._registry = registry
        self._offers = offers
        self._live = registry.frameworks
        # They may not subscribe again.
        self._removed = registry.removed_frameworks
        # Frameworks known only to their agents after a failover.
        self._forgotten: dict[str, Framework] = {}
        self._count = 0
        # Fired when a framework subscribes again to the same master.
        self.returned: Hook[Framework] = Hook()
        # Fired when a framework disconnects.
        self.left: Hook[Framework] = Hook()
        self.removed: Hook[Framework] = Hook()

    # SUBSCRIBE

    def subscribe(self, call: Json, stream: EventStream, stream_id: str) -> None:
        info = dict(call["framework_info"])
        suppressed = call.get("suppressed_roles", ())
        if not info.get("id", {}).get("value"):
            info.pop("id", None)
        id_ = info.get("id", {}).get("value")
        fault = info_fault(info) or check_suppressed(info, suppressed)
        known = self._live.get(id_) if id_ else None
        if fault is None and id_ in self._removed:
            fault = "Framework has been removed"
        if fault is None and known is not None and known.info.get("principal", "") != info.get("principal", ""):
            fault = "Changing framework's principal is not allowed."
        if fault is not None:
            stream.send(scheduler_events.error(fault))
            stream.finish()
            return
        if known is None:
            self._add(info, id_, call, stream, stream_id)
        else:
            self._resubscribe(known, info, call, stream, stream_id)

    def _add(self, info: Json, id_: str | None, call: Json, stream: EventStream, stream_id: str) -> None:
        if id_ is None:
            id_ = f"{self._registry.id}-{self._count:04d}"
            self._count += 1
        info["id"] = {"value": id_}
        framework = self._forgotten.pop(id_, None)
        if framework is None:
            framework = Framework(id_, _canonical(info))
        else:
            framework.set_info(_canonical(info))
        framework.registered_at = framework.reregistered_at = self._clock.wall()
        self._live[id_] = framework
        self._connect(framework, call, stream, stream_id)
        self._offers.trigger()

    def _resubscribe(self, framework: Framework, info: Json, call: Json, stream: EventStream, stream_id: str) -> None:
        was_connected = framework.connected
        if framework.stream is not None:
            framework.stream.send(scheduler_events.error("Framework failed over"))
            framework.stream.finish()
        framework.cancel_timers()
        # The offers of the old incarnation end without an event.
        self._offers.discard_all(framework)
        for key in ("user", "checkpoint"):
            info.pop(key, None)
            if key in framework.info:
                info[key] = framework.info[key]
        framework.set_info(_canonical(info))
        framework.recovered = False
        framework.reregistered_at = self._clock.wall()
        self._offers.invalidate()
        self._connect(framework, call, stream, stream_id)
        self.returned(framework)
        if not was_connected:
            self._offers.trigger()

    def _connect(self, framework: Framework, call: Json, stream: EventStream, stream_id: str) -> None:
        framework.stream = stream
        framework.stream_id = stream_id
        framework.connected = framework.active = True
        framework.suppressed = set(call.get("suppressed_roles", ()))
        stream.on_close = lambda: self.on_disconnect(framework, stream)
        framework.send(scheduler_events.subscription_event(framework.id, self._registry.master_info()))
        self._heartbeat(framework, stream, self._clock.now())

    def _heartbeat(self, framework: Framework, stream: EventStream, due: float) -> None:
        """Send heartbeats on a fixed schedule from SUBSCRIBED on, independent of other events."""
        if framework.stream is not stream:
            return
        stream.send(scheduler_events.HEARTBEAT)
        due += scheduler_events.HEARTBEAT_INTERVAL_S
        framework.heartbeat = self._clock.call_at(due, self._heartbeat, framework, stream, due)

    # the end

    def on_disconnect(self, framework: Framework, stream: EventStream) -> None:
        """Handle the end of a client's stream: offers are returned, tasks continue until the failover timeout."""
        if framework.stream is not stream:
            return
        framework.stream = None
        framework.connected = framework.active = False
        self._offers.discard_all(framework)
        framework.filters.clear()
        self._offers.invalidate()
        self.left(framework)
        self._await(framework)

    def remove(self, framework: Framework) -> None:
        """Remove a framework on TEARDOWN or failover timeout.

        Executors are shut down, tasks end as TASK_KILLED, no event is sent.
        """
        if self._live.pop(framework.id, None) is None:
            return
        framework.cancel_timers()
        self._offers.forget_framework(framework)
        self.left(framework)
        self.removed(framework)
        stream, framework.stream = framework.stream, None
        framework.connected = framework.active = False
        framework.filters.clear()
        if stream is not None:
            stream.finish()
        self._removed[framework.id] = framework
        while len(self._removed) > COMPLETED_FRAMEWORKS_MAX:
            del self._removed[next(iter(self._removed))]
        self._offers.invalidate()

    # another master

    def reset_state(self) -> None:
        """Reset for another master, to which frameworks are unknown until their agents register."""
        for framework in self._live.values():
            framework.cancel_timers()
            framework.stream = None
            framework.connected = framework.active = False
            framework.unreachable.clear()
            framework.completed.clear()
            framework.tasks.clear()
            framework.filters.clear()
            self.left(framework)
            self._forgotten[framework.id] = framework
        self._live.clear()
        self._removed.clear()
        self._count = 0

    def recover(self, framework: Framework) -> bool:
        """Restore a framework known to an agent, with a failover timeout to subscribe; False if it has been removed."""
        if framework.id in self._live:
            return True
        if self._forgotten.pop(framework.id, None) is None:
            return False
        framework.recovered = True
        framework.registered_at = framework.reregistered_at = self._clock.wall()
        self._live[framework.id] = framework
        self._await(framework)
        return True

    def _await(self, framework: Framework) -> None:
        timeout = framework.info.get("failover_timeout", 0.0)
        if timeout >= 0:
            # With a negative timeout the master never removes it.
            framework.failover = self._clock.call_later(timeout, self.remove, framework)

    # REVIVE, SUPPRESS

    def revive(self, framework: Framework, call: Json) -> None:
        roles = _roles(framework, call)
        for role in roles:
            framework.suppressed.discard(role)
        for key in [key for key in framework.filters if key[0] in roles]:
            del framework.filters[key]
        if roles:
            self._offers.trigger()

    def suppress(self, framework: Framework, call: Json) -> None:
        framework.suppressed.update(_roles(framework, call))


def _roles(framework: Framework, call: Json) -> set[str]:
    """Return the roles of a REVIVE or SUPPRESS: all of them unless it names some; unknown ones are ignored."""
    named = list(call.get("roles", ()))
    if "role" in call:
        named.append(call["role"])
    return set(framework.roles).intersection(named) if named else set(framework.roles)


_ORDER = (
    "user", "name", "id", "failover_timeout", "checkpoint", "role", "roles", "hostname", "principal", "webui_url",
    "capabilities", "labels", "domain", "offer_filters",
)  # fmt: skip


def _canonical(info: Json) -> Json:
    """Return known fields in protobuf order, with the defaults that the master adds."""
    info = {"failover_timeout": 0.0, "checkpoint": False, **info}
    result = {key: info[key] for key in _ORDER if key in info}
    result["failover_timeout"] = float(result["failover_timeout"])
    return result
