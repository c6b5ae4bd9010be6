"""One cycle of the resource manager: a snapshot in, a plan out. Nothing is changed here and nothing is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peloton.scheduling.admission import Admission, Queues, Usage, admit
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.tree import Ints, PoolTree


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything a cycle looks at. Arrays are ``[P,R]`` by the rows of ``tree``, own amounts of leaves."""

    tree: PoolTree
    capacity: Ints  # [R] of all hosts that take pods
    slack_cpu: int  # revocable cpu of these hosts
    usage: Usage
    demand: Ints
    slack_demand: Ints
    waiting: Mapping[int, Queues]
    pod_limit: int  # pods admitted in one cycle, about
    begin_at: int = 0  # pool row where the last cycle stopped


@dataclass(frozen=True, eq=False)
class Plan:
    entitlement: Entitlement
    admission: Admission


def plan_cycle(now: Snapshot) -> Plan:
    # 1. What does each pool hold and want?
    load = Load(now.demand, now.slack_demand, now.usage.non_slack, now.usage.slack)

    # 2. What may each pool use?
    entitlement = entitle(now.tree, load, now.capacity, now.slack_cpu)

    # 3. Who holds more than that, and must give it back? (Nobody is asked to, yet: preemption belongs here.)

    # 4. Which gangs may go ahead?
    admission = admit(now.tree, entitlement, now.usage, now.waiting, now.pod_limit, now.begin_at)

    return Plan(entitlement, admission)
