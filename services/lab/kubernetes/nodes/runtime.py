"""Runtime of the pods of all nodes: processes of this machine, or a simulation."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from services.lab.kubernetes.nodes.containers import Machine, log_path
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


class Runtime:
    def __init__(self, settings: NodeSettings, store: Store, clock: Clock) -> None:
        specs = {spec.name: spec for spec in settings.hosts}
        usual_s = settings.image_download_s
        self._settings = settings
        self._store = store
        self.images = Images(clock, lambda node, image: settings.simulation.download_s(specs[node], image, usual_s))
        self._pods = settings.data_dir / "pods"
        self._machine = (
            None
            if settings.simulate
            else Machine(
                store,
                clock,
                Processes(settings.data_dir),
                self.images,
                monitor=UsageMonitor(clock, settings.usage_interval_s),
                data_dir=settings.data_dir,
                pass_env=settings.pass_env,
            )
        )

    def pod(self, node: NodeOfPods, body: Json) -> NodePod:
        if self._machine is None:
            return SimulatedPod(node, body, self._settings, self.images)
        return ProcessPod(node, body, self._machine, self._settings.restart_backoff_s)

    def log_path(self, uid: str, container: str, number: int) -> Path | None:
        """Return the file of a log; None for simulated pods. ``number`` counts the runs of the container."""
        return None if self._machine is None else log_path(self._pods / uid, container, number)

    def forget(self, uid: str) -> None:
        """Delete the files of a pod after its object was deleted."""
        if self._machine is not None:
            shutil.rmtree(self._pods / uid, ignore_errors=True)

    async def start(self) -> None:
        if self._machine is not None:
            self._pods.mkdir(parents=True, exist_ok=True)
            self._machine.processes.start(asyncio.get_running_loop())
            kept = {body["metadata"]["uid"] for body in self._store.values("pods")}
            for path in self._pods.iterdir():  # of pods that were deleted while the emulation was down
                if path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)

    async def close(self) -> None:
        if self._machine is not None:
            await self._machine.processes.close()
