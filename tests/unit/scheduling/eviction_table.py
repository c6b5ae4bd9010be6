"""A cluster for tests of preemption: pools, gangs that are held and gangs that wait, drawn as tables or built.

A scenario file is: comments (#), a ``capacity`` line, a table of pools, one of held and one of waiting runs, a line of
dashes, and the expected table of evictions. ``need`` is of one gang. Flags: ``launched``, ``revocable``,
``controller``, ``fixed`` (not preemptible). ``due`` lists pools; without such a line every pool above its entitlement
has been so for long enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.ids import JobId
from peloton.scheduling.admission import Admission, admit
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.eviction import Eviction, HeldRun
from peloton.scheduling.gangs import GangRun, QueueKind, Usage
from peloton.scheduling.preemption import over_entitled, preempt
from peloton.scheduling.tree import Ints, PoolTree
from tests.unit.scheduling.pool_table import Row, Scenario, amounts, draw_table, pool_id, read_table


@dataclass
class Stage:
    tree: PoolTree
    capacity: Ints
    slack_cpu: int = 0
    held: list[HeldRun] = field(default_factory=list)
    waiting: list[tuple[int, GangRun]] = field(default_factory=list)

    def usage(self, held: Iterable[HeldRun] | None = None) -> Usage:
        usage = Usage(*(np.zeros_like(self.tree.reservation) for _ in range(4)))
        for one in self.held if held is None else held:
            amount = np.array(one.run.need) * one.run.gang_count
            if one.run.revocable:
                usage.slack[one.pool] += amount
                continue
            usage.non_slack[one.pool] += amount
            usage.non_preemptible[one.pool] += amount * (not one.run.preemptible)
            usage.controller[one.pool] += amount * one.run.controller
        return usage

    def queues(self) -> Mapping[int, Mapping[QueueKind, Sequence[GangRun]]]:
        found: dict[int, dict[QueueKind, list[GangRun]]] = {}
        for row, run in sorted(self.waiting, key=lambda one: one[1].order):
            found.setdefault(row, {}).setdefault(run.queue, []).append(run)
        return found

    def demand(self) -> tuple[Ints, Ints]:
        demand, slack_demand = np.zeros_like(self.tree.reservation), np.zeros_like(self.tree.reservation)
        for row, run in self.waiting:
            (slack_demand if run.revocable else demand)[row] += np.array(run.need) * run.gang_count
        return demand, slack_demand

    def entitlement(self) -> Entitlement:
        usage = self.usage()
        return entitle(self.tree, Load(*self.demand(), usage.non_slack, usage.slack), self.capacity, self.slack_cpu)

    def over(self) -> list[int]:
        return over_entitled(self.tree, self.entitlement(), self.usage())

    def evict(self, due: Iterable[int] | None = None, pod_limit: int = 10_000) -> list[Eviction]:
        rows = frozenset(self.over() if due is None else due)
        return preempt(self.tree, self.entitlement(), self.usage(), self.queues(), self.held, rows, pod_limit)

    def admit_without(self, evictions: Iterable[Eviction]) -> Admission:
        """Admit as if the evicted gangs had never run: the slow and obvious check of the use of evictions."""
        usage, gone = self.usage(), self.usage(HeldRun(one.pool, one.run, one.is_launched) for one in evictions)
        for name in ("non_slack", "slack", "non_preemptible", "controller"):
            getattr(usage, name)[:] -= getattr(gone, name)
        return admit(self.tree, self.entitlement(), usage, self.queues(), 10_000)


def single_gangs(evictions: Iterable[Eviction]) -> list[Eviction]:
    """One eviction for each gang."""
    return [
        replace(one, run=replace(one.run, start=one.run.start + i * one.run.gang_size, gang_count=1))
        for one in evictions
        for i in range(one.run.gang_count)
    ]


def _run(row: Row) -> GangRun:
    flags = row["flags"].split()
    return GangRun(
        JobId(row["job"]),
        int(row.get("start") or 0),
        int(row.get("gangs") or 1),
        int(row.get("size") or 1),
        tuple(amounts(row["need"])),
        int(row["priority"] or 0),
        int(row["seq"] or 0),
        "fixed" not in flags,
        "revocable" in flags,
        "controller" in flags,
    )


@dataclass
class EvictionScenario:
    scenario: Scenario
    stage: Stage
    due: list[int] | None

    @classmethod
    def read(cls, path: Path) -> EvictionScenario:
        scenario = Scenario.parse(path.read_text())
        tables = [part.splitlines() for part in "\n".join(scenario.head).split("\n\n") if part.startswith("|")]
        pools, held, waiting = tables
        scenario_of_pools = Scenario([line for line in scenario.head if not line.startswith("|")] + pools, [])
        tree = scenario_of_pools.tree()
        due = scenario.setting("due")
        return cls(
            scenario,
            Stage(
                tree,
                scenario.capacity,
                scenario.slack_cpu,
                [
                    HeldRun(tree.row[pool_id(row["pool"])], _run(row), "launched" in row["flags"])
                    for row in read_table(held)
                ],
                [(tree.row[pool_id(row["pool"])], _run(row)) for row in read_table(waiting)],
            ),
            None if due == "0" else [tree.row[pool_id(path)] for path in due.strip("- ").split()],
        )

    def draw(self) -> list[str]:
        evictions = self.stage.evict(self.due)
        rows = [
            [
                self.stage.tree.paths[one.pool],
                one.run.job_id,
                f"{one.run.start}+{one.run.pod_count}",
                eviction_text(one.grounds),
            ]
            for one in evictions
        ]
        return draw_table(["pool", "job", "pods", "why"], rows)
