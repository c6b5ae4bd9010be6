"""Maintenance of hosts: requests, states and turns, including hosts that move to another host pool.

Every write takes the counter of requests first, which serialises writes, so two admissions never use the same place
under the bound. A write that changes the host pool of a host takes the counter of host pools before that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa

from peloton.errors import Aborted, NotFound
from peloton.lifecycle import host_events
from peloton.lifecycle.maintenance import NOT_DOWN, refusal_of, turns
from peloton.model.host import HostState
from peloton.model.host_event import HostEvent
from peloton.model.ids import Hostname
from peloton.model.maintenance import (
    DrainProgress,
    HostMaintenance,
    MaintenanceAct,
    MaintenanceRequest,
)
from peloton.model.resources import Resources, to_extended
from peloton.model.text import shorten
from peloton.ports import PERSON
from services.storage.engine import Repository, take_numbers, writing
from services.storage.hosts.host_events import record
from services.storage.hosts.host_pools import HOST_POOLS_SEQ, put_to_rest, read_desired_pool
from services.storage.mapper import NUMBERS, Form, Mapper, json_form, strip_nul, to_json
from services.storage.tables import HOST

MAINTENANCE_SEQ = "maintenance"
_NUMBERS = NUMBERS[HostState]
HOST_STATES = {number: state for state, number in _NUMBERS.items()}
_HOSTS = Mapper(
    HostMaintenance,
    HOST,
    progress=json_form(DrainProgress, empty=DrainProgress()),
    capacity=Form(
        lambda capacity: json.dumps([*capacity, *([dict(capacity.extended)] if capacity.extended else [])]),
        lambda text: _capacity(*json.loads(text)) if text else Resources(),
    ),
)


def _capacity(cpu: int, memory: int, disk: int, gpu: int, extended: Mapping[str, int] | None = None) -> Resources:
    return Resources(cpu, memory, disk, gpu, to_extended(extended or {}))


class Maintenance(Repository):
    def all(self, cluster: str) -> list[HostMaintenance]:
        """Return hosts of a cluster that are in maintenance, in the order of the requests."""
        return self._db.read(lambda conn: _read(conn, cluster))

    def get(self, cluster: str, hostname: str) -> HostMaintenance | None:
        return self._db.read(lambda conn: _read_one(conn, cluster, hostname))

    @writing
    def request(
        self,
        conn: sa.Connection,
        cluster: str,
        requests: Sequence[MaintenanceRequest],
        unavailable_max: int,
        now_ns: int,
    ) -> list[HostMaintenance]:
        """Request maintenance of hosts; hosts whose turn it is become DRAINING at once. Returns the requested hosts.

        A repeated request changes nothing, with two exceptions: a waiting host takes the bound of the new request, if
        it has one, and a host that moves to another host pool goes down instead, unless the new request is a move too.
        Raises Aborted, and changes nothing, when one of the hosts is on its way back up.
        """
        seq, events = take_numbers(conn, MAINTENANCE_SEQ, len(requests)), list[HostEvent]()
        known = {host.hostname: host for host in _read(conn, cluster)}
        for request in requests:
            host = known.get(request.hostname)
            if host is None:
                conn.execute(HOST.insert().values(**_new_row(cluster, request, seq, now_ns)))
                seq += 1
                if not request.to_pool:  # the mover or operator records moves itself
                    events.append(host_events.maintenance_asked(cluster, request, "", now_ns, PERSON.get()))
            elif host.goal is HostState.UP:
                raise Aborted(f"maintenance of host {host.hostname} is being ended: ask again once it is UP")
            elif host.is_move and not request.to_pool:
                conn.execute(_update(cluster, host.hostname, **_down_instead_of_move_values(request, now_ns)))
                asked_by = PERSON.get()
                events.append(host_events.maintenance_asked(cluster, request, host.to_pool, now_ns, asked_by))
            elif host.waits_for_turn and request.at_most:
                conn.execute(_update(cluster, host.hostname, at_most=request.at_most))
        _admit(conn, cluster, unavailable_max, now_ns, events)
        asked = {request.hostname for request in requests}
        return [host for host in _read(conn, cluster) if host.hostname in asked]

    @writing
    def admit(self, conn: sa.Connection, cluster: str, unavailable_max: int, now_ns: int) -> list[HostMaintenance]:
        """Move waiting hosts to DRAINING as far as the bound allows; returns them."""
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        return _admit(conn, cluster, unavailable_max, now_ns)

    @writing
    def steer(
        self,
        conn: sa.Connection,
        cluster: str,
        hostnames: Sequence[str],
        act: MaintenanceAct,
        unavailable_max: int,
        now_ns: int,
    ) -> list[HostMaintenance]:
        """Complete, cancel or force maintenance, for all of the hosts or none.

        Returns the hosts and others whose drain begins because of it. A cancelled move leaves the host in its current
        host pool. Raises NotFound, Aborted.
        """
        if act is MaintenanceAct.CANCEL:
            take_numbers(conn, HOST_POOLS_SEQ, 1)
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        before = {host.hostname: host for host in _read(conn, cluster)}
        changed = [_steer(conn, cluster, hostname, act, now_ns) for hostname in hostnames]
        person = PERSON.get()
        events = [host_events.describe_request(before[host.hostname], act, now_ns, person) for host in changed]
        return changed + _admit(conn, cluster, unavailable_max, now_ns, events)

    @writing
    def move(
        self, conn: sa.Connection, cluster: str, hostname: str, before: HostState, after: HostState, now_ns: int
    ) -> bool:
        """Advance a host on its way down; False when it is not in state ``before`` or its goal is not DOWN."""
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        host = _read_one(conn, cluster, hostname)
        step = _update(cluster, hostname, state=_NUMBERS[after], changed_ns=now_ns, progress="")
        is_before = HOST.c.state == _NUMBERS[before]
        if after is HostState.DRAINED:
            is_before &= HOST.c.goal == _NUMBERS[HostState.DOWN]
        has_moved = conn.execute(step.where(is_before)).rowcount == 1
        if host is not None and has_moved:
            record(conn, [host_events.maintenance_step(host, after, now_ns)])
        return has_moved

    @writing
    def redirect(self, conn: sa.Connection, cluster: str, pools: Mapping[Hostname, str], now_ns: int) -> None:
        """Change the destination pools of hosts that are moving."""
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        for hostname, pool in pools.items():
            change = _update(cluster, hostname, to_pool=pool, changed_ns=now_ns)
            conn.execute(change.where(_IS_MOVE, HOST.c.goal == _NUMBERS[HostState.DOWN]))

    @writing
    def cancel_moves(
        self, conn: sa.Connection, cluster: str, hostnames: Sequence[str], unavailable_max: int, now_ns: int
    ) -> list[HostMaintenance]:
        """Cancel the moves of hosts. Returns them, and others whose drain begins because of it."""
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        hosts = {host.hostname: host for host in _read(conn, cluster) if host.is_move}
        changed = [_cancel_move(conn, hosts[Hostname(name)], now_ns) for name in hostnames if name in hosts]
        return changed + _admit(conn, cluster, unavailable_max, now_ns)

    @writing
    def relabel(self, conn: sa.Connection, cluster: str, hostname: str, now_ns: int) -> bool:
        """Put a moving, DRAINED host into its new host pool and steer it UP.

        Returns False when the host is not DRAINED or has another destination by now.
        """
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        host = _read_one(conn, cluster, hostname)
        if host is None or not host.is_move or (host.state, host.goal) != (HostState.DRAINED, HostState.DOWN):
            return False
        if read_desired_pool(conn, host.hostname) != host.to_pool:
            return False
        before = put_to_rest(conn, host.hostname, host.to_pool, now_ns)
        conn.execute(_update(cluster, hostname, goal=_NUMBERS[HostState.UP], changed_ns=now_ns))
        record(conn, [host_events.pool_changed(host.hostname, before, host.to_pool, "drained", now_ns)])
        return True

    @writing
    def end(
        self, conn: sa.Connection, cluster: str, hostname: str, unavailable_max: int, now_ns: int
    ) -> list[HostMaintenance]:
        """End the maintenance of a host that is UP again; returns others whose drain begins because of it."""
        take_numbers(conn, MAINTENANCE_SEQ, 0)
        host, events = _read_one(conn, cluster, hostname), list[HostEvent]()
        if host is not None and host.goal is HostState.UP:
            conn.execute(sa.delete(HOST).where(HOST.c.cluster == cluster, HOST.c.hostname == hostname))
            events.append(host_events.back_up(host, now_ns))
        return _admit(conn, cluster, unavailable_max, now_ns, events)

    @writing
    def note_drain(self, conn: sa.Connection, host: HostMaintenance, progress: DrainProgress, now_ns: int) -> None:
        """Record the drain progress shown to operators; no decision depends on it."""
        conn.execute(_update(host.cluster, host.hostname, progress=to_json(progress)))
        record(conn, [host_events.drain_step(host, progress, now_ns)])


def _steer(conn: sa.Connection, cluster: str, hostname: str, act: MaintenanceAct, now_ns: int) -> HostMaintenance:
    host = _read_one(conn, cluster, hostname)
    if host is None:
        is_completed = act is MaintenanceAct.COMPLETE
        raise NotFound(NOT_DOWN if is_completed else f"host {shorten(hostname)} is not in maintenance")
    if refusal := refusal_of(act, host, now_ns):
        raise NotFound(refusal) if act is MaintenanceAct.COMPLETE else Aborted(refusal)
    if act is MaintenanceAct.FORCE:
        conn.execute(_update(cluster, hostname, is_forced=True, changed_ns=now_ns))
        return replace(host, is_forced=True, changed_ns=now_ns)
    if host.is_move:
        put_to_rest(conn, host.hostname, None, now_ns)
    return _cancel_move(conn, host, now_ns)


def _cancel_move(conn: sa.Connection, host: HostMaintenance, now_ns: int) -> HostMaintenance:
    if host.waits_for_turn:  # nothing has to be undone
        conn.execute(sa.delete(HOST).where(HOST.c.cluster == host.cluster, HOST.c.hostname == host.hostname))
    else:
        conn.execute(_update(host.cluster, host.hostname, goal=_NUMBERS[HostState.UP], changed_ns=now_ns))
    return replace(host, goal=HostState.UP, changed_ns=now_ns)


def _admit(
    conn: sa.Connection, cluster: str, unavailable_max: int, now_ns: int, events: Sequence[HostEvent] = ()
) -> list[HostMaintenance]:
    """Admit waiting hosts as the last step of a transaction; records ``events`` before its own."""
    chosen = {host.hostname for host in turns(_read(conn, cluster), unavailable_max)}
    for hostname in chosen:
        draining = {"state": _NUMBERS[HostState.DRAINING], "drained_from_ns": now_ns, "changed_ns": now_ns}
        conn.execute(_update(cluster, hostname, **draining))
    hosts = _read(conn, cluster)
    begun, unavailable_count = (
        [host for host in hosts if host.hostname in chosen],
        sum(host.is_unavailable for host in hosts),
    )
    record(conn, [*events, *(host_events.drain_begun(host, unavailable_count, now_ns) for host in begun)])
    return begun


def _read(conn: sa.Connection, cluster: str) -> list[HostMaintenance]:
    query = sa.select(HOST).where(HOST.c.cluster == cluster).order_by(HOST.c.seq)
    return [_HOSTS.record(row) for row in conn.execute(query)]


def draining(conn: sa.Connection, cluster: str) -> list[HostMaintenance]:
    """Return draining hosts, the longest first, with the progress of the last round."""
    query = sa.select(HOST).where(HOST.c.cluster == cluster, HOST.c.state == _NUMBERS[HostState.DRAINING])
    return [_HOSTS.record(row) for row in conn.execute(query.order_by(HOST.c.drained_from_ns, HOST.c.hostname))]


def _read_one(conn: sa.Connection, cluster: str, hostname: str) -> HostMaintenance | None:
    query = sa.select(HOST).where(HOST.c.cluster == cluster, HOST.c.hostname == hostname)
    return next(map(_HOSTS.record, conn.execute(query)), None)


def _update(cluster: str, hostname: str, **values: Any) -> sa.Update:
    return sa.update(HOST).where(HOST.c.cluster == cluster, HOST.c.hostname == hostname).values(**values)


def _new_row(cluster: str, request: MaintenanceRequest, seq: int, now_ns: int) -> dict[str, Any]:
    asked: dict[str, Any] = {field.name: getattr(request, field.name) for field in fields(request)}
    asked |= {"seq": seq, "requested_ns": now_ns, "changed_ns": now_ns}
    return _HOSTS.values(HostMaintenance(cluster, state=HostState.UP, goal=HostState.DOWN, **asked))


def _down_instead_of_move_values(request: MaintenanceRequest, now_ns: int) -> dict[str, Any]:
    return {
        "to_pool": "",
        "at_most": request.at_most,
        "deadline_s": request.deadline_s,
        "reason": strip_nul(request.reason),
        "changed_ns": now_ns,
    }


_IS_MOVE = HOST.c.to_pool != ""
