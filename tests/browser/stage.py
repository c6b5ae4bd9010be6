"""A small cluster for stories: three hosts whose pods are processes, and pools that stories create."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.model.ids import new_job_id
from peloton.model.job import JobState
from services.storage.storage import Storage
from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster, job_config, shell, temporary

FOREVER = "exec sleep 100000"
COUNTS = "i=0; while sleep 0.2; do i=$((i+1)); echo line $i; done"


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    url: str
    folder: Path
    pools: dict[str, str] = field(default_factory=dict)

    def hosts(self) -> list[str]:
        infos = self.cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
        return sorted(info.hostname for info in infos)

    def pool(self, name: str, **amounts: float) -> str:
        """Return the id of ``/name``, which is created at its first use; ``amounts`` as ``Cluster.pool`` has them."""
        if name not in self.pools:
            self.pools[name] = self.cluster.pool(name, own_cpu=1, **amounts)
        return self.pools[name]

    def full_pool(self, name: str) -> str:
        """Create a pool whose limit is one core, and a job that uses it; return the job's id. Later jobs wait in the
        queue, without an effect on other pools.
        """
        self.pool(name, cpu=1)
        return self.running("holds all", pool=name, cpu=1)

    def pool_config(self, name: str) -> respool_pb2.ResourcePoolConfig:
        request = respool_pb2.GetRequest(id=peloton_pb2.ResourcePoolID(value=self.pool(name)))
        return self.cluster.client.respools.GetResourcePool(request).poolinfo.config

    def submit(self, name: str, command: str = FOREVER, pool: str = "batch", count: int = 1, **config: Any) -> str:
        """Create a job; return its id. In ``config``, ``cpu`` is the request of each instance, ``task`` more of its
        configuration.
        """
        task = shell(command, cpu=config.pop("cpu", 0.1), **config.pop("task", {}))
        return self.cluster.submit(self.pool(pool), name=name, instanceCount=count, defaultConfig=task, **config)

    def running(self, name: str, command: str = FOREVER, count: int = 1, **config: Any) -> str:
        """Create a job; return its id when all of its instances run."""
        job = self.submit(name, command, count=count, **config)
        self.cluster.wait(lambda: self.cluster.counts(job) == {"RUNNING": count}, f"all instances of {name}")
        return job

    def store_ended(self, names: Iterable[str], pool: str, **config: Any) -> None:
        """Store a job of each name that has ended, without pods and workflows, for pages that list many jobs."""
        with closing(Storage(self.cluster.local.database)) as storage:
            for name in names:
                task, now_ns = shell(FOREVER), time.time_ns()
                stored = job_config(self.pool(pool), name=name, instanceCount=1, defaultConfig=task, **config)
                job = replace(convert.new_job_record(new_job_id(), stored, now_ns), state=JobState.KILLED)
                storage.jobs.create(job, stored, now_ns)


@contextmanager
def stage_cluster(folder: Path) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "made_of", ForkedCluster)
        with Cluster(temporary(folder / "data", web=True)) as cluster:
            cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
            yield Stage(cluster, cluster.local.web_url, folder)
