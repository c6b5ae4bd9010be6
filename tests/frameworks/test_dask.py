"""Dask on instances of a job, of which one is killed and one preempted in the middle."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.local import Cluster, temporary
from tests.frameworks.environments import environment, run_in
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY
TIMEOUT_S = 400.0
ENDS = {"SUCCEEDED", "KILLED"}
"""Jobs of which no worker failed: those that scaling down stopped are KILLED."""


def test_a_cluster_of_dask_lives(tmp_path: Path) -> None:
    """Workers follow `scale` and tasks, a killed one is repeated, and one that has to end hands over its results."""
    environment("dask")
    with Cluster(temporary(tmp_path)) as cluster:
        cluster.pool("science")
        jobs = run_in("dask", "tests/frameworks/dask_life.py", cluster.local.address, timeout_s=TIMEOUT_S).split()
        assert {cluster.finish(job) for job in jobs} <= ENDS

        printed = run_in("dask", "examples/dask/pi.py", "--address", cluster.local.address, timeout_s=TIMEOUT_S)
        found = re.fullmatch(r"job (\S+): pi is about (3\.1\d+)\n", printed)
        assert found is not None, printed
        assert cluster.finish(found[1]) in ENDS
