"""Maintenance in Mesos: its schedule of machines that go down or are down, and its inverse offers."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from peloton.model.ids import Hostname
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.operator import Operator
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

REFUSE_S = 60
"""Seconds after which Mesos repeats an inverse offer."""
KEPT_MAX = 1_000
"""Limit of unanswered inverse offers; Mesos repeats lost ones."""


class MaintenanceSchedule:
    """Mesos's maintenance schedule. Entries of other users are kept. All methods raise OSError; they read Mesos's state
    before they change it, and so may be repeated.

    An update replaces the whole schedule and rescinds every offer of the cluster, so many machines are announced at
    once, and no update without a change is sent.
    """

    def __init__(self, master: Callable[[], str | None], operator: Operator) -> None:
        self._find_master = master
        self._operator = operator
        self._lock = threading.Lock()

    def announce(self, machines: Sequence[Json]) -> None:
        with self._lock:
            self._announce(machines)

    def take_down(self, machine: Json) -> None:
        """Removes the agent, which ends; tasks still running there are lost."""
        with self._lock:
            if _key(machine) not in self._down():
                self._announce([machine])
                self._call({"type": "START_MAINTENANCE", "start_maintenance": {"machines": [machine]}})

    def bring_up(self, machine: Json) -> None:
        """Removes the machine from the schedule, whether it was down already or not."""
        with self._lock:
            if _key(machine) in self._down():
                self._call({"type": "STOP_MAINTENANCE", "stop_maintenance": {"machines": [machine]}})
                return
            windows = self._windows()
            rest = [_without(window, machine) for window in windows]
            if rest != windows:
                self._update([window for window in rest if window["machine_ids"]])

    def _announce(self, machines: Iterable[Json]) -> None:
        windows = self._windows()
        known = {_key(id_) for window in windows for id_ in window["machine_ids"]}
        missing = [machine for machine in machines if _key(machine) not in known]
        if missing:
            window = {"machine_ids": missing, "unavailability": {"start": {"nanoseconds": time.time_ns()}}}
            self._update([*windows, window])

    def _windows(self) -> list[Json]:
        answer = self._call({"type": "GET_MAINTENANCE_SCHEDULE"})["get_maintenance_schedule"]
        windows: list[Json] = answer.get("schedule", {}).get("windows", [])
        return windows

    def _update(self, windows: list[Json]) -> None:
        update = {"schedule": {"windows": windows}}
        self._call({"type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": update})

    def _down(self) -> set[tuple[str, str]]:
        answer = self._call({"type": "GET_MAINTENANCE_STATUS"})["get_maintenance_status"]
        return {_key(id_) for id_ in answer.get("status", {}).get("down_machines", ())}

    def _call(self, body: Json) -> Json:
        master = self._find_master()
        if not master:
            raise OSError("the leading Mesos master is not known")
        return self._operator.call(master, body)


class InverseOffers:
    """Inverse offers, with which Mesos asks to vacate a host. The thread of events records them, another thread
    answers."""

    def __init__(self, agents: AgentWatch, send_all: Callable[[Sequence[Json]], object]) -> None:
        self._agents = agents
        self._send_all = send_all
        self._asked: deque[Json] = deque(maxlen=KEPT_MAX)

    def came(self, offers: Iterable[Json]) -> None:
        self._asked.extend(offers)

    def answer(self, going: Collection[Hostname]) -> None:
        """Accepts for hosts that are in maintenance in Peloton; declines for others, about which operators decide."""
        asked = [self._asked.popleft() for _ in range(len(self._asked))]
        if not asked:
            return
        agents = (self._agents.of_host(hostname) for hostname in going)
        agent_ids = {agent.host.host_id for agent in agents if agent is not None}
        for verb in ("ACCEPT", "DECLINE"):
            ids = [o["id"] for o in asked if (o["agent_id"]["value"] in agent_ids) == (verb == "ACCEPT")]
            if ids:
                body = {"inverse_offer_ids": ids, "filters": {"refuse_seconds": REFUSE_S}}
                name = f"{verb}_INVERSE_OFFERS"
                try:
                    self._send_all([{"type": name, name.lower(): body}])
                except OSError as error:
                    log.info("%d inverse offers not answered, Mesos will resend them: %s", len(ids), error)


def _key(machine: Json) -> tuple[str, str]:
    """Returns the identity of a machine; Mesos compares host names without case."""
    return machine.get("hostname", "").lower(), machine.get("ip", "")


def _without(window: Json, machine: Json) -> Json:
    return {**window, "machine_ids": [id_ for id_ in window["machine_ids"] if _key(id_) != _key(machine)]}
