"""Resource estimators of the agents, which regularly report their revocable cpu to the master.

Slack is allocated to ordinary tasks and not used. A share of the allocation is withheld, because ordinary tasks can
become busy faster than revocable ones can be evicted. A rise in use counts at once, a fall gradually. The last report
stays while it lies between the estimate and all that is unused, so that noise rescinds no offer.
"""

from __future__ import annotations

from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.model import TERMINAL, Agent, Usage
from services.lab.mesos.resources import CPUS, REVOCABLE_CPUS, THOUSAND, scalar_of
from services.lab.shared.clock import Clock

MARGIN_PERCENT = 10
"""Percentage of the allocation that is withheld."""
FALL_PERCENT = 50
"""Percentage of a fall in use that one estimate takes into account."""
STEP = 10
"""Granularity of estimates: Mesos offers no less cpu than 0.01."""


class Estimator:
    """Estimator for all agents whose hosts file sets no fixed amount."""

    def __init__(self, interval_s: float, clock: Clock, registry: Registry, offers: Offers) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._registry = registry
        self._offers = offers
        # agent id -> smoothed use of its ordinary tasks, in thousandths of a cpu
        self._used: dict[str, int] = {}
        # agent id -> task -> (sample, use)
        self._samples: dict[str, dict[tuple[str, str], tuple[Usage, int | None]]] = {}

    def start(self) -> None:
        self._clock.call_later(self._interval_s, self._round)

    def _round(self) -> None:
        for agent in self._registry.by_host.values():
            if agent.spec.revocable_cpus is None and agent.online and agent.registered:
                self._report(agent)
        self._clock.call_later(self._interval_s, self._round)

    def _report(self, agent: Agent) -> None:
        reported = scalar_of(agent.total, REVOCABLE_CPUS)
        if not agent.tasks and not reported:
            return  # common among many simulated agents
        allocated, measured = self._sample(agent)
        used = self._used[agent.id] = smooth(self._used.get(agent.id, 0), measured)
        self._offers.set_revocable(agent, estimate(reported, allocated, used))

    def _sample(self, agent: Agent) -> tuple[int, int]:
        """Return the allocation of ordinary tasks, and their use since the last sample.

        A task without two measurements counts as using all of its allocation.
        """
        before = self._samples.get(agent.id, {})
        samples: dict[tuple[str, str], tuple[Usage, int | None]] = {}
        allocated = used = 0
        for key, task in (agent.tasks or {}).items():
            held = scalar_of(task.resources, CPUS)
            if task.released or task.state in TERMINAL or REVOCABLE_CPUS in task.resources:
                continue
            allocated += held
            rate = None
            if task.runner is not None and (usage := task.runner.usage()) is not None:
                rate = _rate(before.get(key), usage)
                samples[key] = (usage, rate)
            used += held if rate is None else rate
        self._samples[agent.id] = samples
        return allocated, used


def _rate(before: tuple[Usage, int | None] | None, now: Usage) -> int | None:
    """Return thousandths of a cpu between two samples; the last rate without a new sample."""
    if before is None:
        return None
    then, rate = before
    if now.at_s <= then.at_s:
        return rate
    return round((now.cpu_s - then.cpu_s) / (now.at_s - then.at_s) * THOUSAND)


# Amounts are thousandths of a cpu.


def smooth(before: int, measured: int) -> int:
    """Return the use for the estimate, which is never less than the measured one."""
    return measured if measured >= before else measured + (before - measured) * (100 - FALL_PERCENT) // 100


def target(allocated: int, used: int) -> int:
    """Return the amount that the agent reports when its report changes."""
    return max(0, allocated - _reserve(allocated) - used) // STEP * STEP


def estimate(reported: int, allocated: int, used: int) -> int:
    """Return the next report after ``reported``: never negative, never more than ``allocated - used``."""
    wanted = target(allocated, used)
    unused = max(0, allocated - used)
    if reported > unused:
        return wanted
    is_worth_reporting = wanted - reported >= max(_reserve(allocated), STEP)
    return wanted if is_worth_reporting else reported


def _reserve(allocated: int) -> int:
    return -(-allocated * MARGIN_PERCENT // 100)
