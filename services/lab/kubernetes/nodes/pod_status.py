"""The status of a pod as a kubelet writes it: a pure function of what its containers did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.lab.kubernetes.resources import Json

ADDRESS = "127.0.0.1"
"""Address of all nodes and pods, which share one machine."""
NEVER_STARTED = "1970-01-01T00:00:00Z"
COMPLETED, ERROR, OOM_KILLED, START_ERROR = "Completed", "Error", "OOMKilled", "StartError"
UNKNOWN = "ContainerStatusUnknown"
_UNKNOWN_MESSAGE = "The container could not be located when the pod was terminated"
SUCCEEDED, FAILED = "Succeeded", "Failed"
_OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


@dataclass(slots=True)
class ContainerRun:
    """State of one container. It waits while ``waiting`` is set, and runs until ``ended`` is set."""

    name: str
    image: str = ""
    waiting: Json | None = field(default_factory=lambda: {"reason": "ContainerCreating"})
    started_at: str = ""
    ended: Json | None = None
    last: Json | None = None  # how the run before this one ended
    restarts: int = 0
    id: str = ""
    is_ready: bool = False
    is_started: bool = False
    is_over: bool = False
    """True when the container has ended and is not started again."""

    @property
    def exit_code(self) -> int:
        return 0 if self.ended is None else int(self.ended["exitCode"])

    def status(self) -> Json:
        if self.waiting is not None:
            state: Json = {"waiting": self.waiting}
        elif self.ended is not None:
            state = {"terminated": self.ended}
        else:
            state = {"running": {"startedAt": self.started_at}}
        found: Json = {
            "name": self.name,
            "state": state,
            "lastState": {"terminated": self.last} if self.last else {},
            "ready": self.is_ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": "" if not self.id else f"emulated://{self.image}",
            "started": self.is_started,
        }
        if self.id:
            found["containerID"] = self.id
        return found


def termination_state(
    code: int, reason: str, started_at: str, finished_at: str, container_id: str = "", message: str = ""
) -> Json:
    found: Json = {"exitCode": code, "reason": reason}
    if message:
        found["message"] = message
    found |= {"startedAt": started_at or NEVER_STARTED, "finishedAt": finished_at}
    return {**found, "containerID": container_id} if container_id else found


def unknown_termination(run: ContainerRun, now: str) -> Json:
    """The end of a container whose exit was not seen."""
    return termination_state(137, UNKNOWN, run.started_at, now, run.id, _UNKNOWN_MESSAGE)


class Verdict(NamedTuple):
    """Reason and message of a pod that the kubelet ended."""

    reason: str
    message: str


DEADLINE = Verdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
REBOOTED = Verdict("Terminated", "Pod was terminated in response to imminent node shutdown.")


@dataclass(slots=True)
class PodRun:
    """A pod on its node."""

    start_time: str
    containers: list[ContainerRun]
    init: list[ContainerRun] = field(default_factory=list)
    has_sandbox: bool = False
    verdict: Verdict | None = None

    @property
    def is_initialized(self) -> bool:
        return all(run.is_over and run.exit_code == 0 for run in self.init)

    @property
    def is_over(self) -> bool:
        """Return whether no container runs, and none will start."""
        if any(run.is_over and run.exit_code for run in self.init):
            return all(run.is_over or run.waiting for run in self.init)
        return all(run.is_over for run in self.containers)

    @property
    def has_failed(self) -> bool:
        return self.verdict is not None or any(run.exit_code for run in (*self.init, *self.containers) if run.is_over)

    def phase(self) -> str:
        if self.is_over and not self.has_sandbox:
            return FAILED if self.has_failed else SUCCEEDED
        has_run = any(run.is_over or run.last or run.waiting is None for run in self.containers)
        is_waiting = any(run.waiting and not run.last for run in self.containers)
        return "Running" if has_run and not (is_waiting and not self.is_over) else "Pending"


def status_of(run: PodRun, before: Json, now: str) -> Json:
    """Return the status. ``before``: the stored status, whose other fields are kept."""
    found = {
        **before,
        "phase": run.phase(),
        "conditions": _conditions(run, before.get("conditions", ()), now),
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "startTime": run.start_time,
        "containerStatuses": [container.status() for container in run.containers],
    }
    if run.init:
        found["initContainerStatuses"] = [container.status() for container in run.init]
    if run.has_sandbox or run.is_over:
        found |= {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    if run.verdict is not None and run.is_over:
        found |= {"reason": run.verdict.reason, "message": run.verdict.message}
    return found


def _conditions(run: PodRun, before: Sequence[Json], now: str) -> list[Json]:
    known = {row["type"]: row for row in before}
    found = []
    for kind, (status, reason, message) in zip(_OURS, _verdicts(run), strict=True):
        old = known.pop(kind, None)
        is_same = old is not None and old["status"] == status
        row: Json = {"type": kind, "status": status, "lastProbeTime": None}
        row["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and is_same else now
        if reason:
            row["reason"] = reason
        if message:
            row["message"] = message
        found.append(row)
    if run.verdict is REBOOTED and run.is_over and "DisruptionTarget" not in known:
        target = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        found.append({**target, "reason": "TerminationByKubelet", "message": REBOOTED.message})
    return [*found, *known.values()]


def _verdicts(run: PodRun) -> tuple[tuple[str, str, str], ...]:
    """Return status, reason and message of each condition of the kubelet."""
    sandbox = ("True" if run.has_sandbox else "False", "", "")
    will_fail = run.verdict is not None
    if (run.is_over and run.has_failed) or will_fail:
        ready = ("False", "PodFailed", "")
    elif run.is_over:
        ready = ("False", "PodCompleted", "")
    elif run.is_initialized and all(container.is_ready for container in run.containers):
        ready = ("True", "", "")
    else:
        names = " ".join(container.name for container in run.containers if not container.is_ready)
        ready = ("False", "ContainersNotReady", f"containers with unready status: [{names}]")
    if not run.is_initialized:
        names = " ".join(
            container.name for container in run.init if not (container.is_over and not container.exit_code)
        )
        initialized = ("False", "ContainersNotInitialized", f"containers with incomplete status: [{names}]")
    else:
        initialized = ("True", "PodCompleted" if ready[1] == "PodCompleted" else "", "")
    return sandbox, initialized, ready, ready, ("True", "", "")
