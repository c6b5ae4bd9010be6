"""Simulated pods: a few status writes each, and one entry in the heap of timers at a time."""

from __future__ import annotations

from signal import SIGTERM

from services.lab.kubernetes.nodes.amounts import MEMORY
from services.lab.kubernetes.nodes.pod_status import (
    COMPLETED,
    ERROR,
    ContainerRun,
    termination_state,
)
from services.lab.kubernetes.nodes.pods import (
    NodeOfPods,
    NodePod,
    backoff_s,
)
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.times import seconds_of
from services.lab.shared.clock import Timer
from services.lab.shared.images import Images
from services.lab.shared.simulation.behaviour import Behaviour, behaviour, simulate

RESTART_S = 1.0
"""Minimum seconds between two runs of a container, which may take no time itself."""


class SimulatedPod(NodePod):
    """Pod whose containers start together. It runs as long as the longest of them."""

    def __init__(self, node: NodeOfPods, body: Json, settings: NodeSettings, images: Images) -> None:
        super().__init__(node, body)
        self._settings = settings
        self._images = images
        self._timer: Timer | None = None  # what comes next: its image, its start, its end

    def _plan(self, container: Json) -> Behaviour:
        text = " ".join((*container.get("command", ()), *container.get("args", ())))
        variables = {row["name"]: row.get("value", "") for row in container.get("env", ())}
        requested = behaviour(text, variables, self._settings.task_variables)
        return simulate(requested, self._settings.simulation, self.node.spec, self.name, text, self.labels)

    def start(self) -> None:
        self.begin()
        self.run.has_sandbox = True
        image = self.spec["containers"][0].get("image", "")
        self._timer = self._images.use(self.node.spec.name, image, self._initialize) or self._timer

    def _initialize(self) -> None:
        plans = [self._plan(row) for row in self.spec.get("initContainers", ())]
        seconds = sum(plan.seconds for plan in plans)
        if not seconds:
            self._start_containers()
            return
        self.publish()
        self._timer = self.node.clock.call_later(seconds, self._start_containers)

    def _start_containers(self) -> None:
        for run, row in zip(self.run.init, self.spec.get("initContainers", ()), strict=True):
            self._end_container(run, exit_code(self._plan(row)))
            if run.exit_code:
                self._finish_run()
                return
        self._run()

    def _run(self) -> None:
        now = self.node.stored.now()
        for run in self.run.containers:
            run.waiting, run.started_at, run.ended = None, now, None
            run.id = f"simulated://{self.uid}-{run.name}-{run.restarts}"
            run.is_ready = run.is_started = True
        self.publish()
        self._timer = self.node.clock.call_later(self._seconds(), self._end)

    def _seconds(self) -> float:
        return max(self._plan(row).seconds for row in self.spec["containers"])

    def _end(self) -> None:
        for run, row in zip(self.run.containers, self.spec["containers"], strict=True):
            self._end_container(run, exit_code(self._plan(row)))
        again = [run for run in self.run.containers if self.is_restarted(run)]
        if not again:
            self._finish_run()
            return
        first = again[0]
        for run in again:
            run.is_over, run.last, run.waiting = False, run.ended, {"reason": "CrashLoopBackOff"}
        self.publish()
        delay_s = max(backoff_s(first.restarts, self._settings.restart_backoff_s), RESTART_S)
        for run in again:
            run.restarts += 1
        self._timer = self.node.clock.call_later(delay_s, self._run)

    def _end_container(self, run: ContainerRun, code: int) -> None:
        now = self.node.stored.now()
        run.ended = termination_state(code, ERROR if code else COMPLETED, run.started_at or now, now, run.id)
        run.waiting, run.is_over, run.is_ready, run.is_started = None, True, False, False

    def _finish_run(self) -> None:
        self._cancel()
        self.finish()

    def resume(self) -> None:
        self.recall()
        running = [run for run in self.run.containers if run.waiting is None and run.ended is None]
        if not running:
            self.run.containers[:] = [ContainerRun(run.name, run.image) for run in self.run.containers]
            self.start()
            return
        self.begin()
        self.run.has_sandbox = True
        for run in running:
            run.is_ready = run.is_started = True
        for run, row in zip(self.run.init, self.spec.get("initContainers", ()), strict=True):
            self._end_container(run, exit_code(self._plan(row)))
        due_s = seconds_of(running[0].started_at) + self._seconds() - self.node.clock.wall()
        self._timer = self.node.clock.call_later(max(due_s, 0.0), self._end)

    def terminate(self, grace_s: float) -> None:
        if self.has_ended:
            return
        self._cancel()
        for run in self.run.containers:
            if run.waiting is None and not run.is_over:
                self._end_container(run, 128 + SIGTERM)
        self.give_up_waiting()
        self.finish()

    def destroy(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def usage(self) -> tuple[float, int]:
        """Return a steady usage, a fixed share of the requests."""
        if not self.run.containers[0].started_at or self.run.is_over:
            return 0.0, 0
        share = self._plan(self.spec["containers"][0]).share
        age_s = self.node.clock.wall() - seconds_of(self.run.containers[0].started_at)
        return self.needed.get("cpu", 0) / 1000 * share * age_s, int(self.needed.get(MEMORY, 0) * share)


def exit_code(plan: Behaviour) -> int:
    return 128 + plan.signal if plan.signal else plan.code
