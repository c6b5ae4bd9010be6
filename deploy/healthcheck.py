"""Health check of the process in this container: ``python healthcheck.py live|ready|restart``.

The process states its health in the file PELOTON_HEALTH_FILE.
"""

from __future__ import annotations

import os
import sys

from services.healthcheck import run

if __name__ == "__main__":
    sys.exit(run([*sys.argv[1:], os.environ["PELOTON_HEALTH_FILE"]]))
