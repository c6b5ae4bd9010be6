"""Gangs that are held back after launches in vain: in their queues, and passed by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peloton.scheduling.admission import GangRun
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.reason import Reason, Rule
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.ledger import JobLedger
from services.resmgr.queues import PoolQueues, WaitingRuns

_NS = 10**9


def held_gangs(tree: PoolTree, waiting: WaitingRuns, ledgers: Iterable[JobLedger], now_ns: int) -> list[HeldGang]:
    """Those of these jobs whose gang stands in a queue and is not to be admitted yet."""
    found: list[HeldGang] = []
    for ledger in ledgers:
        row = tree.row.get(ledger.pool_id)
        if ledger.gang_due_ns <= now_ns or row is None or not tree.is_leaf[row]:
            continue
        left_s = -(-(ledger.gang_due_ns - now_ns) // _NS)
        path, size = tree.paths[row], ledger.gang_size
        reason = Reason(Rule.HELD_BACK, path, left=left_s, bound=ledger.requeue_count, gang_size=size)
        found += [HeldGang(row, run, reason) for run in _gangs(waiting, ledger)]
    return found


def _gangs(waiting: WaitingRuns, ledger: JobLedger) -> Iterator[GangRun]:
    for _, queue in waiting.of_pool(ledger.pool_id):
        yield from (run for run in queue if run.job_id == ledger.job_id and run.gang_size > 1)


def passed_by(
    held: Iterable[HeldGang], waiting: dict[int, PoolQueues], demand: Ints
) -> tuple[dict[int, PoolQueues], Ints]:
    """Queues by row, and demand ``[P,R]``, without the gangs that are held back; what is given is not changed. A gang
    never is revocable."""
    held = list(held)
    if not held:
        return waiting, demand
    waiting, demand = dict(waiting), demand.copy()
    for gang in held:
        demand[gang.row] -= gang.run.need
        kept = {kind: [run for run in queue if run is not gang.run] for kind, queue in waiting.pop(gang.row).items()}
        waiting[gang.row] = {kind: queue for kind, queue in kept.items() if queue}
    return {row: queues for row, queues in waiting.items() if queues}, demand
