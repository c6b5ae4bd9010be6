"""Gangs in backoff, because no hosts were found for them or their launch failed.

They stay in their queues, and others pass them. A single pod is a gang of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from peloton.lifecycle.failed_placements import backoff_min_s
from peloton.lifecycle.gang import REQUEUE_BACKOFF
from peloton.model.ids import JobId, RespoolId
from peloton.model.reason import Reason, Rule
from peloton.model.times import NS_PER_S
from peloton.scheduling.compartments import Compartment, CompartmentLoad
from peloton.scheduling.cycle import HeldGang
from peloton.scheduling.gangs import GangRun
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.accounts import Accounts
from services.resmgr.ledger import JobLedger
from services.resmgr.queues import PoolQueues, WaitingRuns

_WHOLE = 1_000
"""The whole of a pool, as the unit of shares."""
SAME_HOSTS_S = 10
"""Seconds between releases for more free resources on known hosts: pods of an ended daemon leave one by one."""


def find_held_gangs(tree: PoolTree, waiting: WaitingRuns, ledgers: Iterable[JobLedger], now_ns: int) -> list[HeldGang]:
    """Return the gangs of these jobs that are in a queue and in backoff, by job.

    It goes through each queue once, however many gangs are in backoff.
    """
    by_pool: dict[RespoolId, dict[JobId, JobLedger]] = {}
    for ledger in ledgers:
        row = tree.row.get(ledger.pool_id)
        if row is not None and tree.is_leaf[row] and ledger.may_be_in_backoff(now_ns):
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


class Releases:
    """Early releases of gangs in backoff.

    They are released when hosts have come, when known hosts have more free resources because a daemon or a maintenance
    has ended, or when a pod of the job has ended and may leave resources. Releases are spaced out, or all gangs in
    backoff would be tried all the time, as when hosts flap, and block others.

    ``turns``: how many times over the gangs in backoff of a pool would fill it, each run with as much as fits. Released
    gangs count as well for as long as a backoff may last: they are being tried.
    """

    def __init__(self) -> None:
        self.hosts_came = False  # and no release followed yet
        self._capacity_came = False  # the same for known hosts
        self._capacity_due_ns = 0
        self.freed_jobs: set[JobId] = set()  # jobs with an ended pod that may leave resources
        self._due_ns = 0
        self._job_due_ns: dict[JobId, int] = {}
        self._turns: dict[RespoolId, tuple[int, int]] = {}  # -> turns, and the time of counting

    def repeat(self) -> None:
        """Repeat earlier releases after a rebuild: storage does not record them, so memory has the gangs in backoff
        again."""
        self.hosts_came |= self._due_ns > 0
        self._capacity_came |= self._capacity_due_ns > 0
        self.freed_jobs |= self._job_due_ns.keys()

    def note_capacity(self, on_same_hosts: bool) -> None:
        """Note that there is more capacity, or that other host pools serve a workload."""
        self._capacity_came |= on_same_hosts
        self.hosts_came |= not on_same_hosts

    def turns(self, pool_id: RespoolId) -> int:
        return self._turns.get(pool_id, (0, 0))[0]

    def note(self, tree: PoolTree, capacity: Ints, held: Iterable[HeldGang], now_ns: int) -> None:
        """Count the turns of the gangs that are in backoff now."""
        shares: dict[int, int] = {}
        for gang in held:
            limits = np.minimum(tree.limit_above[gang.row], capacity).tolist()
            wanted = zip((need * gang.run.gang_count for need in gang.run.need), limits, strict=True)
            share = max(-(-_WHOLE * want // all_of_it) if want < all_of_it else _WHOLE for want, all_of_it in wanted)
            shares[gang.row] = shares.get(gang.row, 0) + share
        since_ns = now_ns - REQUEUE_BACKOFF.max_s * NS_PER_S
        self._turns = {pool_id: seen for pool_id, seen in self._turns.items() if seen[1] > since_ns}
        for row, share in shares.items():
            pool_id, turns = tree.ids[row], -(-share // _WHOLE)
            if turns >= self.turns(pool_id):
                self._turns[pool_id] = (turns, now_ns)

    def due(self, in_backoff: Collection[JobId], jobs: Mapping[JobId, JobLedger], now_ns: int) -> list[JobId]:
        """Return the jobs in backoff that are released now, by id."""
        self.freed_jobs &= set(in_backoff)
        self._job_due_ns = {job_id: due_ns for job_id, due_ns in self._job_due_ns.items() if due_ns > now_ns}
        if self.hosts_came and now_ns >= self._due_ns:
            most = max((turns for turns, _ in self._turns.values()), default=0)
            self.hosts_came, self._due_ns = False, now_ns + _pause_ns(most)
            found = sorted(in_backoff)
        elif self._capacity_came and now_ns >= self._capacity_due_ns:
            self._capacity_came, self._capacity_due_ns = False, now_ns + SAME_HOSTS_S * NS_PER_S
            found = sorted(in_backoff)
        else:
            found = sorted(self.freed_jobs - self._job_due_ns.keys())
            for job_id in found:
                self._job_due_ns[job_id] = now_ns + _pause_ns(self.turns(jobs[job_id].pool_id))
        self.freed_jobs.difference_update(found)
        return found


def _pause_ns(turns: int) -> int:
    return backoff_min_s(max(turns, 1)) * NS_PER_S


def _reason(path: str, ledger: JobLedger, run: GangRun, left_ns: int) -> Reason:
    launches = ledger.requeue_count if run.gang_size > 1 else 0
    return Reason(Rule.IN_BACKOFF, path, left=-(-left_ns // NS_PER_S), bound=launches, gang_size=run.gang_size)


def skip_held(
    held: Iterable[HeldGang], waiting: dict[int, PoolQueues], demand: Ints, slack_demand: Ints
) -> tuple[dict[int, PoolQueues], Ints, Ints]:
    """Return copies of queues by row, demand and slack demand ``[P,R]``, without the gangs in backoff."""
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


def loads_of(
    compartments: Iterable[Compartment], accounts: Accounts, held: Collection[HeldGang]
) -> tuple[CompartmentLoad, ...]:
    """Return the demand on each compartment, without the gangs in backoff."""
    pairs = zip(compartments, accounts.parts, strict=True)
    if not held:
        return tuple(CompartmentLoad(one, part.demand, part.slack_demand) for one, part in pairs)
    loads = tuple(CompartmentLoad(one, part.demand.copy(), part.slack_demand.copy()) for one, part in pairs)
    for gang in held if loads else ():
        for workload, need in gang.run.needs:
            load = loads[accounts.part_of[workload]]
            column = load.slack_demand if gang.run.revocable else load.demand
            column[gang.row] -= np.multiply(need, gang.run.gang_count)
    return loads
