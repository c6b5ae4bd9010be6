"""Writes of the host pool mover: desired pools of hosts, loans, and the log of its moves.

Every write takes the counter of host pool changes first, as all writes of host pools do.
"""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from peloton.lifecycle import host_events
from peloton.model.host_pool import IN_DEFAULT, HostInPool
from peloton.model.ids import Hostname
from peloton.model.mover import Made, MoverRule
from peloton.model.times import NS_PER_S
from services.storage.engine import Repository, take_numbers, writing
from services.storage.hosts.host_events import record
from services.storage.hosts.host_pools import (
    HOST_POOLS_SEQ,
    MOVER_SWITCH,
    in_parts,
    mover_is_on,
    put_place,
    put_to_rest,
    read_host_pools,
    read_places,
)
from services.storage.mapper import Form, Mapper, Part
from services.storage.tables import COUNTER, HOST, HOST_IN_POOL, HOST_POOL_MOVE

MADE_KEPT = 100
MADE_KEPT_S = 3_600
"""Retention of logged moves in seconds; the newest MADE_KEPT are always kept."""
_MOVES = Mapper(
    Made,
    HOST_POOL_MOVE,
    hostnames=Form(",".join, lambda text: tuple(map(Hostname, text.split(",")))),
    at_ns=Part(("moved_ns",), int, lambda at_ns: [at_ns]),
)


class MoverRecords(Repository):
    @writing
    def switch(self, conn: sa.Connection, is_on: bool) -> None:
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        conn.execute(sa.update(COUNTER).where(COUNTER.c.name == MOVER_SWITCH).values(value=int(is_on)))

    def list_made(self) -> list[Made]:
        """Return logged moves, newest first: all of the last hour, and at least ``MADE_KEPT``."""
        query = sa.select(HOST_POOL_MOVE).order_by(HOST_POOL_MOVE.c.seq.desc())
        return self._db.read(lambda conn: [_MOVES.record(row) for row in conn.execute(query)])

    @writing
    def lend(self, conn: sa.Connection, asked: Made, lender: str, at_most: int) -> Made | None:
        """Take hosts from a host pool, or return them to their ``lender``.

        Hosts that are moving or in maintenance are skipped. Nothing moves when one of the pools is gone or the mover is
        off. Returns the hosts that move, or None.
        """
        seq = take_numbers(conn, HOST_POOLS_SEQ, 1)
        source, destination, hostnames = asked.source, asked.destination, asked.hostnames
        if not {source, destination, lender} <= read_host_pools(conn).keys() or not mover_is_on(conn):
            return None
        known, gone = read_places(conn, hostnames), set[str]()
        for names in in_parts(hostnames):
            gone |= set(conn.execute(sa.select(HOST.c.hostname).where(HOST.c.hostname.in_(names))).scalars())
        free = [host for host in dict.fromkeys(hostnames) if host not in gone]
        going = tuple(host for host in free if known.get(host, IN_DEFAULT) == (source, source))
        for hostname in going:
            put_place(conn, hostname, HostInPool(source, destination), asked.at_ns, lender, at_most)
        return _log_moves(conn, seq, replace(asked, hostnames=going))

    @writing
    def give_up(self, conn: sa.Connection, asked: Made, begun_ns: int) -> Made | None:
        """Cancel unfinished moves that the mover started at ``begun_ns``; returns the affected hosts, or None."""
        columns = HOST_IN_POOL.c
        seq = take_numbers(conn, HOST_POOLS_SEQ, 1)
        query = sa.select(columns.hostname).where(
            columns.pool == asked.source,
            columns.desired_pool == asked.destination,
            columns.lent_by != "",
            columns.changed_ns == begun_ns,
        )
        moving = set(conn.execute(query).scalars())
        stuck = tuple(host for host in asked.hostnames if host in moving)
        for hostname in stuck:
            put_to_rest(conn, hostname, None, asked.at_ns)
        return _log_moves(conn, seq, replace(asked, hostnames=stuck))


def _log_moves(conn: sa.Connection, seq: int, made: Made) -> Made | None:
    """Log moves as the last step of a transaction."""
    if not made.hostnames:
        return None
    columns = HOST_POOL_MOVE.c
    newest = sa.select(columns.seq).order_by(columns.seq.desc()).limit(MADE_KEPT - 1)
    kept = list(conn.execute(newest).scalars())
    if len(kept) == MADE_KEPT - 1:
        is_old = columns.moved_ns < made.at_ns - MADE_KEPT_S * NS_PER_S
        conn.execute(sa.delete(HOST_POOL_MOVE).where(columns.seq < kept[-1], is_old))
    conn.execute(HOST_POOL_MOVE.insert().values(seq=seq, **_MOVES.values(made)))
    to = made.source if made.rule is MoverRule.STUCK else made.destination
    by = host_events.by_mover(made)
    record(conn, [host_events.pool_wanted(host, made.source, to, by, made.at_ns) for host in made.hostnames])
    return made
