"""Controller manager, which runs all controllers."""

from __future__ import annotations

import asyncio

from services.emulated_kubernetes.controllers.budgets import Budgets
from services.emulated_kubernetes.controllers.namespaces import Namespaces
from services.emulated_kubernetes.controllers.node_lifecycle import NodeLifecycle
from services.emulated_kubernetes.controllers.owners import Owners
from services.emulated_kubernetes.controllers.pod_collector import PodCollector
from services.emulated_kubernetes.controllers.quotas import Quotas
from services.emulated_kubernetes.controllers.settings import ControllerSettings
from services.emulated_kubernetes.controllers.taint_evictions import TaintEvictions
from services.emulated_kubernetes.registry import Registry
from services.emulation.clock import Clock


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
