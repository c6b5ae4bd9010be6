"""Health check of a process: ``python -m services.healthcheck live|ready|restart FILE``.

The process states its health in the file. The exit code is 0 or 1, the reason is on stderr. live: no loop of the
process hangs. ready: it is live, and its roles work or stand by. restart: like ready, and a hung process is killed, for
engines that restart containers which end and not unhealthy ones.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from services.health_file import read

CHECKS = ("live", "ready", "restart")


def main(check: str, path: str) -> int:
    health = read(Path(path))
    fault = "no heartbeat yet" if health is None else health.hung
    if health is not None and health.hung and check == "restart":
        fault += "; killed"
        os.kill(health.pid, signal.SIGKILL)
    if not fault and health is not None and check != "live":
        fault = health.waits
    if fault:
        print(fault, file=sys.stderr)
    return 1 if fault else 0


def run(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in CHECKS:
        print(f"usage: {'|'.join(CHECKS)} FILE", file=sys.stderr)
        return 1
    return main(*arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
