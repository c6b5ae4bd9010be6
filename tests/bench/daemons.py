"""A daemon on many hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.model.ids import daemon_workflow_id, job_workflow_id, update_workflow_id
from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster, cpu_seconds, events_of_all_runs, peak_memory_mib
from tests.bench.wide import idle
from tests.e2e.local import JOB_END, shell

BATCHES = 20
"""Batches of an update of all hosts."""
AWAY_SHARE = 0.01
"""Share of the hosts that leave and come back."""
TIMEOUT_S = 1_800.0
POLL_S = 0.5
IDLE_S = 20.0
TARGET_PODS_PER_S = 1_000


def daemon_50k(host_count: int = 50_000, idle_s: float = IDLE_S) -> dict[str, Any]:
    """A pod on each simulated host; hosts that leave, and come back; an update, and a stop: seconds, CPU of the
    processes and events of the workflows for each."""
    away = [f"sim-{number:05}" for number in range(max(int(host_count * AWAY_SHARE), 1))]
    with Cluster(LocalSettings(port=0, simulate=host_count)) as cluster:
        daemon = Daemon(cluster)
        found: dict[str, Any] = {
            "hosts": host_count,
            "start": daemon.stage(lambda: daemon.start(host_count)),
            "idle_cpu_seconds_per_minute": idle(cluster, idle_s),
            "leave": {"away": len(away), **daemon.stage(lambda: daemon.leave(away, host_count - len(away)))},
            "come_back": daemon.stage(lambda: daemon.come_back(away, host_count)),
            "update": daemon.stage(lambda: daemon.update(-(-host_count // BATCHES))),
            "stop": daemon.stage(daemon.stop),
            "peak_memory_mib": peak_memory_mib(cluster),
        }
    per_s = host_count / found["start"]["seconds"]
    return {**found, "pods_per_second": round(per_s, 1), "ratio_to_target": round(TARGET_PODS_PER_S / per_s, 2)}


class Daemon:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pool = cluster.pool("bench")
        self.id = self.update_id = ""

    @property
    def running(self) -> int:
        return self.cluster.counts(self.id).get("RUNNING", 0)

    def stage(self, act: Callable[[], None]) -> dict[str, Any]:
        events, cpu, began_s = self.events(), cpu_seconds(self.cluster), time.monotonic()
        act()
        seconds, used = time.monotonic() - began_s, cpu_seconds(self.cluster)
        return {
            "seconds": round(seconds, 1),
            "cpu_seconds": {part: round(used[part] - cpu[part], 1) for part in used},
            **{f"{name}_events": count - events.get(name, 0) for name, count in self.events().items()},
        }

    def events(self) -> dict[str, int]:
        """Return the events of its workflows, over all their runs."""
        if not self.id:
            return {}
        found = {name: job_id(self.id) for name, job_id in (("job", job_workflow_id), ("daemon", daemon_workflow_id))}
        if self.update_id:
            found["update"] = update_workflow_id(self.id)
        return {name: events_of_all_runs(self.cluster, workflow_id) for name, workflow_id in found.items()}

    def start(self, hosts: int) -> None:
        config = shell("sleep 36000", cpu=0.2, memory=64)
        self.id = self.cluster.submit(self.pool, type="DAEMON", sla={"preemptible": False}, defaultConfig=config)
        self._until(lambda: self.running == hosts, "a pod on each host")

    def leave(self, names: list[str], left: int) -> None:
        for name in names:
            self.cluster.drill(f"agents/{name}/stop", {"now": True})
        self._until(lambda: self.running == left, "fewer pods")

    def come_back(self, names: list[str], hosts: int) -> None:
        for name in names:
            self.cluster.drill(f"agents/{name}/start", {})
        self._until(lambda: self.running == hosts, "a pod on each host again")

    def update(self, batch: int) -> None:
        config = self.cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=self.id))).jobInfo.config
        config.defaultConfig.command.value = "sleep 36001"
        request = update_svc_pb2.CreateUpdateRequest(
            jobId=peloton_pb2.JobID(value=self.id),
            jobConfig=config,
            updateConfig=update_pb2.UpdateConfig(batchSize=batch),
        )
        update = self.cluster.client.updates.CreateUpdate(request).updateID
        self.update_id, look = update.value, update_svc_pb2.GetUpdateRequest(updateId=update)
        self._until(
            lambda: self.cluster.client.updates.GetUpdate(look).updateInfo.status.state == update_pb2.SUCCEEDED,
            "the end of the update",
        )

    def stop(self) -> None:
        self.cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=self.id)))
        self._until(lambda: self.cluster.job_state(self.id) in JOB_END, "the end of the daemon")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, (
                f"{what}: not within {TIMEOUT_S:.0f} s: {self.cluster.counts(self.id)}"
            )
            time.sleep(POLL_S)
