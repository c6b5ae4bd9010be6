"""Runs the services of docker-compose.yml in boxes, as ``docker compose up`` runs them in containers.

Services start when their dependencies are healthy or complete, health checks are executed in the boxes, and services
that ended start again as their restart policies say. Each has an address of its own on a bridge, and finds the others
by name. The caller drives the engine: nothing happens between its calls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.compose.box import Box, Image, die_with_parent
from tests.compose.file import COMPLETED, HEALTHY, ROOT, Service
from tests.waiting import timeout_s

STEP_S = 0.1
COMMAND_MAX_S = 600.0
BACKOFF_S, BACKOFF_MAX_S, STABLE_S = 0.1, 60.0, 10.0
"""First and longest pause before a restart, and the run time after which the pauses begin from the first again."""
LOG_BYTES_SHOWN = 3000
STARTED, ENDED = "started", "ended"


@dataclass
class Container:
    service: Service
    image: Image
    log: Path
    process: subprocess.Popen[bytes] | None = None
    box: Box | None = None
    started_s: float = 0.0
    starts: int = 0
    not_before_s: float = 0.0
    code: int | None = None
    """Exit code of the last run, while the service does not run."""
    is_healthy: bool = False
    failures: int = 0
    check: subprocess.Popen[bytes] | None = None
    checked_s: float = 0.0

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_complete(self) -> bool:
        return not self.is_running and self.code == 0 and not self.service.restarts(0)

    @property
    def is_up(self) -> bool:
        """Return whether ``docker compose up --wait`` is content with it."""
        return self.is_complete or (self.is_running and (self.is_healthy or self.service.check is None))

    def meets(self, condition: str) -> bool:
        return {HEALTHY: self.is_running and self.is_healthy, COMPLETED: self.is_complete}[condition]

    def tail(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_BYTES_SHOWN))
            return log.read().decode(errors="replace")


@dataclass
class Engine:
    """``aliases``: names of services that are part of another one, which runs in their place."""

    services: Mapping[str, Service]
    folder: Path
    network: subprocess.Popen[bytes]
    aliases: Mapping[str, str]
    containers: dict[str, Container] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    """Names of services, each with what happened: started, a condition that holds now, or ended."""
    _veths: int = 0

    def up(self) -> None:
        """Start all services, and wait until each is up."""
        self.wait(lambda: all(one.is_up for one in self.containers.values()), "all services are up")

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        began_s = time.monotonic()
        while not is_so():
            self.step()
            waited_s = time.monotonic() - began_s
            assert waited_s < timeout_s() * 3, f"{what}: not after {waited_s:.0f} s\n{self.report()}"
            time.sleep(STEP_S)

    def report(self) -> str:
        lines = [
            f"{name}: {'up' if one.is_up else f'not up, code {one.code}'}" for name, one in self.containers.items()
        ]
        tails = [f"--- {name}\n{one.tail()}" for name, one in self.containers.items() if one.starts and not one.is_up]
        return "\n".join([*lines, *tails])

    def step(self) -> None:
        for name, one in self.containers.items():
            if one.process is not None and one.process.poll() is not None:
                self._end(name, one)
            if self._is_due(one):
                self._start(name, one)
            if one.process is not None and one.service.check is not None:
                self._check(name, one)

    def _is_due(self, one: Container) -> bool:
        if one.is_running or time.monotonic() < one.not_before_s:
            return False
        if one.code is not None:
            return one.service.restarts(one.code)
        known = one.service.depends_on.items()
        return all(self.containers[self.aliases.get(other, other)].meets(condition) for other, condition in known)

    def _start(self, name: str, one: Container) -> None:
        one.starts += 1
        one.box = self._box(name, f"{name}-{one.starts}")
        with one.log.open("ab") as log:
            one.process = self._run(one.box, one.image.words(one.service.entrypoint, one.service.command), name, log)
        one.started_s, one.code, one.is_healthy, one.failures = time.monotonic(), None, False, 0
        one.checked_s = one.started_s
        self.events.append((name, STARTED))

    def _end(self, name: str, one: Container) -> None:
        assert one.process is not None
        one.code, one.process, one.is_healthy = one.process.wait(), None, False
        lasted = time.monotonic() - one.started_s > STABLE_S
        pause_s = BACKOFF_S if lasted else min(BACKOFF_S * 2 ** min(one.starts, 10), BACKOFF_MAX_S)
        one.not_before_s = time.monotonic() + pause_s
        self.events.append((name, COMPLETED if one.is_complete else ENDED))

    def _check(self, name: str, one: Container) -> None:
        """Execute the health check when it is due, and read its result when it has ended."""
        check, now_s = one.service.check, time.monotonic()
        assert check is not None
        assert one.process is not None
        assert one.box is not None
        in_start_period = now_s - one.started_s < check.start_period_s
        if one.check is None:
            pause_s = check.start_interval_s if in_start_period and not one.is_healthy else check.interval_s
            if now_s - one.checked_s >= pause_s:
                one.checked_s = now_s
                with one.log.open("ab") as log:
                    one.check = self._enter(one.process, one.box, check.command, stdout=log, stderr=subprocess.STDOUT)
            return
        if one.check.poll() is None and now_s - one.checked_s < max(check.timeout_s, timeout_s(check.timeout_s)):
            return
        is_passed = one.check.poll() == 0
        one.check.kill()
        one.check.wait()
        one.check = None
        if is_passed and not one.is_healthy:
            self.events.append((name, HEALTHY))
        one.failures = 0 if is_passed or (in_start_period and not one.is_healthy) else one.failures + 1
        one.is_healthy = is_passed or (one.is_healthy and one.failures < check.retries)

    def kill(self, name: str) -> None:
        """End the first process of a service by SIGKILL."""
        process = self.containers[name].process
        assert process is not None
        os.kill(_first_process(process), signal.SIGKILL)

    def exec(self, name: str, *command: str) -> str:
        """Run a command in a service, as ``docker compose exec`` does. Raises CalledProcessError."""
        one = self.containers[name]
        assert one.process is not None, f"{name} does not run"
        assert one.box is not None
        with self._enter(one.process, one.box, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output = process.communicate(timeout=COMMAND_MAX_S)[0].decode(errors="replace")
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(command), output)
        return output

    def run(self, name: str, *command: str) -> str:
        """Run a service once more, with its own command or another one, as ``docker compose run`` does."""
        one = self.containers[name]
        words = list(command) or one.image.words(one.service.entrypoint, one.service.command)
        log = one.log.with_suffix(".once")
        with log.open("wb") as output:
            process = self._run(self._box(name, f"{name}-once-{self._veths}"), words, f"{name}-once", output)
            code = process.wait(COMMAND_MAX_S)
        text = log.read_text(errors="replace")
        if code:
            raise subprocess.CalledProcessError(code, words, text)
        return text

    def down(self) -> None:
        for one in self.containers.values():
            for process in (one.check, one.process):
                if process is not None:
                    process.kill()
                    process.wait()

    def _box(self, name: str, folder: str) -> Box:
        one = self.containers[name]
        service = one.service
        mounts = []
        for source, target, is_read_only in service.mounts:
            path = Path(ROOT, source) if source.startswith(".") else self.folder / "volumes" / source
            if not source.startswith("."):
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o777)  # an engine gives a new volume the owner of the folder in the image
            mounts.append((path.resolve(), target, is_read_only))
        return Box(
            folder=self.folder / folder,
            image=one.image,
            hostname=service.hostname,
            hosts=self._hosts(),
            mounts=tuple(mounts),
            tmpfs=service.tmpfs or ("/tmp", "/run"),
            environment=service.environment,
            is_read_only=service.is_read_only,
            drops_capabilities=service.drops_capabilities,
        )

    def _hosts(self) -> str:
        names = {name: self.aliases.get(name, name) for name in self.services}
        lines = [f"{self.address(real)} {name}" for name, real in names.items() if real in self.containers]
        return "\n".join(["127.0.0.1 localhost", *lines, ""])

    def address(self, name: str) -> str:
        return f"10.99.0.{2 + list(self.services).index(name)}"

    def _run(self, box: Box, command: list[str], name: str, log: BinaryIO) -> subprocess.Popen[bytes]:
        process = box.start(command, stdout=log, stderr=subprocess.STDOUT)
        assert process.stdin is not None
        self._connect(process, name)
        process.stdin.write(b"\n")
        process.stdin.close()
        return process

    def _connect(self, process: subprocess.Popen[bytes], name: str) -> None:
        """Give the first process of a box its network. One that runs once has an address without a name."""
        mine = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{process.pid}/ns/net") == mine:
            time.sleep(0.01)
        self._veths += 1
        address = self.address(name) if name in self.containers else f"10.99.1.{self._veths % 250 + 1}"
        switch, box = f"nsenter -t {self.network.pid} -n", f"nsenter -t {process.pid} -n"
        for command in (
            f"{switch} ip link add v{self._veths} type veth peer name eth0 netns {process.pid}",
            f"{switch} ip link set v{self._veths} master br0 up",
            f"{box} ip addr add {address}/16 dev eth0",
            f"{box} ip link set eth0 up",
            f"{box} ip link set lo up",
        ):
            subprocess.run(command.split(), check=True, capture_output=True)

    def _enter(
        self, process: subprocess.Popen[bytes], box: Box, command: tuple[str, ...], **outputs: Any
    ) -> subprocess.Popen[bytes]:
        target = [
            "nsenter",
            "-t",
            str(_first_process(process)),
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--net",
            "--root",
        ]
        return subprocess.Popen(
            [*target, "--", *box.words(command)], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **outputs
        )


def _first_process(process: subprocess.Popen[bytes]) -> int:
    """Return the process that ``unshare`` has forked; itself when that is ending."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


@contextmanager
def engine(
    services: Mapping[str, Service], images: Mapping[str, Image], folder: Path, aliases: Mapping[str, str]
) -> Iterator[Engine]:
    """Yield an engine for the services whose images are there, and end all of its processes."""
    (folder / "logs").mkdir()
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=die_with_parent) as network:
        made = Engine(services, folder, network, aliases)
        try:
            while os.readlink(f"/proc/{network.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                time.sleep(0.01)
            bridge = "ip link add br0 type bridge && ip addr add 10.99.255.254/16 dev br0 && ip link set br0 up"
            subprocess.run(["nsenter", "-t", str(network.pid), "-n", "sh", "-c", bridge], check=True)
            for name, service in services.items():
                if service.repository in images and name not in aliases:
                    made.containers[name] = Container(
                        service, images[service.repository], folder / "logs" / f"{name}.log"
                    )
            yield made
        finally:
            made.down()
            network.kill()
