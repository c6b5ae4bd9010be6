"""Cases of Peloton's intended size, on the whole of a local cluster."""

from __future__ import annotations

from typing import Any

from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, run_job
from tests.e2e.local import shell
from tests.postgres import running_postgres


def throughput() -> dict[str, Any]:
    """100,000 empty pods on 1,000 simulated hosts, from submit to SUCCEEDED, on SQLite."""
    return _throughput("")


def throughput_postgres() -> dict[str, Any]:
    """100,000 empty pods on 1,000 simulated hosts, from submit to SUCCEEDED, on PostgreSQL."""
    with running_postgres() as server:
        return _throughput(server.create_database())


def _throughput(database: str, pods: int = 100_000, hosts: int = 1_000) -> dict[str, Any]:
    with Cluster(LocalSettings(port=0, simulate=hosts, database=database)) as cluster:
        life = run_job(cluster, cluster.pool("bench"), pods, shell("true", cpu=1, memory=64))
        rate = pods / life["seconds"]
        database = "postgresql" if database else "sqlite"
        return {"database": database, "hosts": hosts, **life, "ratio_to_target": round(1_000 / rate, 2)}


def job_create() -> dict[str, Any]:
    """50,000 pods of 10 s that have 9,000 slots: 900 cpus for 0.1 each. The slots alone take 60 s."""
    return _job_create(0)


def job_create_overrides() -> dict[str, Any]:
    """50,000 pods of 10 s with 9,000 slots, each with a configuration of its own."""
    return _job_create(50_000)


def _job_create(overrides: int, pods: int = 50_000, hosts: int = 1_000) -> dict[str, Any]:
    own = {str(i): {"name": f"pod{i}", **shell(f"sleep 10; echo {i}", cpu=0.1, memory=16)} for i in range(overrides)}
    with Cluster(LocalSettings(port=0, simulate=hosts)) as cluster:
        config = shell("sleep 10", cpu=0.1, memory=16)
        life = run_job(cluster, cluster.pool("bench", cpu=900), pods, config, instanceConfig=own)
        return {"hosts": hosts, "overrides": overrides, **life, "ratio_to_target": round(life["seconds"] / 80, 2)}
