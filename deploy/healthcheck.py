"""Health check of the process in this container: ``python healthcheck.py live|ready|restart``.

The process states its health in the file PELOTON_HEALTH_FILE. The exit code is 0 or 1, the reason is on stderr.
live: no loop of the process hangs. ready: it is live, and its roles work or stand by. restart: like ready, and a hung
process is killed, for engines that restart containers which end and not unhealthy ones.
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


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: healthcheck.py {'|'.join(CHECKS)}")
    sys.exit(main(sys.argv[1], os.environ["PELOTON_HEALTH_FILE"]))
