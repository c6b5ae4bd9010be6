"""The Aurora bridge: the cost of an update that it starts, next to one that the own API starts, and of its reads."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.peloton_pb2 import JobID
from peloton.model.ids import new_job_id
from peloton.model.update import UPDATE_TERMINAL
from services.aurorabridge.thrift import api
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from services.storage.tables import UPDATE
from tests.bench import aurora_reads
from tests.bench.cluster import Cluster
from tests.bench.figures import cpu_s
from tests.unit.aurorabridge.calling import ENCODINGS
from tests.unit.aurorabridge.scenario import task_config, update_request

TIMEOUT_S = 300.0
CLIENTS = 10
_BARE = ENCODINGS["bare"]
_RESOURCES = [api.Resource(numCpus=0.01), api.Resource(ramMb=8), api.Resource(diskMb=8)]
"""Resources so small that all jobs fit into the bridge's pool."""


@dataclass(frozen=True)
class Size:
    jobs: int = 200
    instances: int = 2
    hosts: int = 100
    reads: aurora_reads.Size = field(default_factory=aurora_reads.Size)


def aurora(size: Size = Size()) -> dict[str, Any]:
    """Create jobs and update each of them, through the bridge and through the own API; then the reads."""
    with (
        Cluster(LocalSettings(port=0, simulate=size.hosts, bridge=True)) as cluster,
        closing(Storage(cluster.local.database)) as storage,
    ):
        guard = Guard(cluster, storage, size)
        pool, ids = cluster.pool("bench"), [str(new_job_id()) for _ in range(size.jobs)]
        found = {
            "bridge_create": guard.measure(lambda number: guard.start_by_bridge(number, "sleep 3600")),
            "bridge_update": guard.measure(lambda number: guard.start_by_bridge(number, "sleep 7200")),
            "own_create": guard.measure(lambda number: guard.create(ids[number], pool, "sleep 3600")),
            "own_update": guard.measure(lambda number: guard.replace(ids[number], "sleep 7200")),
        }
    return {
        "jobs": size.jobs,
        "instances": size.instances,
        "clients": CLIENTS,
        **found,
        "reads": (reads := aurora_reads.aurora_reads(size.reads)),
        "ratio_to_target": reads["ratio_to_target"],
    }


class Guard:
    """A cluster in which updates are started, and their cost measured."""

    def __init__(self, cluster: Cluster, storage: Storage, size: Size) -> None:
        self._cluster, self._storage, self._size = cluster, storage, size

    def measure(self, start: Callable[[int], None]) -> dict[str, Any]:
        """Start an update of each job by several clients. ``cpu_ms``: CPU of the processes that take the calls."""
        start_s, before = time.monotonic(), self._cpu_s()
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(start, range(self._size.jobs)))
        seconds, after = time.monotonic() - start_s, self._cpu_s()
        used = {name: round((now - before[name]) / self._size.jobs * 1_000, 2) for name, now in after.items()}
        self._cluster.wait(self._are_done, "the end of all updates", TIMEOUT_S)
        return {"updates_per_second": round(self._size.jobs / seconds, 1), "cpu_ms": used}

    def _cpu_s(self) -> dict[str, float]:
        parts = {name: self._cluster.local.parts[name].process for name in ("api", "aurorabridge")}
        return {name: cpu_s(process.pid, 2) for name, process in parts.items() if process is not None}

    def _are_done(self) -> bool:
        """Return whether no update is under way, in one query."""
        ended = [state.value for state in UPDATE_TERMINAL]
        query = sa.select(sa.func.count()).select_from(UPDATE).where(UPDATE.c.state.not_in(ended))
        return not self._storage.db.read(lambda conn: conn.execute(query).scalar_one())

    def start_by_bridge(self, number: int, command: str) -> None:
        key = api.JobKey(role="bench", environment="prod", name=f"job{number}")
        task = task_config(command, job=key, resources=_RESOURCES)
        request = update_request(task, self._size.instances, api.JobUpdateSettings(updateGroupSize=1))
        host = self._cluster.local.bridge_url.removeprefix("http://").partition("/")[0]
        method = "startJobUpdate"
        with closing(http.client.HTTPConnection(host, timeout=TIMEOUT_S)) as connection:
            body = _BARE.write(method, request=request, message="bench")
            connection.request("POST", "/api", body, _BARE.headers(method))
            answer = connection.getresponse()
            found = _BARE.read(method, answer.read()) if answer.status == http.client.OK else answer.status
        assert api.ResponseCode.OK == getattr(found, "responseCode", None), found

    def create(self, job_id: str, pool: str, command: str) -> None:
        spec = stateless_pb2.JobSpec(name=f"own-{job_id}", instance_count=self._size.instances)
        spec.respool_id.value, spec.sla.preemptible = pool, True  # the pool has no reservation
        container = spec.default_spec.containers.add()
        container.resource.cpu_limit, container.resource.mem_limit_mb, container.resource.disk_limit_mb = 0.01, 8, 8
        container.entrypoint.value = command
        paced = stateless_pb2.CreateSpec(batch_size=1)
        self._cluster.client.services.CreateJob(
            svc.CreateJobRequest(job_id=JobID(value=job_id), spec=spec, create_spec=paced)
        )

    def replace(self, job_id: str, command: str) -> None:
        """Read the job and its version, and replace its spec, as a client of the API does."""
        services, wanted = self._cluster.client.services, JobID(value=job_id)
        found = services.GetJob(svc.GetJobRequest(job_id=wanted)).job_info
        found.spec.default_spec.containers[0].ClearField("command")
        found.spec.default_spec.containers[0].entrypoint.value = command
        services.ReplaceJob(
            svc.ReplaceJobRequest(
                job_id=wanted,
                version=found.status.version,
                spec=found.spec,
                update_spec=stateless_pb2.UpdateSpec(batch_size=1),
            )
        )
