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
from services.storage.engine import Repository, reading, take_numbers, writing
from services.storage.hosts.tables import BEGIN_AND_END, HAS_LEFT
from services.storage.mapper import Mapper
from services.storage.tables import CLUSTER_HOST, COUNTER, HOST, HOST_EVENT

HOST_EVENTS_SEQ = "host events"
EVENTS_PER_HOST_MAX = 200
EVENTS_MAX = 1_000_000
"""Maximum number of events kept for all hosts together."""
CROWDED_MAX = 100
"""Maximum number of hosts whose surplus events one query looks for."""
ADDED_MAX = 500
"""Maximum number of events written in one transaction of ``add``, and of hosts in one statement."""
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

        ``ends`` maps kinds of begin events to their end events, all of them in BEGIN_AND_END. The work grows with the
        number of hosts that had such events, not with the number of events.
        """

        def work(conn: sa.Connection) -> list[HostEvent]:
            found: list[HostEvent] = []
            for begin, end in ends.items():
                named = {"of_cluster": cluster, "of_begin": begin.value, "of_end": end.value}
                found += [_EVENTS.record(row) for row in conn.execute(_OPEN, named)]
            return sorted(found, key=lambda event: event.seq)

        return self._db.read(work)

    @reading
    def list_old(self, conn: sa.Connection, before_ns: int, limit: int) -> list[HostEvent]:
        """Return events to delete, in their order: those from before a time or beyond the maximum in total, or else
        those beyond the maximum of their host."""
        newest = conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == HOST_EVENTS_SEQ)).scalar_one()
        is_old = sa.or_(_EVENT.seq <= newest - EVENTS_MAX, _EVENT.at_ns < before_ns)
        oldest = sa.select(_EVENT.seq).order_by(_EVENT.seq).limit(limit).subquery()
        chosen = sa.and_(_EVENT.seq.in_(sa.select(oldest.c.seq)), is_old)
        found = list(conn.execute(sa.select(HOST_EVENT).where(chosen).order_by(_EVENT.seq)))
        if not found:
            crowded = sa.select(_EVENT.hostname).group_by(_EVENT.hostname).having(sa.func.count() > EVENTS_PER_HOST_MAX)
            hosts = list(conn.execute(crowded.order_by(_EVENT.hostname).limit(CROWDED_MAX)).scalars())
            surplus = sa.select(HOST_EVENT).where(_EVENT.seq.in_(_surplus(hosts))).order_by(_EVENT.seq).limit(limit)
            found = list(conn.execute(surplus))
        return [_EVENTS.record(row) for row in found]

    @reading
    def count_old(self, conn: sa.Connection, before_ns: int, limit: int) -> int:
        """Count events from before a time, up to ``limit``; events are in the order of their times, nearly."""
        some = sa.select(_EVENT.at_ns).order_by(_EVENT.seq).limit(limit).subquery()
        counting = sa.select(sa.func.count()).select_from(some).where(some.c.at_ns < before_ns)
        return int(conn.execute(counting).scalar_one())

    @writing
    def forget(self, conn: sa.Connection, seqs: Sequence[int]) -> int:
        return conn.execute(sa.delete(HOST_EVENT).where(_EVENT.seq.in_(seqs))).rowcount


def _select_open() -> sa.Select[Any]:
    """Select begin events without an end: the hosts are found by one step in the index each, and so are their last
    events."""
    mine = sa.and_(_EVENT.cluster == sa.bindparam("of_cluster"), sa.text(BEGIN_AND_END))
    hosts = sa.select(sa.func.min(_EVENT.hostname).label("hostname")).where(mine).cte("hosts", recursive=True)
    following = sa.select(sa.func.min(_EVENT.hostname)).where(mine, _EVENT.hostname > hosts.c.hostname)
    hosts = hosts.union_all(sa.select(following.scalar_subquery()).where(hosts.c.hostname.is_not(None)))

    def last(kind: str) -> sa.ScalarSelect[Any]:
        of_kind = sa.and_(mine, _EVENT.kind == sa.bindparam(kind), _EVENT.hostname == hosts.c.hostname)
        return sa.select(sa.func.max(_EVENT.seq)).where(of_kind).correlate(hosts).scalar_subquery()

    begun = sa.select(last("of_begin").label("seq"), last("of_end").label("ended")).select_from(hosts).subquery()
    is_open = begun.c.seq > sa.func.coalesce(begun.c.ended, 0)
    return sa.select(HOST_EVENT).where(_EVENT.seq.in_(sa.select(begun.c.seq).where(is_open)))


_OPEN = _select_open()


def _surplus(hostnames: Sequence[str]) -> sa.Select[Any]:
    """Select the events of these hosts beyond the newest EVENTS_PER_HOST_MAX."""
    number = sa.func.row_number().over(partition_by=_EVENT.hostname, order_by=_EVENT.seq.desc()).label("number")
    ranked = sa.select(_EVENT.seq, number).where(_EVENT.hostname.in_(hostnames)).subquery()
    return sa.select(ranked.c.seq).where(ranked.c.number > EVENTS_PER_HOST_MAX)


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
