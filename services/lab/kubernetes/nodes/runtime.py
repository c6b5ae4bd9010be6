"""Runtimes of the pods of all nodes: processes of this machine, or a simulation."""

from __future__ import annotations

import asyncio
import shutil
from typing import Protocol

from services.lab.kubernetes.nodes.containers import Machine
from services.lab.kubernetes.nodes.pods import NodeOfPods, NodePod
from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.nodes.simulated_pods import SimulatedPod
from services.lab.kubernetes.nodes.usage_monitor import UsageMonitor
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Store
from services.lab.shared.clock import Clock
from services.lab.shared.images import Images
from services.lab.shared.processes import Processes


class Runtime(Protocol):
    images: Images

    def pod(self, node: NodeOfPods, body: Json) -> NodePod: ...

    def forget(self, uid: str) -> None:
        """Delete the files of a pod after its object was deleted."""
        ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def runtime_of(settings: NodeSettings, store: Store, clock: Clock) -> Runtime:
    return SimulatedRuntime(settings, clock) if settings.simulate else ProcessRuntime(settings, store, clock)


class SimulatedRuntime:
    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        self._settings = settings
        self.images = _images(settings, clock)

    def pod(self, node: NodeOfPods, body: Json) -> NodePod:
        return SimulatedPod(node, body, self._settings, self.images)

    def forget(self, uid: str) -> None:
        """Do nothing: simulated pods have no files."""

    async def start(self) -> None:
        """Do nothing: a simulation has no startup."""

    async def close(self) -> None:
        """Do nothing: a simulation has no processes."""


class ProcessRuntime:
    def __init__(self, settings: NodeSettings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self.images = _images(settings, clock)
        self._machine = Machine(
            store,
            clock,
            Processes(settings.data_dir),
            self.images,
            UsageMonitor(clock, settings.usage_interval_s),
            settings.data_dir,
            settings.pass_env,
        )

    def pod(self, node: NodeOfPods, body: Json) -> NodePod:
        return ProcessPod(node, body, self._machine, self._settings.restart_backoff_s)

    def forget(self, uid: str) -> None:
        shutil.rmtree(self._machine.data_dir / "pods" / uid, ignore_errors=True)

    async def start(self) -> None:
        folder = self._machine.data_dir / "pods"
        folder.mkdir(parents=True, exist_ok=True)
        self._machine.processes.start(asyncio.get_running_loop())
        kept = {body["metadata"]["uid"] for body in self._store.values("pods")}
        for path in folder.iterdir():  # of pods that were deleted while the emulation was down
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    async def close(self) -> None:
        await self._machine.processes.close()


def _images(settings: NodeSettings, clock: Clock) -> Images:
    specs = {spec.name: spec for spec in settings.hosts}
    usual_s = settings.image_download_s
    return Images(clock, lambda node, image: settings.simulation.download_s(specs[node], image, usual_s))
