"""Many long-running services: the cost of creating them, of idle time, of a role that restarts, and of rollouts with a
stream of short jobs.

``PELOTON_BENCH_SERVICES``, ``PELOTON_BENCH_HOSTS``, ``PELOTON_BENCH_ROLLOUTS`` and ``PELOTON_BENCH_SHORT_JOBS`` set the
size, ``PELOTON_BENCH_IDLE_S`` the idle time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.job import JobRecord
from peloton.model.pod import PodState
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.churn import share, submit
from tests.bench.cluster import Cluster, cpu_seconds, peak_memory_mib
from tests.bench.figures import status_kib
from tests.bench.rollout import NEW
from tests.e2e.local import job_config, shell
from tests.e2e.service import Service

ROLES = ("api", "resmgr", "hostmgr", "worker")
PODS_MAX = 3
CLIENTS = 8
POLL_S = 1.0
TIMEOUT_S = 3_600.0
QUIET_CORES = 0.05
"""Cores above the usage of idle services."""
STOPS_PER_RESTART = 5
"""Stops per restart. The first one begins with the kill, and includes the time in which the role is down."""
CREATED_PER_SECOND, CREATE_CPU_MS = 30.0, 60.0
IDLE_CORES, STOP_S, RESTART_CPU_MS = 0.03, 2.0, 5.0
SHORT_JOBS_RATIO = 1.1
"""Targets. The last is the time that short jobs take during rollouts, as a multiple of the time without."""
COMMAND = "sleep 1000000"
"""Command of the pods of services, which never ends during a run."""
KILLED = stateless_pb2.JOB_STATE_KILLED
ROLLED = stateless_pb2.WORKFLOW_STATE_SUCCEEDED


def size(name: str, usual: int) -> int:
    """Return a size that the environment sets, or the usual one."""
    return int(os.environ.get(f"PELOTON_BENCH_{name}", usual))


@dataclass(frozen=True)
class LiveSize:
    services: int = field(default_factory=lambda: size("SERVICES", 20_000))
    hosts: int = field(default_factory=lambda: size("HOSTS", 5_000))
    idle_s: int = field(default_factory=lambda: size("IDLE_S", 600))
    rollouts: int = field(default_factory=lambda: size("ROLLOUTS", 200))
    short_jobs: int = field(default_factory=lambda: size("SHORT_JOBS", 10_000))
    restart_s: float = 90.0  # the time over which the CPU of a restart is counted


def live_settings(hosts: int, jobs: int) -> LocalSettings:
    """Return settings of a simulated cluster that takes so many jobs without pacing."""
    unpaced = dict.fromkeys(("PELOTON_JOBS_PACED", "PELOTON_JOBS_ACTIVE_MAX"), str(2 * jobs))
    return LocalSettings(port=0, simulate=hosts, slack_interval_s=0, environment=unpaced)


def live(sizes: LiveSize | None = None) -> dict[str, Any]:
    """Services of one to three pods on simulated hosts: created, left idle, stopped while each role is killed and
    restarts, and rolled out with short jobs.
    """
    sizes = sizes or LiveSize()
    services, hosts, rollouts, short_jobs = sizes.services, sizes.hosts, sizes.rollouts, sizes.short_jobs
    least = 2 * len(ROLES) * STOPS_PER_RESTART
    assert services >= least, f"{services} services are too few for the stops: want at least {least}"
    with Cluster(live_settings(hosts, services + short_jobs)) as cluster:
        pool = cluster.pool("bench", cpu=1e6, memory=1e9)
        before_mib, before_s = _memory_mib(cluster), cpu_seconds(cluster)
        began_s = time.monotonic()
        made = create_services(cluster, pool, services)
        created_s = time.monotonic() - began_s
        wait_quiet(cluster, 0.0)
        created_cpu_s = _read_cpu_s(cluster, before_s)
        memory_mib = _memory_mib(cluster)
        idle = measure_cores(cluster, sizes.idle_s)
        idle_cores = sum(idle.values())
        restarts = {role: _restart(cluster, role, made, idle_cores, sizes.restart_s) for role in ROLES}
        stops_s = sorted(one for found in restarts.values() for one in found.pop("stops"))
        stop_p99_s = share(stops_s, 0.99)
        restart_cpu_ms = max(found["cpu_ms_per_job"] for found in restarts.values())
        create_cpu_ms = sum(created_cpu_s.values()) / services * 1_000
        stream = _stream(cluster, pool, short_jobs, made[:rollouts])
        wanted = (
            idle_cores / IDLE_CORES,
            stop_p99_s / STOP_S,
            restart_cpu_ms / RESTART_CPU_MS,
            create_cpu_ms / CREATE_CPU_MS,
            CREATED_PER_SECOND / services * created_s,
            stream["short_jobs_ratio"] / SHORT_JOBS_RATIO,
        )
        return {
            "services": services,
            "hosts": hosts,
            "created_per_second": round(services / created_s, 1),
            "create_cpu_ms_per_job": round(create_cpu_ms, 1),
            "create_cpu_ms_of": {name: round(used / services * 1_000, 1) for name, used in created_cpu_s.items()},
            "idle_cores": round(idle_cores, 4),
            "idle_cores_of": {name: round(cores, 4) for name, cores in idle.items()},
            "mib_per_1000_jobs": round((sum(memory_mib.values()) - sum(before_mib.values())) / services * 1_000, 1),
            "stop_p99_seconds": round(stop_p99_s, 2),
            "restart_cpu_ms_per_job": restart_cpu_ms,
            "restarts": restarts,
            **stream,
            "peak_memory_mib": peak_memory_mib(cluster),
            "ratio_to_target": round(max(wanted), 2),
        }


def create_services(cluster: Cluster, pool: str, services: int) -> list[Service]:
    """Create the services, and wait until all their pods run."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        made = list(clients.map(lambda at: _create_service(cluster, pool, 1 + at % PODS_MAX), range(services)))
    wait_all_run(cluster, services)
    return made


def _create_service(cluster: Cluster, pool: str, pods: int) -> Service:
    return Service(cluster, pool, pods, COMMAND).create()


def wait_all_run(cluster: Cluster, services: int) -> None:
    """Wait until all pods of so many services run."""
    storage = Storage(cluster.local.database)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while (running := sum(job.pod_counts == _all_run(job.instance_count) for job in _jobs(storage))) < services:
            assert time.monotonic() < deadline_s, f"{running} of {services} services run"
            time.sleep(POLL_S)
    finally:
        storage.close()


def _jobs(storage: Storage) -> Iterable[JobRecord]:
    return storage.jobs.get_many(storage.jobs.active_ids())


def _all_run(count: int) -> dict[PodState, int]:
    return {PodState.RUNNING: count}


def _own(found: dict[str, Any]) -> dict[str, Any]:
    """Return figures of Peloton's processes and of Temporal, without the simulated cluster."""
    return {name: value for name, value in found.items() if name in (*ROLES, "temporal", "web")}


def _memory_mib(cluster: Cluster) -> dict[str, float]:
    parts = cluster.local.parts.items()
    return _own({name: status_kib("VmRSS", part.process.pid) / 1024 for name, part in parts if part.process})


def _read_cpu_s(cluster: Cluster, before_s: dict[str, float], restarted: str = "") -> dict[str, float]:
    """CPU seconds of each process since then; all of a process that was started since."""
    now_s = _own(cpu_seconds(cluster))
    return {name: used - (0.0 if name == restarted else before_s.get(name, 0.0)) for name, used in now_s.items()}


def measure_cores(cluster: Cluster, seconds_max: float) -> dict[str, float]:
    """Cores that each process uses in the next seconds."""
    before_s, began_s = cpu_seconds(cluster), time.monotonic()
    time.sleep(seconds_max)
    seconds = time.monotonic() - began_s
    return {name: used / seconds for name, used in _read_cpu_s(cluster, before_s).items()}


def wait_quiet(cluster: Cluster, idle_cores: float) -> None:
    """Wait until three reads of two seconds in a row find only idle processes."""
    deadline_s, quiet = time.monotonic() + TIMEOUT_S, 0
    while quiet < 3:
        cores = sum(measure_cores(cluster, 2.0).values())
        quiet = quiet + 1 if cores <= idle_cores + QUIET_CORES else 0
        assert time.monotonic() < deadline_s, f"the processes never rest: they use {cores:.2f} cores"


def _restart(cluster: Cluster, role: str, made: list[Service], idle_cores: float, restart_s: float) -> dict[str, Any]:
    """Figures of a kill -9 of a role, with stops of services while it starts again."""
    stopped = [made.pop() for _ in range(STOPS_PER_RESTART)]
    before_s, began_s = _own(cpu_seconds(cluster)), time.monotonic()
    cluster.kill(role)
    first_s, *stops_s = (stop_seconds(service) for service in stopped)
    wait_quiet(cluster, idle_cores)
    quiet_s = time.monotonic() - began_s
    time.sleep(max(restart_s - quiet_s, 0.0))
    seconds = time.monotonic() - began_s
    used_s = _read_cpu_s(cluster, before_s, role)
    return {
        "stops": stops_s,
        "stop_seconds": [round(seconds_s, 2) for seconds_s in stops_s],
        "first_stop_seconds": round(first_s, 2),
        "quiet_seconds": round(quiet_s, 1),
        "cpu_seconds_of": {name: round(used, 2) for name, used in used_s.items()},
        "cpu_ms_per_job": round((sum(used_s.values()) - idle_cores * seconds) / len(made) * 1_000, 2),
    }


def stop_seconds(service: Service) -> float:
    """Seconds from the answer to a stop until all pods of the service have ended."""
    cluster = service.cluster
    cluster.wait(lambda: answers(service.stop), "an api that stops a service", TIMEOUT_S)
    answered_s = time.monotonic()
    cluster.wait(lambda: service.status.state == KILLED, "the end of a stopped service", TIMEOUT_S)
    return time.monotonic() - answered_s


def answers(call: Callable[[], None]) -> bool:
    """Return True when the call comes back; raise the errors of gRPC."""
    call()
    return True


def _stream(cluster: Cluster, pool: str, jobs: int, rolled: list[Service]) -> dict[str, Any]:
    """Figures of short jobs alone, and of as many while services are rolled out side by side."""
    alone = _short_jobs(cluster, pool, jobs)
    before_s, began_s = cpu_seconds(cluster), time.monotonic()
    with ThreadPoolExecutor(1) as others:
        streaming = others.submit(_short_jobs, cluster, pool, jobs)
        for service in rolled:
            service.replace(NEW, batch_size=1)
        for service in rolled:
            wait_rolled(cluster, service)
        rolled_s = time.monotonic() - began_s
        during = streaming.result()
    used_s = sum(_read_cpu_s(cluster, before_s).values())
    return {
        "short_jobs": jobs,
        "short_jobs_seconds": round(alone, 1),
        "short_jobs_seconds_in_rollouts": round(during, 1),
        "short_jobs_ratio": round(during / alone, 2),
        "rollouts": len(rolled),
        "rollouts_seconds": round(rolled_s, 1),
        "cpu_seconds_in_rollouts": round(used_s, 1),
    }


def _short_jobs(cluster: Cluster, pool: str, jobs: int) -> float:
    """Seconds from the first submit of jobs of one pod each until all have ended. Services stay."""
    config = job_config(pool, instanceCount=1, defaultConfig=shell("true", cpu=0.1, memory=16))
    began_s = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as clients:
        due_s = [[began_s] * len(range(first, jobs, CLIENTS)) for first in range(CLIENTS)]
        address = cluster.local.addresses
        made = {one.job_id for some in clients.map(lambda due: submit(address, config, due), due_s) for one in some}
    storage = Storage(cluster.local.database)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while left := len(made.intersection(storage.jobs.active_ids())):
            assert time.monotonic() < deadline_s, f"{left} of {jobs} short jobs have not ended"
            time.sleep(POLL_S)
    finally:
        storage.close()
    return time.monotonic() - began_s


def wait_rolled(cluster: Cluster, service: Service) -> None:
    """Wait until the last update of the service has succeeded."""
    what = f"the rollout of {service.id}"
    cluster.wait(lambda: service.status.workflow_status.state == ROLLED, what, TIMEOUT_S)
