"""Host pools, and the current and desired host pool of each host.

Every write increments the counter of changes first, which serialises writes. Host managers compare the counter with
their known version and read the rest only when it has risen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from peloton.errors import AlreadyExists, InvalidArgument, NotFound, Reason
from peloton.lifecycle import host_events
from peloton.model.by_hand import by_hand
from peloton.model.host_pool import DEFAULT_HOST_POOL, IN_DEFAULT, Factors, HostInPool, HostPool, HostPools, Workload
from peloton.model.ids import Hostname
from peloton.model.text import shorten
from peloton.ports import PERSON
from services.storage.engine import Repository, reading, take_numbers, writing
from services.storage.hosts.host_events import record
from services.storage.tables import CLUSTER_HOST, COUNTER, HOST, HOST_IN_POOL, HOST_POOL

HOST_POOLS_SEQ = "host pools"
MOVER_SWITCH = "host pool mover"
"""Name of the ``counter`` row that is 1 while the mover is on."""
HOSTS_PER_STATEMENT = 500
HOST_POOLS_MAX = 1_000


class HostPoolRecords(Repository):
    # -- reading

    @reading
    def all(self, conn: sa.Connection, known: int = -1) -> HostPools | None:
        """Return all host pools; None when nothing has changed since version ``known``."""
        version = int(conn.execute(_VERSION).scalar_one())
        if version == known:
            return None
        is_on = mover_is_on(conn)
        return HostPools(version, read_host_pools(conn), read_places(conn), *_read_loans_and_bounds(conn), is_on)

    def list_known_hosts(self) -> list[Hostname]:
        """Return hosts of all clusters that are registered or in maintenance, by name."""
        query = sa.union(*(sa.select(table.c.hostname) for table in (CLUSTER_HOST, HOST)))
        return self._db.read(lambda conn: sorted(Hostname(name) for name in conn.execute(query).scalars()))

    # -- host pools

    @writing
    def create(self, conn: sa.Connection, pool: HostPool) -> None:
        """Create a host pool. Raises AlreadyExists, InvalidArgument."""
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        pools = read_host_pools(conn)
        if pool.name in pools:
            raise AlreadyExists(f"host pool {pool.name} exists already").because(
                Reason.HOST_POOL_EXISTS, host_pool=pool.name
            )
        if len(pools) >= HOST_POOLS_MAX:
            raise InvalidArgument(f"there are {len(pools)} host pools, the limit is {HOST_POOLS_MAX}")
        conn.execute(HOST_POOL.insert().values(**_row(pool)))

    @writing
    def change(
        self,
        conn: sa.Connection,
        name: str,
        serves: frozenset[Workload] | None = None,
        factors: Mapping[str, int] | None = None,
        minimum: int | None = None,
    ) -> HostPool:
        """Change the given properties: workloads, factors by field, and the minimum of hosts that the mover leaves.

        Returns the new host pool. Raises NotFound.
        """
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        old = _get_existing(conn, name)
        new = HostPool(
            name,
            old.serves if serves is None else serves,
            old.factors._replace(**(factors or {})),
            old.created_ns,
            old.minimum if minimum is None else minimum,
        )
        conn.execute(sa.delete(HOST_POOL).where(HOST_POOL.c.name == name))
        conn.execute(HOST_POOL.insert().values(**_row(new)))
        return new

    @writing
    def delete(self, conn: sa.Connection, name: str) -> None:
        """Delete a host pool: its hosts go to the default pool at once, and moves towards it are cancelled.

        Raises InvalidArgument, NotFound.
        """
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        if name == DEFAULT_HOST_POOL:
            raise InvalidArgument("default pool: it cannot be deleted")
        _get_existing(conn, name)
        conn.execute(sa.delete(HOST_POOL).where(HOST_POOL.c.name == name))
        conn.execute(sa.update(HOST_IN_POOL).where(HOST_IN_POOL.c.lent_by == name).values(lent_by=""))
        moved = conn.execute(sa.select(HOST_IN_POOL.c.hostname).where(HOST_IN_POOL.c.pool == name)).scalars()
        how, now_ns = f"as host pool {name} is deleted", self._db.clock_ns()
        events = [
            host_events.pool_changed(Hostname(host), name, DEFAULT_HOST_POOL, how, now_ns) for host in sorted(moved)
        ]
        is_in, is_to_be_in = HOST_IN_POOL.c.pool == name, HOST_IN_POOL.c.desired_pool == name
        for chosen, values in (
            (sa.and_(is_to_be_in, sa.not_(is_in)), {"desired_pool": HOST_IN_POOL.c.pool}),
            (sa.and_(is_to_be_in, is_in), {"desired_pool": DEFAULT_HOST_POOL}),
            (is_in, {"pool": DEFAULT_HOST_POOL}),
        ):
            conn.execute(sa.update(HOST_IN_POOL).where(chosen).values(**values))
        _forget_settled(conn)
        record(conn, events)

    # -- hosts

    @writing
    def relabel(self, conn: sa.Connection, hostname: str, source: str, destination: str, now_ns: int) -> bool:
        """Change the pool of a host at once, regardless of its pods, and cancel a move of the host.

        Returns whether anything changed. Raises NotFound, InvalidArgument.
        """
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        _check_hosts(conn, [hostname])
        now = read_places(conn, [hostname]).get(Hostname(hostname), IN_DEFAULT)
        if now.current != source:
            raise InvalidArgument(
                f"source pool mismatch: host {hostname} is in host pool {now.current}, "
                f"not in {shorten(source) or 'none'}"
            )
        if source == destination and not now.is_moving:
            return False
        _check_destination(conn, destination)
        put_place(conn, hostname, HostInPool(destination, destination), now_ns)
        if source == destination:
            event = host_events.pool_wanted(Hostname(hostname), source, source, by_hand(PERSON.get()), now_ns)
        else:
            how = f"at once, {by_hand(PERSON.get())}"
            event = host_events.pool_changed(Hostname(hostname), source, destination, how, now_ns)
        record(conn, [event])
        return True

    @writing
    def desire(
        self, conn: sa.Connection, hostnames: Sequence[str], destination: str, now_ns: int, at_most: int = 0
    ) -> list[Hostname]:
        """Set the desired host pool of hosts; ``arrive`` completes each move.

        ``at_most`` is the number of unavailable hosts up to which the moves may begin, 0 for the installation's bound.
        Returns the hosts whose desired pool changed. Applies to all hosts or none: raises NotFound, InvalidArgument.
        """
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        _check_hosts(conn, hostnames)
        _check_destination(conn, destination)
        known, changed = read_places(conn, hostnames), list[Hostname]()
        for hostname in map(Hostname, dict.fromkeys(hostnames)):
            now = known.get(hostname, IN_DEFAULT)
            if now.desired != destination:
                changed.append(hostname)
            if now.desired != destination or (at_most and now.is_moving):
                put_place(conn, hostname, HostInPool(now.current, destination), now_ns, at_most=at_most)
        by = by_hand(PERSON.get())
        currents = {hostname: known.get(hostname, IN_DEFAULT).current for hostname in changed}
        record(conn, [host_events.pool_wanted(*one, destination, by, now_ns) for one in currents.items()])
        return changed

    @writing
    def arrive(self, conn: sa.Connection, hostname: str, desired: str, now_ns: int) -> bool:
        """Complete the move of a host unless its desired pool has changed; returns whether it is in ``desired``."""
        take_numbers(conn, HOST_POOLS_SEQ, 1)
        now = read_places(conn, [hostname]).get(Hostname(hostname))
        if now is None or now.desired != desired:
            return now is None and desired == DEFAULT_HOST_POOL
        before = put_to_rest(conn, Hostname(hostname), desired, now_ns)
        if before != desired:
            how = "emptied by its maintenance"
            record(conn, [host_events.pool_changed(Hostname(hostname), before, desired, how, now_ns)])
        return True


_VERSION = sa.select(COUNTER.c.value).where(COUNTER.c.name == HOST_POOLS_SEQ)


def read_host_pools(conn: sa.Connection) -> dict[str, HostPool]:
    """Read all host pools by name."""
    found = {DEFAULT_HOST_POOL: HostPool(DEFAULT_HOST_POOL)}
    for row in conn.execute(sa.select(HOST_POOL)):
        serves = frozenset(Workload(text) for text in row.serves.split(",") if text)
        factors = Factors(row.cpu_percent, row.memory_percent, row.disk_percent)
        found[row.name] = HostPool(row.name, serves, factors, row.created_ns, row.minimum_hosts)
    return dict(sorted(found.items()))


def read_places(conn: sa.Connection, hostnames: Sequence[str] | None = None) -> dict[Hostname, HostInPool]:
    """Read the places of the named hosts, or of all hosts that have a row."""
    query = sa.select(HOST_IN_POOL)
    queries = (
        [query] if hostnames is None else [query.where(HOST_IN_POOL.c.hostname.in_(p)) for p in in_parts(hostnames)]
    )
    rows = (row for each in queries for row in conn.execute(each))
    return {Hostname(row.hostname): HostInPool(row.pool, row.desired_pool) for row in rows}


def _read_loans_and_bounds(conn: sa.Connection) -> tuple[dict[Hostname, str], dict[Hostname, int]]:
    columns = HOST_IN_POOL.c
    lent = conn.execute(sa.select(columns.hostname, columns.lent_by).where(columns.lent_by != ""))
    bounds = conn.execute(sa.select(columns.hostname, columns.at_most).where(columns.at_most != 0))
    return {Hostname(host): pool for host, pool in lent}, {Hostname(host): count for host, count in bounds}


def mover_is_on(conn: sa.Connection) -> bool:
    return bool(conn.execute(sa.select(COUNTER.c.value).where(COUNTER.c.name == MOVER_SWITCH)).scalar_one())


def _get_existing(conn: sa.Connection, name: str) -> HostPool:
    pool = read_host_pools(conn).get(name)
    if pool is None:
        raise NotFound(f"host pool {shorten(name)} not found").because(Reason.HOST_POOL_NOT_FOUND, host_pool=name)
    return pool


def _check_destination(conn: sa.Connection, name: str) -> None:
    if name not in read_host_pools(conn):
        raise InvalidArgument(f"invalid dest pool: there is no host pool {shorten(name) or 'without a name'}")


def _check_hosts(conn: sa.Connection, hostnames: Sequence[str]) -> None:
    """Raise NotFound unless every host is registered or in maintenance."""
    known: set[str] = set()
    for names in in_parts(hostnames):
        for table in (CLUSTER_HOST, HOST):
            known |= set(conn.execute(sa.select(table.c.hostname).where(table.c.hostname.in_(names))).scalars())
    if unknown := sorted(set(hostnames) - known):
        raise NotFound(f"host not found: {', '.join(map(shorten, unknown[:10]))}").because(
            Reason.HOST_NOT_FOUND, host=unknown[0]
        )


def put_place(
    conn: sa.Connection, hostname: str, now: HostInPool, now_ns: int, lent_by: str = "", at_most: int = 0
) -> None:
    """Write the place of a host; a host that rests in the pool it was lent from counts as returned."""
    if now == (lent_by, lent_by):
        lent_by = ""
    conn.execute(sa.delete(HOST_IN_POOL).where(HOST_IN_POOL.c.hostname == hostname))
    if now != IN_DEFAULT or lent_by:
        values = {"hostname": hostname, "pool": now.current, "desired_pool": now.desired, "changed_ns": now_ns}
        conn.execute(HOST_IN_POOL.insert().values(**values, lent_by=lent_by, at_most=at_most))


def read_desired_pool(conn: sa.Connection, hostname: Hostname) -> str:
    """Return the desired host pool of the host."""
    now = read_places(conn, [hostname]).get(hostname)
    return now.desired if now is not None else DEFAULT_HOST_POOL


def put_to_rest(conn: sa.Connection, hostname: Hostname, pool: str | None, now_ns: int) -> str:
    """Settle the host in ``pool``, or in its current one for None, and return its previous pool."""
    before = read_places(conn, [hostname]).get(hostname, IN_DEFAULT).current
    chosen = pool or before
    lent_by = sa.select(HOST_IN_POOL.c.lent_by).where(HOST_IN_POOL.c.hostname == hostname)
    put_place(conn, hostname, HostInPool(chosen, chosen), now_ns, conn.execute(lent_by).scalar_one_or_none() or "")
    return before


def _forget_settled(conn: sa.Connection) -> None:
    is_settled = [column == DEFAULT_HOST_POOL for column in (HOST_IN_POOL.c.pool, HOST_IN_POOL.c.desired_pool)]
    conn.execute(sa.delete(HOST_IN_POOL).where(*is_settled, HOST_IN_POOL.c.lent_by == ""))


def _row(pool: HostPool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "serves": ",".join(sorted(pool.serves)),
        **pool.factors._asdict(),
        "created_ns": pool.created_ns,
        "minimum_hosts": pool.minimum,
    }


def in_parts(hostnames: Collection[str]) -> list[list[str]]:
    names = sorted(set(hostnames))
    return [names[start : start + HOSTS_PER_STATEMENT] for start in range(0, len(names), HOSTS_PER_STATEMENT)]
