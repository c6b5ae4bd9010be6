"""Runs a machine with a real kubelet, and ends it with its caller: ``keeper.py CGROUP FOLDER COMMAND...``

The command is the first process of a PID namespace, which the kernel ends with this process, in a mount namespace,
which ends with it. After the end of the command, or of the standard input (when the caller is killed), the keeper
removes the rest, which no namespace contains: its control groups and the folder.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "peloton-kubelet-"
NAMESPACES = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=SIGKILL")
REMOVE_MAX_S = 30.0
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


def main(cgroup: str, folder: str, *command: str) -> int:
    remove_stale_cgroups()
    try:
        make_cgroups(cgroup)
        process = subprocess.Popen([*NAMESPACES, *command], stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        ended = os.pidfd_open(process.pid)
        select.select([sys.stdin, ended], [], [])
        process.kill()
        return process.wait()
    finally:
        remove_cgroups(cgroup)
        shutil.rmtree(folder, ignore_errors=True)


def make_cgroups(name: str) -> None:
    """Create the group in all hierarchies of version 1."""
    for hierarchy in CGROUPS.iterdir():
        if (hierarchy / "tasks").is_file():
            (hierarchy / name).mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):
        (CGROUPS / "cpuset" / name / file).write_text((CGROUPS / "cpuset" / file).read_text())


def remove_stale_cgroups() -> None:
    """Remove control groups of machines whose keeper was killed."""
    for found in {path.name for path in CGROUPS.glob(f"*/{CGROUP_PREFIX}*")}:
        if not Path("/proc", found.removeprefix(CGROUP_PREFIX)).exists():
            remove_cgroups(found, max_s=0)


def remove_cgroups(name: str, max_s: float = REMOVE_MAX_S) -> None:
    """Remove the groups, with retries: the last process of one may be about to end."""
    until_s = time.monotonic() + max_s
    while [top for top in CGROUPS.glob(f"*/{name}") if not _remove_tree(top)] and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def _remove_tree(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
