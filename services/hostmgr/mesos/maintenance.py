"""Maintenance primitives of Mesos: the schedule of machines, and inverse offers."""

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
UNANSWERED_MAX = 1_000
"""Limit of unanswered inverse offers in memory. Mesos repeats those that are dropped."""


class MaintenanceSchedule:
    """Mesos's maintenance schedule. Entries of other users are left unchanged. All methods raise OSError. They are
    idempotent, because they read Mesos's state before they change it.

    An update replaces the whole schedule and rescinds every offer of the cluster. Therefore machines are announced in
    batches, and updates without a change are not sent.
    """

    def __init__(self, master: Callable[[], str | None], operator: Operator) -> None:
        self._find_master = master
        self._operator = operator
        self._lock = threading.Lock()

    def announce(self, machines: Sequence[Json]) -> None:
        with self._lock:
            self._announce(machines)

    def take_down(self, machine: Json) -> None:
        """Take the machine down: Mesos removes its agent, and tasks that still run there are lost."""
        with self._lock:
            if _key(machine) not in self._down():
                self._announce([machine])
                self._call({"type": "START_MAINTENANCE", "start_maintenance": {"machines": [machine]}})

    def bring_up(self, machine: Json) -> None:
        """Remove the machine from the schedule, whether it is down or not."""
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
    """Inverse offers, by which Mesos requests that frameworks vacate a host. The event thread records them; another
    thread answers."""

    def __init__(self, agents: AgentWatch, send_all: Callable[[Sequence[Json]], object]) -> None:
        self._agents = agents
        self._send_all = send_all
        self._unanswered: deque[Json] = deque(maxlen=UNANSWERED_MAX)

    def record(self, offers: Iterable[Json]) -> None:
        self._unanswered.extend(offers)

    def answer(self, vacated: Collection[Hostname]) -> None:
        """Accept the inverse offers of hosts that are in maintenance in Peloton, and decline the others."""
        offers = [self._unanswered.popleft() for _ in range(len(self._unanswered))]
        if not offers:
            return
        agents = (self._agents.of_host(hostname) for hostname in vacated)
        agent_ids = {agent.host.host_id for agent in agents if agent is not None}
        for verb in ("ACCEPT", "DECLINE"):
            ids = [o["id"] for o in offers if (o["agent_id"]["value"] in agent_ids) == (verb == "ACCEPT")]
            if ids:
                body = {"inverse_offer_ids": ids, "filters": {"refuse_seconds": REFUSE_S}}
                name = f"{verb}_INVERSE_OFFERS"
                try:
                    self._send_all([{"type": name, name.lower(): body}])
                except OSError as error:
                    log.info("could not answer %d inverse offers, Mesos will repeat them: %s", len(ids), error)


def _key(machine: Json) -> tuple[str, str]:
    """Return the identity of a machine. Mesos ignores the case of host names."""
    return machine.get("hostname", "").lower(), machine.get("ip", "")


def _without(window: Json, machine: Json) -> Json:
    return {**window, "machine_ids": [id_ for id_ in window["machine_ids"] if _key(id_) != _key(machine)]}
