"""Controller manager, which runs all controllers."""

from __future__ import annotations

from services.lab.kubernetes.controllers.deployments import Deployments
from services.lab.kubernetes.controllers.jobs import Jobs
from services.lab.kubernetes.controllers.namespaces import Namespaces
from services.lab.kubernetes.controllers.nodes import NodeController
from services.lab.kubernetes.controllers.owners import Owners
from services.lab.kubernetes.controllers.settings import ControllerSettings
from services.lab.kubernetes.registry import Registry
from services.lab.shared.clock import Clock


class ControllerManager:
    def __init__(self, registry: Registry, clock: Clock, settings: ControllerSettings) -> None:
        self._controllers = (
            Namespaces(registry, clock),
            Owners(registry, clock),
            NodeController(registry, clock, settings.node_grace_s, settings.node_period_s),
            Jobs(registry, clock, settings.retry_s),
            Deployments(registry, clock, settings.retry_s),
        )

    def start(self) -> None:
        """Read the existing objects and follow later events."""
        for controller in self._controllers:
            controller.start()
