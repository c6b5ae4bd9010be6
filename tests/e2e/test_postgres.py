"""The same system on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.local import Cluster, shell, temporary
from tests.postgres import Postgres, postgres

__all__ = ["postgres"]  # a fixture
pytestmark = pytest.mark.xdist_group("postgres")
PODS = 100


def test_a_job_on_postgresql_survives_the_death_of_its_host_manager(postgres: Postgres, tmp_path: Path) -> None:
    """All pods succeed although the host manager is killed on the way."""
    url = postgres.create_database()
    with Cluster(temporary(tmp_path, simulate=10, database=url)) as cluster:
        job = cluster.submit(cluster.pool("pg"), instanceCount=PODS, defaultConfig=shell("sleep 1", cpu=0.5, memory=16))
        cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= PODS // 5, "a fifth of the pods done")

        cluster.kill("hostmgr")

        assert cluster.finish(job) == "SUCCEEDED"
        assert cluster.counts(job) == {"SUCCEEDED": PODS}
