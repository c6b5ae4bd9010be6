"""Pods whose containers are processes: from the sandbox to the last status."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from services.lab.kubernetes.nodes.containers import Container, Machine
from services.lab.kubernetes.nodes.pod_status import REBOOTED, ContainerRun, unknown_termination
from services.lab.kubernetes.nodes.pods import NodeOfPods, NodePod, backoff_s
from services.lab.kubernetes.nodes.volumes import NotMounted, fill_volumes
from services.lab.kubernetes.resources import Json

MOUNT_RETRY_S = 1.0


class ProcessPod(NodePod):
    """Runs init containers one after the other, then all other containers together."""

    def __init__(self, node: NodeOfPods, body: Json, machine: Machine, restart_backoff_s: float) -> None:
        super().__init__(node, body)
        self.folder: Path = machine.data_dir / "pods" / self.uid
        self._machine = machine
        self._restart_backoff_s = restart_backoff_s
        self._grace_s: float | None = None
        self._init = self._make(self.spec.get("initContainers", ()), self.run.init)
        self._main = self._make(self.spec["containers"], self.run.containers)
        self.containers = {container.run.name: container for container in (*self._init, *self._main)}

    def _make(self, rows: Iterable[Json], runs: list[ContainerRun]) -> list[Container]:
        name = self.node.spec.name
        return [Container(self._machine, self, name, row, run) for row, run in zip(rows, runs, strict=True)]

    def start(self) -> None:
        self.begin()
        self.publish()
        self.node.clock.call_later(0.0, self._make_sandbox)

    def _make_sandbox(self) -> None:
        if self.is_gone or self.run.is_over or self._grace_s is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        node_root = self._machine.data_dir / "nodes" / self.node.spec.name
        try:
            fill_volumes(self.body, self.folder, self._machine.store, node_root)
        except NotMounted as error:
            why = f'MountVolume.SetUp failed for volume "{error.volume}" : {error}'
            self.node.stored.warn(self.body, self.node.spec.name, "FailedMount", why)
            self.node.clock.call_later(MOUNT_RETRY_S, self._make_sandbox)
            return
        self.run.has_sandbox = True
        self.publish()
        self._next()

    def _next(self) -> None:
        """Start the next init container, or all others."""
        for container in self._init:
            if not container.run.is_over:
                container.start()
                return
        for container in self._main:
            if container.run.waiting is not None and container.run.waiting["reason"] == "PodInitializing":
                container.run.waiting = {"reason": "ContainerCreating"}
        for container in self._main:
            if not container.run.is_over and container.pid is None:
                container.start()

    def resume(self) -> None:
        """End the pod after a restart of the emulation or of its node, which ended the processes."""
        self.recall()
        for run in (*self.run.init, *self.run.containers):
            if run.ended is None:
                self.run.verdict = REBOOTED
                run.waiting, run.ended = None, unknown_termination(run, self.node.stored.now())
            run.is_over = True
        self.finish()

    # Events of its containers

    def on_change(self) -> None:
        if not self.is_gone:
            self.publish()

    def container_ended(self, container: Container) -> None:
        run = container.run
        if self.is_gone:
            return
        if self._grace_s is None and self.is_restarted(run):
            delay_s = backoff_s(run.restarts, self._restart_backoff_s)
            self.publish()
            container.restart_in(delay_s, self.publish)
            return
        run.is_over = True
        if self._grace_s is None and run in self.run.init and not run.exit_code:
            self.publish()
            self._next()
            return
        self._end_if_over()

    def _end_if_over(self) -> None:
        if not self.run.is_over:
            self.publish()
            return
        if not self.is_deleting:
            self.publish()  # its containers have ended, its sandbox has not
        self.finish()

    def terminate(self, grace_s: float) -> None:
        if self.has_ended or (self._grace_s is not None and grace_s >= self._grace_s):
            return
        self._grace_s = grace_s
        self.give_up_waiting()
        for container in self.containers.values():
            container.stop(grace_s)
            if container.pid is None:
                container.run.is_over = True  # between two of its runs
        if self.run.is_over:
            self._end_if_over()

    def destroy(self) -> None:
        for container in self.containers.values():
            container.destroy()

    def usage(self) -> tuple[float, int]:
        found = [container.usage for container in self.containers.values() if container.usage is not None]
        return sum(usage.cpu_s for usage in found), sum(usage.memory for usage in found)
