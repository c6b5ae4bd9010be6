"""``python -m tests.e2e.forked_up up ...``: the command line, whose local cluster forks its roles (``forked``)."""

from __future__ import annotations

from cli.main import main
from services.lab.local import cluster
from tests.e2e.forked import ForkedCluster, kill_nurseries

if __name__ == "__main__":
    cluster.LocalCluster = ForkedCluster  # type: ignore[misc]
    try:
        main()
    finally:
        kill_nurseries()
