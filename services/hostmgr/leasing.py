"""Leases hosts, of room that is announced or that the driver brings when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peloton.model.host import Desired, HostLease
from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from services.hostmgr.driver import ClusterDriver, RoomWish
from services.hostmgr.hosts.pool import HostPool


def lease_hosts(
    pool: HostPool,
    driver: ClusterDriver,
    job_id: JobId,
    wanted: Sequence[tuple[PodShape, int]],
    clock: Callable[[], float],
    for_gang: bool = False,
    desired: Sequence[Desired] = (),
) -> HostLease:
    holder, shapes = (job_id, for_gang), [shape for shape, _ in wanted]
    lease = pool.acquire(job_id, wanted, clock(), for_gang, desired)
    is_poor = any(host.is_shunned for host in lease.hosts)
    if driver.want_room(RoomWish(holder, shapes, lease.short, is_poor, pool.may_fit)):
        lease = pool.acquire(job_id, wanted, clock(), for_gang, desired)  # instead of the first, which ends
    driver.room_sufficed(holder, [shape for shape in shapes if shape not in lease.short])
    return lease
