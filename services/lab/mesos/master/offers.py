"""Creation, recovery and rescinding of offers: the stateful part around the pure allocator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.allocation import Sorter, allocatable, end_of_filter, offerable, sees
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.model import Agent, Filter, Framework, Offer
from services.lab.mesos.resources import CPUS, REVOCABLE_CPUS, Resources, add, scalar_of, scalars, subtract
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock

FOREVER = float("inf")
OFFERS_PER_EVENT = 5000


class Offers:
    """Owner of all outstanding offers, the decline filters and the shares of the allocation."""

    def __init__(self, settings: MiniclusterSettings, clock: Clock, frameworks: dict[str, Framework]) -> None:
        self._settings = settings
        self._clock = clock
        self._frameworks = frameworks
        self._random = random.Random(0)
        self.agents: dict[str, Agent] = {}
        self.outstanding: dict[str, Offer] = {}
        self.roles = Sorter()
        self._sorters: dict[str, Sorter] = {}
        self._totals: dict[str, int] = {}
        self._epoch = 0
        self._prefix = ""
        self._count = 0
        self._everything = False
        self._dirty: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.Handle | None = None
        # Fired after an allocation run.
        self.allocated: Hook[()] = Hook()

    def start(self, loop: asyncio.AbstractEventLoop, master_id: str) -> None:
        self._loop = loop
        self._prefix = master_id
        self._tick(self._clock.now() + self._settings.allocation_interval_s)

    def reset_state(self, master_id: str) -> None:
        """Reset for another master, which has no agents and allocations; offers end without an event."""
        for offer in list(self.outstanding.values()):
            self.use(offer)
        self.agents.clear()
        self.roles = Sorter()
        self._sorters.clear()
        self._totals.clear()
        self._prefix, self._count = master_id, 0
        self.invalidate()

    def stop(self) -> None:
        self._loop = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def next_id(self) -> str:
        """Return the next id; offers and inverse offers share one counter."""
        number = self._count
        self._count += 1
        return f"{self._prefix}-O{number}"

    # agents

    def add_agent(self, agent: Agent) -> None:
        self.agents[agent.id] = agent
        for name, value in scalars(agent.total).items():
            self._totals[name] = self._totals.get(name, 0) + value
        self.reoffer(agent)

    def reoffer(self, agent: Agent) -> None:
        """Reconsider an agent whose resources frameworks may now be able to get."""
        agent.wake()
        self.trigger(agent)

    def remove_agent(self, agent: Agent) -> None:
        if self.agents.pop(agent.id, None) is None:
            return
        for name, value in scalars(agent.total).items():
            self._totals[name] -= value
        for framework in self._frameworks.values():
            for key in [key for key in framework.filters if key[1] == agent.id]:
                del framework.filters[key]

    def set_total(self, agent: Agent, total: Resources, free: Resources) -> None:
        """Replace the resources of an agent after a reservation or volume, whose amounts stay the same."""
        agent.total = total
        agent.free = _order_like_total(free, total)
        agent.wake()

    def set_revocable(self, agent: Agent, amount: int) -> None:
        """Set the agent's current revocable cpu.

        As in Mesos, offers that contain some are rescinded, and allocations beyond the new amount stay until they end.
        """
        before = scalar_of(agent.total, REVOCABLE_CPUS)
        if amount == before:
            return
        for offer in agent.all_offers:
            if REVOCABLE_CPUS in offer.resources:
                self.rescind(offer)
        balance = scalar_of(agent.free, REVOCABLE_CPUS) - agent.owed + amount - before
        agent.owed = max(0, -balance)
        agent.total = _with_revocable(agent.total, amount)
        agent.free = _order_like_total(_with_revocable(agent.free, max(0, balance)), agent.total)
        agent.wake()
        if agent.id in self.agents:
            self._totals[CPUS.name] = self._totals.get(CPUS.name, 0) + amount - before
            self.trigger(agent)

    # allocation runs

    def invalidate(self) -> None:
        """Invalidate cached results of all agents after a change of the frameworks."""
        self._epoch += 1

    def trigger(self, agent: Agent | None = None) -> None:
        """Schedule a run, for one agent or for all; several triggers are merged into one run."""
        if agent is None:
            self._everything = True
            self._epoch += 1
        else:
            self._dirty.add(agent.id)
        if self._handle is None and self._loop is not None:
            self._handle = self._loop.call_soon(self._run_triggered)

    def _run_triggered(self) -> None:
        self._handle = None
        everything, dirty = self._everything, self._dirty
        self._everything, self._dirty = False, set()
        if everything:
            self.run(self.agents.values())
        else:
            self.run(self.agents[id_] for id_ in dirty if id_ in self.agents)

    def _tick(self, due: float) -> None:
        now = self._clock.now()
        if now >= due:
            self.run(self.agents.values())
            due += self._settings.allocation_interval_s
            if due < now:
                due = now + self._settings.allocation_interval_s
        self._clock.call_at(due, self._tick, due)

    def run(self, agents: Iterable[Agent]) -> None:
        """Offer available resources of `agents` to the frameworks: one OFFERS event per framework."""
        wanted: dict[str, dict[str, Framework]] = {}
        for framework in self._frameworks.values():
            if framework.active:
                for role in framework.roles:
                    if role not in framework.suppressed:
                        wanted.setdefault(role, {})[framework.id] = framework
        if wanted:
            now = self._clock.now()
            epoch = self._epoch
            candidates = [
                agent
                for agent in agents
                if agent.free and agent.active and not (agent.sleep_epoch == epoch and agent.sleep_until > now)
            ]
            self._random.shuffle(candidates)
            batches: dict[str, list[Offer]] = {}
            for agent in candidates:
                self._allocate(agent, wanted, now, batches)
            self._send(batches)
        self.allocated()

    def _allocate(
        self, agent: Agent, wanted: dict[str, dict[str, Framework]], now: float, batches: dict[str, list[Offer]]
    ) -> None:
        wake = FOREVER
        for role in self.roles.order(wanted, self._totals) if len(wanted) > 1 else tuple(wanted):
            members = wanted[role]
            order = self._sorter(role).order(members, self._totals) if len(members) > 1 else list(members)
            for framework_id in order:
                framework = members[framework_id]
                if not sees(framework, agent.spec):
                    continue
                resources = offerable(agent.free, role, framework)
                if not allocatable(resources):
                    continue
                filters = framework.filters.get((role, agent.id))
                if filters is not None:
                    until = end_of_filter(filters, resources, now)
                    if until > 0.0:
                        wake = min(wake, until)
                        continue
                    filters[:] = [item for item in filters if item.until > now]
                    if not filters:
                        del framework.filters[(role, agent.id)]
                offer = Offer(self.next_id(), framework, agent, role, resources)
                self._hold(offer)
                batches.setdefault(framework_id, []).append(offer)
        agent.sleep_until = wake
        agent.sleep_epoch = self._epoch

    def _hold(self, offer: Offer) -> None:
        agent = offer.agent
        agent.free = {} if offer.resources == agent.free else subtract(agent.free, offer.resources)
        self.outstanding[offer.id] = offer
        offer.framework.offers[offer.id] = offer
        if agent.offers is None:
            agent.offers = {}
        agent.offers[offer.id] = offer
        self.roles.allocate(offer.role, offer.resources)
        self._sorter(offer.role).allocate(offer.framework.id, offer.resources)

    def _send(self, batches: dict[str, list[Offer]]) -> None:
        for framework_id, batch in batches.items():
            framework = self._frameworks[framework_id]
            for start in range(0, len(batch), OFFERS_PER_EVENT):
                framework.send(
                    scheduler_events.offers(framework, batch[start : start + OFFERS_PER_EVENT], self._settings.host)
                )

    def _sorter(self, role: str) -> Sorter:
        sorter = self._sorters.get(role)
        if sorter is None:
            sorter = self._sorters[role] = Sorter()
        return sorter

    # the end of an offer

    def use(self, offer: Offer) -> None:
        """Remove an offer; its resources stay allocated until `recover`."""
        del self.outstanding[offer.id]
        del offer.framework.offers[offer.id]
        if offer.agent.offers is not None:
            offer.agent.offers.pop(offer.id, None)

    def discard(self, offer: Offer) -> None:
        """Take the offer back without an event."""
        self.use(offer)
        self.recover(offer.agent, offer.framework.id, offer.role, offer.resources)

    def rescind(self, offer: Offer) -> None:
        if offer.id not in self.outstanding:
            return
        self.discard(offer)
        offer.framework.send(scheduler_events.rescind(offer.id))

    def rescind_agent(self, agent: Agent) -> None:
        for offer in agent.all_offers:
            self.rescind(offer)

    def discard_all(self, framework: Framework) -> None:
        for offer in list(framework.offers.values()):
            self.discard(offer)

    def recover(self, agent: Agent, framework_id: str, role: str, resources: Resources) -> None:
        """Free the resources of an offer or a finished task."""
        if not resources:
            return
        self.roles.release(role, resources)
        self._sorter(role).release(framework_id, resources)
        freed = scalar_of(resources, REVOCABLE_CPUS) if agent.owed else 0
        if freed:
            paid = min(freed, agent.owed)
            agent.owed -= paid
            resources = _with_revocable(resources, freed - paid)
        agent.free = _order_like_total(add(agent.free, resources), agent.total)
        agent.wake()

    def charge(self, agent: Agent, framework_id: str, role: str, resources: Resources) -> None:
        """Charge resources as used outside an offer, for example when an agent returns with its tasks."""
        self.roles.allocate(role, resources)
        self._sorter(role).allocate(framework_id, resources)
        wanted, have = scalar_of(resources, REVOCABLE_CPUS), scalar_of(agent.free, REVOCABLE_CPUS)
        if wanted > have:  # slack shrank while the agent was disconnected
            agent.owed += wanted - have
            resources = _with_revocable(resources, have)
        agent.free = subtract(agent.free, resources)

    def refuse(self, framework: Framework, agent: Agent, role: str, resources: Resources, seconds: float) -> None:
        if seconds > 0 and resources and agent.id in self.agents:
            item = Filter(resources, self._clock.now() + seconds)
            filters = framework.filters.setdefault((role, agent.id), [])
            # A newer refusal of at least as much for at least as long makes the older ones pointless.
            filters[:] = [old for old in filters if old.resources != resources or old.until > item.until]
            filters.append(item)

    def forget_framework(self, framework: Framework) -> None:
        self.discard_all(framework)
        for role in framework.roles:
            self._sorter(role).remove(framework.id)


def _with_revocable(resources: Resources, amount: int) -> Resources:
    others = {kind: value for kind, value in resources.items() if kind is not REVOCABLE_CPUS}
    return {**others, REVOCABLE_CPUS: amount} if amount else others


def _order_like_total(free: Resources, total: Resources) -> Resources:
    """Return `free` in the order that the agent reported; the agent's own dict when everything is free."""
    if free == total:
        return total
    return {kind: free[kind] for kind in total if kind in free}
