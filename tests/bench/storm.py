"""A storm of jobs in one pool: the additional delay of the first pod of another pool's job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from services.lab.local.cluster import LocalSettings
from tests.bench.churn import Submitted, first_running_s, share, submit, wait_for_ends
from tests.bench.cluster import Cluster, cpu_seconds
from tests.e2e.local import job_config, shell

WAIT_S = 2.0
"""Maximum delay of a pool's jobs, whatever the load of others."""
UNPACED = {"PELOTON_JOBS_PACED": "100000"}
"""Setting without pacing: the API would slow down every client."""


def storm(jobs: int = 800, quiet_jobs: int = 20, clients: int = 20, hosts: int = 100) -> dict[str, Any]:
    """Jobs of pool A wait for a worker when pool B's arrive; with fairness by pool, as delivered, and without."""
    fair = _storm((), jobs, quiet_jobs, clients, hosts)
    unfair = _storm(("matching.enableFairness=false",), jobs, quiet_jobs, clients, hosts)
    return {
        "jobs": jobs,
        "quiet_jobs": quiet_jobs,
        "hosts": hosts,
        "fair": fair,
        "unfair": unfair,
        "delay_ratio": round(unfair["quiet_p50_seconds"] / fair["quiet_p50_seconds"], 1),
        "ratio_to_target": round(fair["quiet_p50_seconds"] / WAIT_S, 2),
    }


def _storm(config: tuple[str, ...], jobs: int, quiet_jobs: int, clients: int, hosts: int) -> dict[str, Any]:
    settings = LocalSettings(port=0, simulate=hosts, temporal_config=config, environment=UNPACED)
    with Cluster(settings) as cluster:
        pod = shell("sleep 1", memory=16)
        storm_job, quiet_job = (job_config(cluster.pool(name), instanceCount=1, defaultConfig=pod) for name in "ab")
        address = cluster.local.addresses
        alone = submit(address, quiet_job, [0.0] * quiet_jobs)
        wait_for_ends(cluster, [one.job_id for one in alone])
        with ThreadPoolExecutor(clients) as threads:
            stormed = list(threads.map(lambda _: submit(address, storm_job, [0.0] * (jobs // clients)), range(clients)))
        quiet = submit(address, quiet_job, [0.0] * quiet_jobs)
        submitted_s = time.monotonic()
        crowd = [one for some in stormed for one in some]
        wait_for_ends(cluster, [one.job_id for one in (*crowd, *quiet)])
        return {
            "alone_p50_seconds": _measure_wait_s(cluster, alone, 0.5),
            "quiet_p50_seconds": _measure_wait_s(cluster, quiet, 0.5),
            "quiet_p99_seconds": _measure_wait_s(cluster, quiet, 0.99),
            "storm_p50_seconds": _measure_wait_s(cluster, crowd, 0.5),
            "rest_seconds": round(time.monotonic() - submitted_s, 2),
            "cpu_seconds": cpu_seconds(cluster),
        }


def _measure_wait_s(cluster: Cluster, made: Sequence[Submitted], part: float) -> float:
    return round(share(sorted(first_running_s(cluster, made)), part), 2)
