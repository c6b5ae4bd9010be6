"""The agents' resource estimators: every so often each tells the master how much revocable cpu it has."""

from __future__ import annotations

from services.minicluster.clock import Clock
from services.minicluster.model import TERMINAL, Agent, Task, Usage
from services.minicluster.offers import Offers
from services.minicluster.registry import Registry
from services.minicluster.resources import CPUS, REVOCABLE_CPUS, THOUSAND
from services.minicluster.slack import estimate, smoothed


class Estimator:
    """Serves all agents of the minicluster whose hosts file names no fixed amount."""

    def __init__(self, interval_s: float, clock: Clock, registry: Registry, offers: Offers) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._registry = registry
        self._offers = offers
        self._used: dict[str, int] = {}  # agent id -> smoothed use of its ordinary tasks, in thousandths of a cpu
        self._looks: dict[str, dict[tuple[str, str], tuple[Usage, int | None]]] = {}  # agent id -> task -> (look, use)

    def start(self) -> None:
        self._clock.call_later(self._interval_s, self._round)

    def _round(self) -> None:
        for agent in self._registry.by_host.values():
            if agent.spec.revocable_cpus is None and agent.online and agent.registered:
                self._tell(agent)
        self._clock.call_later(self._interval_s, self._round)

    def _tell(self, agent: Agent) -> None:
        told = agent.total.get(REVOCABLE_CPUS, 0)
        assert isinstance(told, int)
        if not agent.tasks and not told:
            return  # most of many simulated agents
        allocated, measured = self._look(agent)
        used = self._used[agent.id] = smoothed(self._used.get(agent.id, 0), measured)
        self._offers.set_revocable(agent, estimate(told, allocated, used))

    def _look(self, agent: Agent) -> tuple[int, int]:
        """What ordinary tasks hold, and what they have used since the last look. A task that has not been measured
        twice may do anything yet: it counts as using all it has."""
        before = self._looks.get(agent.id, {})
        looks: dict[tuple[str, str], tuple[Usage, int | None]] = {}
        allocated = used = 0
        for key, task in (agent.tasks or {}).items():
            held = task.resources.get(CPUS, 0)
            assert isinstance(held, int)
            if task.released or task.state in TERMINAL or REVOCABLE_CPUS in task.resources:
                continue
            allocated += held
            rate = None
            if (usage := _usage(task)) is not None:
                rate = _rate(before.get(key), usage)
                looks[key] = (usage, rate)
            used += held if rate is None else rate
        self._looks[agent.id] = looks
        return allocated, used


def _usage(task: Task) -> Usage | None:
    return None if task.runner is None else task.runner.usage()


def _rate(before: tuple[Usage, int | None] | None, now: Usage) -> int | None:
    """Thousandths of a cpu between two looks; without a new look it is as it was."""
    if before is None:
        return None
    then, rate = before
    if now.at_s <= then.at_s:
        return rate
    return round((now.cpu_s - then.cpu_s) / (now.at_s - then.at_s) * THOUSAND)
