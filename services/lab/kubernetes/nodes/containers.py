"""Container as a process group of this machine, with its command, log, memory limit and probes."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from services.lab.kubernetes.nodes import environment
from services.lab.kubernetes.nodes.amounts import MEMORY, limit_of
from services.lab.kubernetes.nodes.node_objects import GPU
from services.lab.kubernetes.nodes.pod_status import (
    COMPLETED,
    ERROR,
    OOM_KILLED,
    START_ERROR,
    ContainerRun,
    termination_state,
)
from services.lab.kubernetes.nodes.probes import LIVENESS, READINESS, STARTUP, Probes
from services.lab.kubernetes.nodes.usage_monitor import Usage, UsageMonitor
from services.lab.kubernetes.pods import GRACE_S
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Store
from services.lab.kubernetes.times import stamp
from services.lab.shared.clock import Clock, Timer
from services.lab.shared.gpus import Gpus
from services.lab.shared.images import Images
from services.lab.shared.interactive import Client, Interactive, Size
from services.lab.shared.processes import Command, Processes, environment_of_children, exit_code_of, kill_group

START_CODE = 128
"""Exit code of a container that could not be started."""
UNKNOWN_COMMAND = ("sleep", "infinity")
"""Command of a container without one: images are not read, so their entrypoint is unknown."""
PULL_FAILURES = {
    "absent": 'failed to resolve reference "{image}": {image}: not found',
    "private": 'failed to resolve reference "{image}": pull access denied, repository does not exist or may require '
    "authorization: server message: insufficient_scope: authorization failed",
    "unreachable": 'failed to resolve reference "{image}": failed to do request: dial tcp 192.0.2.1:443: i/o timeout',
}
"""Image names that cannot be pulled, whatever their registry and tag, with containerd's message for each."""
_IMAGE = re.compile(r"[a-z0-9]+([._/:@-]+[A-Za-z0-9]+)*", re.ASCII)


@dataclass(frozen=True)
class Machine:
    """Resources that containers of all nodes share."""

    store: Store
    clock: Clock
    processes: Processes
    images: Images
    monitor: UsageMonitor
    data_dir: Path
    pass_env: tuple[str, ...] = ()
    gpus: Gpus = field(default_factory=Gpus)


class Session(Protocol):
    def kill(self) -> None: ...


class PodOfContainers(Protocol):
    """A pod as its containers see it."""

    body: Json
    folder: Path

    def on_change(self) -> None:
        """The state of a container has changed."""
        ...

    def container_ended(self, container: Container) -> None: ...


class Container:
    def __init__(self, machine: Machine, pod: PodOfContainers, node_name: str, spec: Json, run: ContainerRun) -> None:
        self.spec = spec
        self.run = run
        self.pid: int | None = None
        self.usage: Usage | None = None
        self.sessions: set[Session] = set()
        """Commands that run next to its own."""
        self._machine = machine
        self._pod = pod
        self._node_name = node_name
        self._probes: Probes | None = None
        self._timers: list[Timer] = []
        self._is_stopping = False
        self._out_of_memory = False

    # Start

    def start(self) -> None:
        image = self.spec.get("image", "")
        if not _IMAGE.fullmatch(image):
            self._wait("InvalidImageName", f'Failed to apply default image tag "{image}": invalid reference format')
        elif failure := PULL_FAILURES.get(image_name(image), ""):
            self._cannot_pull(image, f'failed to pull and unpack image "{image}": {failure.format(image=image)}', 0)
        else:
            timer = self._machine.images.use(self._node_name, image, self._create)
            self._timers += [timer] if timer is not None else []

    def _wait(self, reason: str, message: str) -> None:
        self.run.waiting = {"reason": reason, "message": message}
        self._pod.on_change()

    def _cannot_pull(self, image: str, why: str, tries: int) -> None:
        """Report a failed pull, and retry with a growing delay."""
        if self.spec.get("imagePullPolicy") == "Never":
            absent = f'Container image "{image}" is not present with pull policy of Never'
            self._wait("ErrImageNeverPull", absent)
            return
        if tries % 2 == 0:
            self._wait("ErrImagePull", why)
        else:
            self._wait("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}')
        delay_s = min(10.0 * 2 ** (tries // 2), 300.0) if tries % 2 else 1.0
        self._timers.append(self._machine.clock.call_later(delay_s, self._cannot_pull, image, why, tries + 1))

    def _create(self) -> None:
        self._timers.clear()
        run, clock = self.run, self._machine.clock
        try:
            command = self._own_command()
        except environment.Missing as error:
            self._wait("CreateContainerConfigError", str(error))
            self._timers.append(clock.call_later(1.0, self._create))
            return
        run.id = f"emulated://{uuid.uuid4().hex}"
        run.ended = None
        self._out_of_memory = False
        path = log_path(self._pod.folder, run.name, run.restarts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            out = log.fileno()
            try:
                self.pid = self._machine.processes.spawn(command, stdout=out, stderr=out, on_exit=self._on_exit)
            except (OSError, ValueError) as error:
                self._cannot_start(command, error)
                return
        self._running()

    def _cannot_start(self, command: Command, error: Exception) -> None:
        now = self._now()
        why = f'failed to create containerd task: unable to start container process: exec: "{command.argv[0]}": {error}'
        self.run.waiting = None
        self.run.ended = termination_state(START_CODE, START_ERROR, "", now, self.run.id, why)
        self._pod.container_ended(self)

    def _running(self) -> None:
        run, machine = self.run, self._machine
        assert self.pid is not None
        run.waiting, run.started_at = None, self._now()
        run.is_started = STARTUP not in self.spec
        run.is_ready = run.is_started and READINESS not in self.spec
        self.usage = machine.monitor.watch(self.pid, limit_of(self.spec, MEMORY), self._on_limit)
        self._pod.on_change()
        self._probes = Probes(self, machine.clock, machine.processes)
        self._probes.start(*((STARTUP,) if STARTUP in self.spec else (READINESS, LIVENESS)))

    def _now(self) -> str:
        return stamp(self._machine.clock.wall())

    # Its surroundings

    def _own_command(self) -> Command:
        variables = environment.variables_of(self._pod.body, self.spec, self._machine.store)
        argv = (*self.spec.get("command", ()), *self.spec.get("args", ())) or UNKNOWN_COMMAND
        return self._command([environment.expand(text, variables) for text in argv], variables)

    def command(self, argv: list[str]) -> Command:
        """Return a command that runs next to the container's own, in the same folder and environment."""
        try:
            variables = environment.variables_of(self._pod.body, self.spec, self._machine.store)
        except environment.Missing:
            variables = {}
        return self._command(argv, variables)

    def interactive(self, argv: list[str], terminal: Size | None, client: Client) -> Interactive:
        """Return such a command attached to a client. Raises OSError or ValueError when it cannot start."""
        return Interactive(self._machine.processes, self.command(argv), terminal, client)

    def _command(self, argv: list[str], variables: dict[str, str]) -> Command:
        asked = int(self.spec.get("resources", {}).get("limits", {}).get(GPU, 0))
        gpus = self._machine.gpus.grant(self._node_name, self._gpu_owner, asked)
        hostname = self._pod.body["metadata"]["name"]
        own = {**environment_of_children(self._machine.pass_env), **gpus, "HOSTNAME": hostname}
        wanted = self.spec.get("workingDir", "")
        folder = self._pod.folder / "containers" / self.run.name / wanted.lstrip("/")
        if wanted and Path(wanted).is_dir():
            folder = Path(wanted)
        folder.mkdir(parents=True, exist_ok=True)
        return Command(argv, None, folder, own | variables)

    # Events

    def _on_limit(self) -> None:
        if self.pid is not None:
            self._out_of_memory = True
            kill_group(self.pid, signal.SIGKILL)

    def on_probe(self, kind: str, is_good: bool) -> None:
        run = self.run
        if kind != READINESS and not is_good:
            self.stop(float(self._pod.body["spec"].get("terminationGracePeriodSeconds", GRACE_S)))
        elif kind == STARTUP:
            run.is_started, run.is_ready = True, READINESS not in self.spec
            if self._probes is not None:
                self._probes.start(READINESS, LIVENESS)
        elif kind == READINESS:
            run.is_ready = is_good
        self._pod.on_change()

    def _on_exit(self, status: int) -> None:
        assert self.pid is not None
        self._machine.monitor.forget(self.pid)
        self._machine.gpus.give_back(self._node_name, self._gpu_owner)
        self.pid = None
        for session in tuple(self.sessions):
            session.kill()
        self._calm()
        self._is_stopping = False
        code = exit_code_of(status)
        reason = OOM_KILLED if self._out_of_memory else ERROR if code else COMPLETED
        run = self.run
        run.ended = termination_state(code, reason, run.started_at, self._now(), run.id)
        run.is_ready = run.is_started = False
        self._pod.container_ended(self)

    # End

    def restart_in(self, delay_s: float, waits: Callable[[], None]) -> None:
        """Restart after a delay; ``waits`` is called first unless the delay is 0."""
        run = self.run
        run.last, run.is_over = run.ended, False
        if delay_s:
            message = f"back-off {delay_s:g}s restarting failed container={run.name}"
            run.waiting = {"reason": "CrashLoopBackOff", "message": message}
            waits()
        self._timers.append(self._machine.clock.call_later(delay_s, self._again))

    def _again(self) -> None:
        self._timers.clear()
        self.run.restarts += 1
        before = log_path(self._pod.folder, self.run.name, self.run.restarts - 2)
        before.unlink(missing_ok=True)  # the log before the previous one
        self._create()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        self._calm()
        if self.pid is None:
            return
        if not self._is_stopping:
            self._is_stopping = True
            kill_group(self.pid, signal.SIGTERM)
        self._timers.append(self._machine.clock.call_later(grace_s, self._kill, self.pid))

    def _kill(self, pid: int) -> None:
        if self.pid == pid:
            kill_group(pid, signal.SIGKILL)

    def _calm(self) -> None:
        """Stop the timers and probes."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._probes is not None:
            self._probes.stop()
            self._probes = None

    @property
    def _gpu_owner(self) -> str:
        return f"{self._pod.body['metadata']['uid']}/{self.run.name}"

    def destroy(self) -> None:
        """Kill the container. Its end is not reported."""
        self._calm()
        self._machine.gpus.give_back(self._node_name, self._gpu_owner)
        if self.pid is not None:
            kill_group(self.pid, signal.SIGKILL)


def log_path(folder: Path, container: str, number: int) -> Path:
    """Return the file of a log in the folder of a pod. ``number`` counts the runs of the container."""
    return folder / "logs" / f"{container}.{number}.log"


def image_name(image: str) -> str:
    """Return the image without registry, tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
