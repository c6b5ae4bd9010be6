"""Gangs that are held back because no hosts were found for them, or their launch was in vain: in their queues, and
passed by. A pod that stands alone is a gang of one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from peloton.model.ids import JobId, RespoolId
from peloton.scheduling.admission import GangRun
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.reason import Reason, Rule
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.ledger import JobLedger
from services.resmgr.queues import PoolQueues, WaitingRuns

_NS = 10**9


def held_gangs(tree: PoolTree, waiting: WaitingRuns, ledgers: Iterable[JobLedger], now_ns: int) -> list[HeldGang]:
    """What of these jobs stands in a queue and is not to be admitted yet, by job. A queue is gone through once, however
    many are held back."""
    by_pool: dict[RespoolId, dict[JobId, JobLedger]] = {}
    for ledger in ledgers:
        row = tree.row.get(ledger.pool_id)
        if row is not None and tree.is_leaf[row] and ledger.may_be_held_back(now_ns):
            by_pool.setdefault(ledger.pool_id, {})[ledger.job_id] = ledger
    found: list[HeldGang] = []
    for pool_id, mine in by_pool.items():
        row = tree.row[pool_id]
        for _, queue in waiting.of_pool(pool_id):
            for run in (run for run in queue if run.job_id in mine):
                left_ns = mine[run.job_id].due_ns(run) - now_ns
                if left_ns > 0:
                    found.append(HeldGang(row, run, _reason(tree.paths[row], mine[run.job_id], run, left_ns)))
    return sorted(found, key=lambda gang: (gang.run.job_id, gang.run.start))


def _reason(path: str, ledger: JobLedger, run: GangRun, left_ns: int) -> Reason:
    launches = ledger.requeue_count if run.gang_size > 1 else 0
    return Reason(Rule.HELD_BACK, path, left=-(-left_ns // _NS), bound=launches, gang_size=run.gang_size)


def passed_by(
    held: Iterable[HeldGang], waiting: dict[int, PoolQueues], demand: Ints, slack_demand: Ints
) -> tuple[dict[int, PoolQueues], Ints, Ints]:
    """Queues by row, demand and that of revocable pods ``[P,R]``, without the gangs that are held back; what is given
    is not changed."""
    held = list(held)
    if not held:
        return waiting, demand, slack_demand
    waiting, demand, slack_demand = dict(waiting), demand.copy(), slack_demand.copy()
    gone: dict[int, set[int]] = {}
    for gang in held:
        gone.setdefault(gang.row, set()).add(id(gang.run))
        column = slack_demand if gang.run.revocable else demand
        column[gang.row] -= np.multiply(gang.run.need, gang.run.gang_count)
    for row, runs in gone.items():
        kept = {kind: [run for run in queue if id(run) not in runs] for kind, queue in waiting.pop(row).items()}
        waiting[row] = {kind: queue for kind, queue in kept.items() if queue}
    return {row: queues for row, queues in waiting.items() if queues}, demand, slack_demand
