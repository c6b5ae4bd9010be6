"""Master: its parts, and the connections of their events."""

from __future__ import annotations

import asyncio

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.failover import Failover
from services.lab.mesos.master.frameworks import Frameworks
from services.lab.mesos.master.maintenance import Maintenance
from services.lab.mesos.master.offer_answers import OfferAnswers
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.operations import Operations
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.master.task_calls import TaskCalls
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock


class Master:
    """Composition of the master's parts.

    Each part has references to the parts that it calls, and reports to the others through its hooks. No part has a
    reference to the master; only the APIs do.
    """

    def __init__(self, settings: MiniclusterSettings, clock: Clock) -> None:
        interval_s = settings.allocation_interval_s
        self.registry = registry = Registry(settings.host, clock.wall())
        self.offers = offers = Offers(settings, clock, registry.frameworks)
        self.updates = updates = StatusUpdates(settings.update_retry_s, clock)
        self.frameworks = Frameworks(clock, registry, offers)
        self.tasks = tasks = Tasks(clock, offers, updates)
        self.operations = Operations(offers)
        self.answers = OfferAnswers(interval_s, offers, updates, tasks, self.operations)
        self.agents = Agents(
            settings, clock, registry, offers, updates=updates, tasks=tasks, frameworks=self.frameworks
        )
        self.task_calls = TaskCalls(registry, updates, self.agents, tasks)
        self.maintenance = Maintenance(interval_s, clock, registry, offers, self.agents)
        self.failover = Failover(clock, registry, offers, self.frameworks, self.agents, self.maintenance)
        self._connect()

    def _connect(self) -> None:
        """Connect the hooks in the order of a real master."""
        self.offers.allocated.connect(self.maintenance.offer_inverse)
        self.updates.ended.connect(self.tasks.free)
        self.updates.acknowledged.connect(self.tasks.complete)
        self.tasks.completed.connect(self.agents.task_completed)
        self.agents.left.connect(self.maintenance.rescind_inverse)
        self.frameworks.left.connect(self.maintenance.drop_inverse)
        self.frameworks.returned.connect(self.updates.resend_all)
        self.frameworks.removed.connect(self.tasks.drop)

    def start(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.registry.port = port
        self.offers.start(loop, self.registry.id)

    def stop(self) -> None:
        self.offers.stop()
        for framework in self.registry.frameworks.values():
            framework.stream = None
