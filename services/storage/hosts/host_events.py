"""Events of hosts, each written in the transaction that changes the host.

An event takes its number after all other counters of its transaction: numbers rise in the order of commits, and there
are no deadlocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.lifecycle.host_events import TEXT_MAX
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.times import NS_PER_S
from services.storage.engine import Repository, take_numbers
from services.storage.hosts.tables import HAS_LEFT
from services.storage.mapper import Mapper
from services.storage.tables import CLUSTER_HOST, COUNTER, HOST, HOST_EVENT

HOST_EVENTS_SEQ = "host events"
EVENTS_PER_HOST_MAX = 200
EVENTS_MAX = 1_000_000
"""Maximum number of events kept for all hosts together."""
KEPT_S = 30 * 86_400
PRUNED_MAX = 2_000
"""Maximum number of events deleted in one transaction."""
CROWDED_MAX = 100
"""Maximum number of hosts with surplus events per transaction."""
ADDED_MAX = 500
"""Maximum number of events written in one transaction of ``add``, and of hosts in one statement."""
READ_MAX = 1_000
"""Number of events fetched at a time by full scans."""
_EVENT = HOST_EVENT.c
_EVENTS = Mapper(HostEvent, HOST_EVENT)


class HostEvents(Repository):
    def add(self, events: Sequence[HostEvent]) -> None:
        """Write events of changes that are stored nowhere else."""
        for start in range(0, len(events), ADDED_MAX):
            self._db.write(partial(record, events=events[start : start + ADDED_MAX]))

    def page(
        self,
        hostname: str = "",
        kinds: Collection[HostEventKind] = (),
        before: int = 0,
        after: int = 0,
        limit: int = EVENTS_PER_HOST_MAX,
    ) -> list[HostEvent]:
        """Return events, newest first, numbered above ``after`` and below ``before`` (0: no bound).

        An empty hostname selects all hosts, and empty kinds select all kinds.
        """
        query = sa.select(HOST_EVENT).where(_EVENT.seq > after).order_by(_EVENT.seq.desc()).limit(limit)
        if hostname:
            query = query.where(_EVENT.hostname == hostname)
        if before:
            query = query.where(_EVENT.seq < before)
        known = query.where(_EVENT.kind.in_(sorted(kind.value for kind in kinds or HostEventKind)))
        return self._db.read(lambda conn: [_EVENTS.record(row) for row in conn.execute(known)])

    def open(self, cluster: str, ends: Mapping[HostEventKind, HostEventKind]) -> list[HostEvent]:
        """Return the last begin event of each host of the cluster and kind that has no end event yet.

        ``ends`` maps kinds of begin events to their end events. The method scans all events in order and keeps the open
        ones.
        """
        kinds = sorted(kind.value for kind in {*ends, *ends.values()})
        query = sa.select(HOST_EVENT).where(_EVENT.cluster == cluster, _EVENT.kind.in_(kinds)).order_by(_EVENT.seq)
        begun: dict[tuple[str, str], sa.Row[Any]] = {}
        ended = {end.value: begin.value for begin, end in ends.items()}

        def work(conn: sa.Connection) -> None:
            for row in conn.execute(query, execution_options={"yield_per": READ_MAX}):
                if row.kind in ended:
                    begun.pop((row.hostname, ended[row.kind]), None)
                else:
                    begun[row.hostname, row.kind] = row

        self._db.read(work)
        return [_EVENTS.record(row) for row in begun.values()]

    def prune(self, now_ns: int) -> None:
        """Delete events that are too old or beyond the maximum per host or in total."""
        newest = sa.select(COUNTER.c.value).where(COUNTER.c.name == HOST_EVENTS_SEQ)
        upto = self._db.read(lambda conn: int(conn.execute(newest).scalar_one())) - EVENTS_MAX
        oldest = sa.select(_EVENT.seq).order_by(_EVENT.seq).limit(PRUNED_MAX).subquery()
        is_old = sa.or_(_EVENT.seq <= upto, _EVENT.at_ns < now_ns - KEPT_S * NS_PER_S)
        while self._delete(sa.and_(_EVENT.seq.in_(sa.select(oldest.c.seq)), is_old)) == PRUNED_MAX:
            pass
        crowded = sa.select(_EVENT.hostname).group_by(_EVENT.hostname).having(sa.func.count() > EVENTS_PER_HOST_MAX)
        hosts = self._db.read(lambda conn: sorted(conn.execute(crowded).scalars()))
        for start in range(0, len(hosts), CROWDED_MAX):
            while self._delete(_EVENT.seq.in_(_surplus(hosts[start : start + CROWDED_MAX]))) == PRUNED_MAX:
                pass

    def _delete(self, chosen: sa.ColumnElement[bool]) -> int:
        return self._db.write(lambda conn: conn.execute(sa.delete(HOST_EVENT).where(chosen)).rowcount)


def _surplus(hostnames: Sequence[str]) -> sa.Select[Any]:
    """Select the events of these hosts beyond the newest EVENTS_PER_HOST_MAX."""
    number = sa.func.row_number().over(partition_by=_EVENT.hostname, order_by=_EVENT.seq.desc()).label("number")
    ranked = sa.select(_EVENT.seq, number).where(_EVENT.hostname.in_(hostnames)).subquery()
    return sa.select(ranked.c.seq).where(ranked.c.number > EVENTS_PER_HOST_MAX).limit(PRUNED_MAX)


def record(conn: sa.Connection, events: Iterable[HostEvent | None]) -> None:
    """Write events as the last step of the transaction of their changes; fills in missing clusters."""
    found = [event for event in events if event is not None]
    if not found:
        return
    clusters = _clusters_of(conn, {event.hostname for event in found if not event.cluster})
    first = take_numbers(conn, HOST_EVENTS_SEQ, len(found))
    written = [
        replace(event, seq=seq, cluster=event.cluster or clusters.get(event.hostname, ""), text=event.text[:TEXT_MAX])
        for seq, event in enumerate(found, first)
    ]
    conn.execute(HOST_EVENT.insert(), list(map(_EVENTS.values, written)))


def last_left(conn: sa.Connection, hostnames: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return hosts that have left a cluster -> that cluster and the time of the last departure, as far as recorded."""
    newest = (
        sa.select(sa.func.max(_EVENT.seq))
        .where(_EVENT.hostname.in_(hostnames), sa.text(HAS_LEFT))
        .group_by(_EVENT.hostname)
    )
    rows = conn.execute(sa.select(_EVENT.hostname, _EVENT.cluster, _EVENT.at_ns).where(_EVENT.seq.in_(newest)))
    return {row.hostname: (row.cluster, row.at_ns) for row in rows}


def _clusters_of(conn: sa.Connection, hostnames: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    names = sorted(hostnames)
    for start in range(0, len(names), ADDED_MAX):
        for table in (HOST, CLUSTER_HOST):
            some = sa.select(table.c.hostname, table.c.cluster).where(
                table.c.hostname.in_(names[start : start + ADDED_MAX])
            )
            found |= {row.hostname: row.cluster for row in conn.execute(some)}
    return found
