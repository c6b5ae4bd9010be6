"""Many small jobs: their rate, and the time until the first pod of each runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import POD_STATE_NUMBERS
from peloton.api.v0.job.job_pb2 import CreateRequest
from peloton.client import NO_RETRIES, Client
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.lab.local.cluster import LocalSettings
from services.storage.engine import Database
from services.storage.storage import Storage
from services.storage.tables import POD_EVENT
from tests.bench.cluster import Cluster, cpu_seconds, history_events, peak_memory_mib
from tests.e2e.local import job_config, shell

JOBS_PER_SECOND = 10
FIRST_RUNNING_S = 15.0
TIMEOUT_S = 600.0
POLL_S = 0.2
HISTORIES = 20
"""Jobs whose histories are counted."""
RUNNING = POD_STATE_NUMBERS[PodState.RUNNING]


@dataclass(frozen=True)
class Submitted:
    job_id: str
    at_ns: int
    answered_s: float  # after so long


def churn(jobs: int = 1_000, pods: int = 10, clients: int = 20, hosts: int = 100) -> dict[str, Any]:
    """Jobs of 10 one-second pods, submitted by 20 clients as fast as each is answered."""
    return run_churn(LocalSettings(port=0, simulate=hosts), jobs, pods, clients)


def churn_paced(
    jobs: int = 1_000, pods: int = 10, clients: int = 20, hosts: int = 100, per_second: float = 11
) -> dict[str, Any]:
    """The same load in a steady stream, slightly above the target rate."""
    return run_churn(LocalSettings(port=0, simulate=hosts), jobs, pods, clients, per_second)


def scale_out(jobs: int = 400, pods: int = 10, clients: int = 20, hosts: int = 100) -> dict[str, Any]:
    """The same load with one worker and one API, and with two of each. On two cores the second is no faster."""
    found = {}
    for count in (1, 2):
        settings = LocalSettings(port=0, simulate=hosts, workers=count, apis=count)
        found[f"{count}_and_{count}"] = run_churn(settings, jobs, pods, clients)
    one, two = (found[name]["jobs_per_second"] for name in found)
    return {"cores": os.cpu_count(), **found, "speed_up": round(two / one, 2)}


def run_churn(settings: LocalSettings, jobs: int, pods: int, clients: int, per_second: float = 0) -> dict[str, Any]:
    """Submit the jobs. ``per_second``: jobs that all clients submit together; 0: as fast as they are answered."""
    with Cluster(settings) as cluster:
        config = job_config(cluster.pool("bench"), instanceCount=pods, defaultConfig=shell("sleep 1", memory=16))
        used_cpu, started_s = cpu_seconds(cluster), time.monotonic()
        with ThreadPoolExecutor(clients) as threads:
            period_s = 1 / per_second if per_second else 0
            due_s = [
                [started_s + number * period_s for number in range(first, jobs, clients)] for first in range(clients)
            ]
            address = cluster.local.addresses
            made = [one for some in threads.map(lambda due: submit(address, config, due), due_s) for one in some]
        submitted_s = time.monotonic() - started_s
        states = wait_for_ends(cluster, [one.job_id for one in made])
        seconds = time.monotonic() - started_s
        used_cpu = {name: round(used - used_cpu[name], 1) for name, used in cpu_seconds(cluster).items()}
        waits_s = sorted(first_running_s(cluster, made))
        answers_s = sorted(one.answered_s for one in made)
        sample = [one.job_id for one in made[:: max(1, len(made) // HISTORIES)]]
        return {
            "jobs": jobs,
            "pods": jobs * pods,
            "clients": clients,
            "hosts": settings.simulate,
            "jobs_succeeded": states.count(JobState.SUCCEEDED),
            "jobs_that_ran": len(waits_s),
            "submit_seconds": round(submitted_s, 2),
            "seconds": round(seconds, 2),
            "jobs_per_second": round(jobs / seconds, 1),
            "submit_p50_ms": round(share(answers_s, 0.5) * 1000, 1),
            "submit_p99_ms": round(share(answers_s, 0.99) * 1000, 1),
            "first_running_p50_seconds": round(share(waits_s, 0.5), 2),
            "first_running_p99_seconds": round(share(waits_s, 0.99), 2),
            "history_events_per_job": round(sum(history_events(cluster, job) for job in sample) / len(sample), 1),
            "cpu_seconds": used_cpu,
            "cpu_ms_per_job": round(sum(used_cpu.values()) * 1000 / jobs, 1),
            "peak_memory_mib": peak_memory_mib(cluster),
            "ratio_to_target": round(max(JOBS_PER_SECOND * seconds / jobs, share(waits_s, 0.99) / FIRST_RUNNING_S), 2),
        }


def share(rising: Sequence[float], part: float) -> float:
    """Return the quantile of the values."""
    return rising[min(int(len(rising) * part), len(rising) - 1)]


def submit(address: str, config: Any, due_s: Sequence[float]) -> list[Submitted]:
    """Submit jobs by one client, one after the other, none before it is due."""
    made = []
    with Client(address, timeout_s=TIMEOUT_S, retry=NO_RETRIES) as client:
        for one_s in due_s:
            time.sleep(max(one_s - time.monotonic(), 0))
            at_ns, asked_s = time.time_ns(), time.monotonic()
            answer = client.jobs.Create(CreateRequest(config=config))
            assert not answer.HasField("error"), answer.error
            made.append(Submitted(answer.jobId.value, at_ns, time.monotonic() - asked_s))
    return made


def wait_for_ends(cluster: Cluster, job_ids: Sequence[str]) -> list[JobState]:
    """Wait until no job is active. It reads storage instead of the API, where reads of each job would add load."""
    storage = Storage(cluster.local.database)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while active := storage.jobs.active_ids():
            assert time.monotonic() < deadline_s, f"{len(active)} jobs have not ended within {TIMEOUT_S:.0f} s"
            time.sleep(POLL_S)
        return [record.state for job in job_ids if (record := storage.jobs.get(JobId(job))) is not None]
    finally:
        storage.close()


def first_running_s(cluster: Cluster, made: Sequence[Submitted]) -> list[float]:
    """Return the seconds from the submit of each job to the commit of its first RUNNING pod."""
    event, db = POD_EVENT.c, Database(cluster.local.database)
    query = sa.select(event.job_id, sa.func.min(event.time_ns)).where(event.state == RUNNING).group_by(event.job_id)
    try:
        first_ns = db.read(lambda conn: {row[0]: row[1] for row in conn.execute(query)})
    finally:
        db.close()
    return [(first_ns[one.job_id] - one.at_ns) / 1e9 for one in made if one.job_id in first_ns]
