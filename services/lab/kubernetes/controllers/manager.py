"""Controller manager, which runs all controllers."""

from __future__ import annotations

import asyncio

from services.lab.kubernetes.controllers.budgets import Budgets
from services.lab.kubernetes.controllers.namespaces import Namespaces
from services.lab.kubernetes.controllers.node_lifecycle import NodeLifecycle
from services.lab.kubernetes.controllers.owners import Owners
from services.lab.kubernetes.controllers.pod_collector import PodCollector
from services.lab.kubernetes.controllers.quotas import Quotas
from services.lab.kubernetes.controllers.settings import ControllerSettings
from services.lab.kubernetes.controllers.taint_evictions import TaintEvictions
from services.lab.kubernetes.registry import Registry
from services.lab.shared.clock import Clock


class ControllerManager:
    def __init__(self, registry: Registry, clock: Clock, settings: ControllerSettings) -> None:
        self.budgets = Budgets(registry)
        self._quotas = Quotas(registry)
        self._namespaces = Namespaces(registry)
        self._owners = Owners(registry)
        self._nodes = NodeLifecycle(registry, clock, settings.node_grace_s, settings.node_period_s)
        self._taints = TaintEvictions(registry, clock)
        self._collector = PodCollector(registry, clock, settings.quarantine_s, settings.collect_period_s)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the existing objects and follow later events."""
        for follower in (self.budgets, self._quotas, self._namespaces, self._owners, self._nodes):
            follower.start(loop)
        self._taints.start()
        self._collector.start()
