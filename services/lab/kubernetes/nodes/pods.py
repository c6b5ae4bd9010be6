"""Pod on a node, for every runtime: its status, its deadline and its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from services.lab.kubernetes.nodes.amounts import Amounts, requests_of
from services.lab.kubernetes.nodes.pod_status import (
    DEADLINE,
    ContainerRun,
    PodRun,
    status_of,
    unknown_termination,
)
from services.lab.kubernetes.nodes.stored_pods import StoredPods
from services.lab.kubernetes.pods import GRACE_S
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.times import seconds_of, stamp
from services.lab.shared.clock import Clock, Timer
from services.lab.shared.hosts import HostSpec

BACKOFF_MAX_S = 300.0


class NodeOfPods(Protocol):
    """A node as its pods see it."""

    spec: HostSpec
    clock: Clock
    stored: StoredPods

    def on_end(self, pod: NodePod) -> None:
        """Handle the end of all containers of a pod."""
        ...


class NodePod(ABC):
    def __init__(self, node: NodeOfPods, body: Json) -> None:
        metadata = body["metadata"]
        self.node = node
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.labels: Mapping[str, str] = metadata.get("labels", {})
        self.body = body
        self.spec: Json = body["spec"]
        self.needed: Amounts = requests_of(self.spec)
        self.run = new_run(body, stamp(node.clock.wall()))
        self.holds_resources = True
        self.is_deleting = False
        self.grace_left_s: float | None = None
        """Grace of its last deletion; None: no deletion was requested."""
        self.is_gone = False
        """True when its object was deleted: its status is not written any more."""
        self._deadline: Timer | None = None

    @property
    def has_ended(self) -> bool:
        return self.run.is_over and not self.run.has_sandbox

    @abstractmethod
    def start(self) -> None:
        """Start the pod after its node has admitted it."""

    @abstractmethod
    def resume(self) -> None:
        """Resume a pod that had started before a restart of the emulation."""

    @abstractmethod
    def terminate(self, grace_s: float) -> None:
        """End the containers within this grace. Further calls are allowed."""

    @abstractmethod
    def destroy(self) -> None:
        """Kill the containers without a status update."""

    def recall(self) -> None:
        """Load the state of the containers from the stored status."""
        status = self.body.get("status", {})
        rows = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        by_name = {row["name"]: row for row in rows}
        for run in (*self.run.init, *self.run.containers):
            row = by_name.get(run.name, {})
            run.restarts, run.id = row.get("restartCount", 0), row.get("containerID", "")
            state = row.get("state", {})
            if "running" in state:
                run.waiting, run.started_at = None, state["running"]["startedAt"]
            elif "terminated" in state:
                run.waiting, run.ended = None, state["terminated"]

    @abstractmethod
    def usage(self) -> tuple[float, int]:
        """Return CPU seconds since the start, and bytes of memory."""

    def begin(self) -> None:
        deadline_s = self.spec.get("activeDeadlineSeconds")
        if deadline_s is not None:
            due_s = seconds_of(self.run.start_time) + deadline_s - self.node.clock.wall()
            self._deadline = self.node.clock.call_later(max(due_s, 0.0), self._expire)

    def _expire(self) -> None:
        if not self.run.is_over and self.run.verdict is None:
            self.run.verdict = DEADLINE
            self.publish()
            self.terminate(float(self.spec.get("terminationGracePeriodSeconds", GRACE_S)))

    def delete(self, grace_s: float) -> None:
        """Handle a deletion of the pod's object."""
        if self.has_ended:
            self.node.stored.remove(self.namespace, self.name, self.uid)
            return
        self.is_deleting = True
        self.grace_left_s = grace_s
        self.terminate(grace_s)

    def on_removal(self) -> None:
        """Handle the removal of the object, which is forced when containers still run."""
        self.is_gone = True
        self.cancel_deadline()
        self.destroy()

    def cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def publish(self) -> None:
        stored = self.node.stored
        entry = None if self.is_gone else stored.find(self.namespace, self.name, self.uid)
        if entry is not None:
            self.body = entry.body
            stored.write_status(entry, status_of(self.run, entry.body.get("status", {}), stored.now()))

    def finish(self) -> None:
        """Set the last phase after the end of all containers, and remove a deleted pod."""
        self.cancel_deadline()
        self.run.has_sandbox = False
        self.publish()
        self.node.on_end(self)
        if self.is_deleting and not self.is_gone:
            self.node.stored.remove(self.namespace, self.name, self.uid)

    def is_restarted(self, run: ContainerRun) -> bool:
        """Return whether the container starts again after this end."""
        policy = self.spec.get("restartPolicy", "Always")
        if self.is_deleting or self.run.verdict is not None or policy == "Never":
            return False
        if run in self.run.init:
            return run.exit_code != 0
        return policy == "Always" or run.exit_code != 0

    def give_up_waiting(self) -> None:
        """End containers that have not started, with an unknown status."""
        now = self.node.stored.now()
        for run in (*self.run.init, *self.run.containers):
            if run.waiting is not None and not run.is_over:
                run.waiting, run.ended, run.is_over = None, run.ended or unknown_termination(run, now), True


def new_run(body: Json, now: str) -> PodRun:
    spec = body["spec"]
    init = [ContainerRun(row["name"], row.get("image", "")) for row in spec.get("initContainers", ())]
    containers = [ContainerRun(row["name"], row.get("image", "")) for row in spec["containers"]]
    if init:
        for run in (*init, *containers):
            run.waiting = {"reason": "PodInitializing"}
    return PodRun(body.get("status", {}).get("startTime", now), containers, init)


def backoff_s(restarts: int, first_s: float) -> float:
    """Return the restart delay: 0 at first, then ``first_s``, then doubled each time."""
    return 0.0 if restarts == 0 else min(first_s * 2 ** (restarts - 1), BACKOFF_MAX_S)
