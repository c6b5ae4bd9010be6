"""Gangs that are held back after launches in vain: in their queues, and passed by."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.model.ids import JobId, RespoolId
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.reason import Reason, Rule
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.ledger import JobLedger
from services.resmgr.queues import PoolQueues, WaitingRuns

_NS = 10**9


def held_gangs(tree: PoolTree, waiting: WaitingRuns, ledgers: Iterable[JobLedger], now_ns: int) -> list[HeldGang]:
    """Those of these jobs whose gang stands in a queue and is not to be admitted yet, by job. A queue is gone through
    once, however many are held back."""
    by_pool: dict[RespoolId, dict[JobId, JobLedger]] = {}
    for ledger in ledgers:
        row = tree.row.get(ledger.pool_id)
        if ledger.gang_due_ns > now_ns and row is not None and tree.is_leaf[row]:
            by_pool.setdefault(ledger.pool_id, {})[ledger.job_id] = ledger
    found: list[HeldGang] = []
    for pool_id, mine in by_pool.items():
        row = tree.row[pool_id]
        for _, queue in waiting.of_pool(pool_id):
            gangs = (run for run in queue if run.gang_size > 1 and run.job_id in mine)
            found += [HeldGang(row, run, _reason(tree.paths[row], mine[run.job_id], now_ns)) for run in gangs]
    return sorted(found, key=lambda gang: gang.run.job_id)


def _reason(path: str, ledger: JobLedger, now_ns: int) -> Reason:
    left_s = -(-(ledger.gang_due_ns - now_ns) // _NS)
    return Reason(Rule.HELD_BACK, path, left=left_s, bound=ledger.requeue_count, gang_size=ledger.gang_size)


def passed_by(
    held: Iterable[HeldGang], waiting: dict[int, PoolQueues], demand: Ints
) -> tuple[dict[int, PoolQueues], Ints]:
    """Queues by row, and demand ``[P,R]``, without the gangs that are held back; what is given is not changed. A gang
    never is revocable."""
    held = list(held)
    if not held:
        return waiting, demand
    waiting, demand = dict(waiting), demand.copy()
    gone: dict[int, set[int]] = {}
    for gang in held:
        gone.setdefault(gang.row, set()).add(id(gang.run))
        demand[gang.row] -= gang.run.need
    for row, runs in gone.items():
        kept = {kind: [run for run in queue if id(run) not in runs] for kind, queue in waiting.pop(row).items()}
        waiting[row] = {kind: queue for kind, queue in kept.items() if queue}
    return {row: queues for row, queues in waiting.items() if queues}, demand
