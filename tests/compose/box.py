"""Runs commands as an engine runs them in containers: with root file system, network, host name and processes of their
own, by unshare, an overlay on the files of this machine, and chroot. It needs root on Linux.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY = Path("/dev/shm")
"""Folder of layers and of changes: an overlay on ``/`` needs a file system other than that of ``/``."""
PREFIX = "peloton-compose-"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL")
PROBE_MAX_S = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Image:
    """Files above those of this machine, and the defaults of a Dockerfile."""

    layer: Path | None = None
    binds: Mapping[Path, str] = field(default_factory=dict)
    """Read-only folders and files of this machine, and their paths in containers."""
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = "root"
    folder: str = "/"

    def words(self, entrypoint: Sequence[str] | None, command: Sequence[str] | None) -> list[str]:
        """Return the command line; another entry point drops the image's own command."""
        if entrypoint is not None:
            return [*entrypoint, *(command or ())]
        return [*self.entrypoint, *(self.command if command is None else command)]


@dataclass(frozen=True)
class Box:
    """A container; ``folder`` keeps its changes."""

    folder: Path
    image: Image
    hostname: str = ""
    hosts: str = ""
    """Content of /etc/hosts; without it the names of this machine hold, and its network."""
    mounts: tuple[tuple[Path, str, bool], ...] = ()
    tmpfs: tuple[str, ...] = ("/tmp",)
    environment: Mapping[str, str] = field(default_factory=dict)
    is_read_only: bool = False
    drops_capabilities: bool = False

    def namespaces(self) -> list[str]:
        return [*NAMESPACES, *(["--net"] if self.hosts else [])]

    def script(self, command: Sequence[str]) -> str:
        """Return the shell script of the first process. It continues when it has read a line."""
        root = self.folder / "root"
        upper, work = self.folder / "changes", self.folder / "work"
        lower = f"{self.image.layer}:/" if self.image.layer else "/"
        lines = [
            "set -eu",
            "read -r _",
            f"mkdir -p {root} {upper} {work}",
            f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {root}",
            f"mount -t proc proc {root}/proc",
            *(f"mount --rbind /{name} {root}/{name}" for name in ("dev", "sys")),
            *(f"mkdir -p {root}{path}; mount -t tmpfs tmpfs {root}{path}" for path in self.tmpfs),
        ]
        if self.hostname:
            lines.append(f"hostname {self.hostname}")
        if self.hosts:
            (self.folder / "hosts").write_text(self.hosts)
            lines.append(f"mount --bind {self.folder}/hosts {root}/etc/hosts")
        binds = [*((source, target, True) for source, target in self.image.binds.items()), *self.mounts]
        for source, target, is_read_only in binds:
            made = f"mkdir -p {root}{target}"
            if source.is_file():
                made = f"mkdir -p {root}{os.path.dirname(target)}; touch {root}{target}"
            lines.append(f"{made}; mount --bind {source} {root}{target}")
            lines += [f"mount -o remount,bind,ro {root}{target}"] if is_read_only else []
        if self.is_read_only:
            lines.append(f"mount -o remount,ro {root}")
        return "\n".join([*lines, f"exec chroot {root} {shlex.join(self.words(command))}"])

    def words(self, command: Sequence[str]) -> list[str]:
        """Return a command as the user of the image runs it, with the environment of the box alone."""
        user, _, group = self.image.user.partition(":")
        who = ["setpriv", "--pdeathsig=keep", f"--reuid={user}", f"--regid={group or user}", "--clear-groups"]
        if self.drops_capabilities:
            who += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        known = {"PATH": SEARCHED, "HOME": "/tmp", **self.image.environment, **self.environment}
        variables = [f"{name}={value}" for name, value in known.items()]
        return [*who, "env", "-i", f"--chdir={self.image.folder}", *variables, *command]

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start the first process, which waits for a line at its standard input and ends with this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [*self.namespaces(), "sh", "-c", self.script(command)],
            stdin=subprocess.PIPE,
            preexec_fn=die_with_parent,
            **options,
        )

    def run(self, command: Sequence[str], timeout_s: float) -> str:
        """Run a command to its end, and return its output. Raises CalledProcessError."""
        with self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                output = process.communicate(b"\n", timeout=timeout_s)[0].decode(errors="replace")
            finally:
                process.kill()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, list(command), output)
        return output


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Yield an empty folder, and remove those of processes that were killed."""
    for stale in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", stale.name.removeprefix(PREFIX).partition("-")[0]).exists():
            shutil.rmtree(stale, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lacking() -> str:
    """Return why this machine runs no boxes, as the reason of a skipped test; empty when it runs them."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can run boxes"
    absent = [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    with folder_in_memory() as folder:
        try:
            Box(folder / "probe", Image(), hostname="probe", hosts="127.0.0.1 probe\n").run(["true"], PROBE_MAX_S)
        except subprocess.CalledProcessError as error:
            return f"no namespaces or overlays: {error.output.strip()}"
    return ""
