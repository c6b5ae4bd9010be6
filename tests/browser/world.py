"""A cluster with the same content each time: simulated hosts, pools, and jobs that have come to rest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.model.resources import Resources
from services.storage.storage import Storage
from tests.browser.day import FINE_STEP_S, day
from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.service import Service

HOSTS = 48
JOBS = {
    name: f"7b0e0000-0000-4000-8000-{number:012d}" for number, name in enumerate(["train", "nightly", "broken", "big"])
}
SHOP = "7b0e0000-0000-4000-8000-000000000100"
FOREVER = "sleep 100000"
SIMULATION = {
    "seed": 3,
    "hosts": [{"name": "small", "share": 3, "cpus": 8, "mem": 32_768, "attributes": {"rack": ["a", "b", "c"]}},
              {"name": "large", "share": 1, "cpus": 32, "mem": 131_072, "attributes": {"rack": ["a", "b", "c"]}}],
    "failures": [{"when": {"labels": {"kind": "broken"}}, "probability": 1.0, "exit_code": 2}],
}  # fmt: skip
POOLS = {"ml": 0.5, "ml/research": 0.2, "ml/training": 0.3, "web": 0.2, "data": 0.1}
"""Share of the cpus that is reserved for each pool."""


@dataclass(frozen=True)
class World:
    cluster: Cluster
    url: str
    given: Mapping[str, str]
    """Values in addresses, by their place in the path of pages.json."""


@contextmanager
def world(folder: Path) -> Iterator[World]:
    simulation = folder / "simulation.yaml"
    simulation.write_text(yaml.safe_dump(SIMULATION), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "made_of", ForkedCluster)
        environment = {"PELOTON_HISTORY_PERIOD_S": "1"}  # charts have a point at once
        settings = temporary(
            folder / "data", simulate=HOSTS, simulation_file=simulation, web=True, environment=environment
        )
        with Cluster(settings) as cluster:
            yield World(cluster, cluster.local.web_url, _settle(cluster))


def _settle(cluster: Cluster) -> Mapping[str, str]:
    cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
    cpus = cluster.capacity()
    pools: dict[str, str] = {}
    for path, share in POOLS.items():
        parent, _, name = path.rpartition("/")
        pools[name] = _pool(cluster, name, pools.get(parent, "root"), round(cpus * share), cpus)
    _live_a_day(cluster, {path: pools[path.rpartition("/")[2]] for path in POOLS} | {"": "root"})

    def batch(name: str, pool: str, count: int, **config: Any) -> None:
        cluster.submit(pools[pool], JOBS[name], name=name, owningTeam=pool, instanceCount=count, **config)

    batch("train", "training", 120, defaultConfig=shell(FOREVER, cpu=1, memory=2048))
    batch("nightly", "data", 30, defaultConfig=shell("sleep 1", cpu=0.5))
    broken: dict[str, Any] = {"labels": [{"key": "kind", "value": "broken"}], "restartPolicy": {"maxFailures": 0}}
    batch("broken", "research", 4, defaultConfig=shell("sleep 1", cpu=0.5, **broken))
    batch("big", "research", 2, defaultConfig=shell(FOREVER, cpu=64, memory=2048))  # no host is as large
    service = Service(cluster, pools["web"], 24, FOREVER, name="shop", owner="web")
    service.id = SHOP
    cluster.client.services.CreateJob(svc.CreateJobRequest(job_id=peloton_pb2.JobID(value=SHOP), spec=service.spec()))

    _schedule(cluster, "night", pools["data"], crons=["0 3 1 1 *"], time_zone="Europe/Berlin")
    _schedule(cluster, "sweep", pools["research"], note="the source is being moved", interval_s=21_600, jitter_s=300)
    cluster.wait(lambda: cluster.counts(JOBS["train"]) == {"RUNNING": 120}, "all instances of the training")
    ended = {name: cluster.finish(JOBS[name]) for name in ("nightly", "broken")}
    assert ended == {"nightly": "SUCCEEDED", "broken": "FAILED"}
    service.wait_running()
    use = table_pb2.GetInstanceUseRequest(id=v0_peloton_pb2.JobID(value=JOBS["train"]))
    cluster.wait(lambda: all(i.measured for i in cluster.client.job_table.GetInstanceUse(use).instances), "their use")
    return {
        "services/:id": SHOP,
        "jobs/:id": JOBS["train"],
        "jobs/:id/:instance": "0",
        "hosts/:name": "sim-00000",
        "pools/:path*": "ml/training",
    }


def _schedule(cluster: Cluster, name: str, pool: str, note: str = "", **times: Any) -> None:
    """Create a schedule. One with a note is paused."""
    config = job_pb2.JobConfig(
        name=name, owningTeam="data", instanceCount=1, respoolID=v0_peloton_pb2.ResourcePoolID(value=pool)
    )
    config.defaultConfig.command.shell, config.defaultConfig.command.value = True, "sleep 1"
    request = schedule_pb2.CreateScheduleRequest(
        name=name, times=schedule_pb2.Times(**times), paused=bool(note), note=note, job_config=config
    )
    cluster.client.schedules.CreateSchedule(request)


def _live_a_day(cluster: Cluster, pools: Mapping[str, str]) -> None:
    capacity = Resources.of(cluster.capacity(), cluster.capacity("memory"), cluster.capacity("disk"))
    storage = Storage(cluster.local.database)
    try:
        for sample in day(int(time.time()) // FINE_STEP_S * FINE_STEP_S, capacity, pools, POOLS):
            storage.history.add(sample)
    finally:
        storage.close()


def _pool(cluster: Cluster, name: str, parent: str, own_cpu: float, cpus: float) -> str:
    config = respool_pb2.ResourcePoolConfig(name=name, parent=v0_peloton_pb2.ResourcePoolID(value=parent))
    config.resources.add(kind="cpu", reservation=own_cpu, limit=cpus, share=1)
    for kind in ("memory", "disk"):
        config.resources.add(kind=kind, limit=cluster.capacity(kind), share=1)
    answer = cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer.error
    return str(answer.result.value)
