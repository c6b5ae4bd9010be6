"""An upgrade from the last release: every process is replaced by one of the present code while all kinds of work are
under way, one is rolled back, and nothing stops."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecution

from services.storage import migrate
from services.temporal.worker_fleet import DEPLOYMENT
from services.worker.build import build_id
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.service import Service
from tests.e2e.test_maintenance import complete, query_maintenance, start, wait_state
from tests.e2e.test_services import HEALTH, NEWER
from tests.e2e.upgraded import Upgraded, unpack_last_release
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("upgrade")]
ORDER = ("resmgr", "hostmgr", "api", "worker")
AT_A_TIME = 3
STAGES = len(ORDER) + 4  # of the batch job: one pod ends in each


class Waiting:
    """Pods that run until a file is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def until(self, name: str) -> str:
        return f"until test -e {self._folder / name}; do sleep 0.2; done"

    def end(self, *names: str) -> None:
        for name in names:
            (self._folder / name).touch()


def workflows(cluster: Cluster, query: str = "") -> list[WorkflowExecution]:
    async def find() -> list[WorkflowExecution]:
        client = await Client.connect(cluster.local.temporal)
        return [one async for one in client.list_workflows(query)]

    return asyncio.run(find())


def on_this_version(cluster: Cluster) -> bool:
    """Return whether the workflows of all jobs, which the leading resource manager wakes, run the present code."""
    jobs = "ExecutionStatus = 'Running' AND WorkflowType = 'Job'"
    here = f"{jobs} AND TemporalWorkerDeploymentVersion = '{DEPLOYMENT}:{build_id()}'"
    return {one.id for one in workflows(cluster, here)} == {one.id for one in workflows(cluster, jobs)}


class Work:
    """Work of every kind, none of which ends before the test ends it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.waiting = cluster, Waiting(folder)
        pool = cluster.pool("work")
        until = self.waiting.until
        # A drain that a pod holds up which ends when it likes. The host takes nothing else.
        leaving = shell(f"trap '' TERM; {until('leaving')}", killGracePeriodSeconds=600)
        self.leaving = cluster.submit(pool, instanceCount=1, defaultConfig=leaving)
        cluster.wait(lambda: cluster.counts(self.leaving) == {"RUNNING": 1}, "the pod that will leave")
        self.host = cluster.task(self.leaving).runtime.host
        start(cluster, self.host)
        wait_state(cluster, "DRAINING", self.host)
        # A batch job, a few pods at a time.
        each = {i: shell(until(f"batch{i}")) for i in range(STAGES + AT_A_TIME)}
        self.batch = cluster.submit(
            pool, instanceCount=len(each), instanceConfig=each, sla={"maximumRunningInstances": AT_A_TIME}
        )
        # A gang that runs, and one that waits for the host.
        self.gang = cluster.submit(
            pool, instanceCount=2, defaultConfig=shell(until("gang")), sla={"minimumRunningInstances": 2}
        )
        self.waiting_gang = cluster.submit(
            pool, instanceCount=3, defaultConfig=shell("true", cpu=2.2), sla={"minimumRunningInstances": 3}
        )
        # A service that is left alone, and one with a rollout that has replaced one instance of three.
        self.service = Service(cluster, pool, 2).create()
        self.rolled = Service(cluster, pool, 3, name="rolled").create()
        for service in (self.service, self.rolled):
            service.wait_running().wait_update("SUCCEEDED")
        until_healthy = {"command": f"test -e {folder / 'healthy'}"}
        self.rolled.liveness = {**HEALTH, "maxConsecutiveFailures": 1_000, "commandCheck": until_healthy}
        self.rolled.replace(NEWER, batch_size=1)
        cluster.wait(lambda: self.rolled.versions() == [2, 1, 1], "a rollout half way")
        cluster.wait(lambda: cluster.counts(self.gang) == {"RUNNING": 2}, "a gang that runs")
        launching = f"ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'gang/{self.waiting_gang}'"
        cluster.wait(lambda: bool(workflows(cluster, launching)), "the launch of a gang")
        self.ended = 0

    def advance(self, what: str) -> None:
        """One pod of the batch job ends, and the next one is started."""
        self.cluster.wait(lambda: self.cluster.counts(self.batch).get("RUNNING") == AT_A_TIME, f"pods that run {what}")
        self.waiting.end(f"batch{self.ended}")
        self.ended += 1
        ended = {"SUCCEEDED": self.ended, "RUNNING": AT_A_TIME}
        self.cluster.wait(lambda: ended.items() <= self.cluster.counts(self.batch).items(), f"the next pod {what}")

    def end(self) -> None:
        """End all work as it should, and checks that no pod ran twice without a reason."""
        cluster = self.cluster
        self.waiting.end("healthy", "gang", "leaving", *(f"batch{i}" for i in range(STAGES + AT_A_TIME)))
        assert {self.batch: "SUCCEEDED", self.gang: "SUCCEEDED"} == {
            job: cluster.finish(job) for job in (self.batch, self.gang)
        }
        self.rolled.wait_update("SUCCEEDED")
        wait_state(cluster, "DOWN", self.host)
        assert set(cluster.states(self.waiting_gang).values()) == {"PENDING"}
        complete(cluster, self.host)
        assert ["SUCCEEDED", "SUCCEEDED"] == [cluster.finish(job) for job in (self.waiting_gang, self.leaving)]
        assert query_maintenance(cluster) == {}

        once = {self.batch: STAGES + AT_A_TIME, self.gang: 2, self.waiting_gang: 3}
        assert {job: dict.fromkeys(range(n), 1) for job, n in once.items()} == {
            job: cluster.run_ids(job) for job in once
        }
        assert [{0: 2}, {0: 1, 1: 1}, {0: 2, 1: 2, 2: 2}] == [
            cluster.run_ids(self.leaving),
            self.service.runs(),
            self.rolled.runs(),
        ]
        assert [2] * 3 == self.rolled.versions()


def test_every_process_is_replaced_while_work_continues(tmp_path: Path) -> None:
    """First the resource manager, the worker last; then worker and api are rolled back, and upgraded again."""
    release = unpack_last_release(tmp_path / "release")
    with Upgraded(temporary(tmp_path / "data"), release) as cluster:
        work = Work(cluster, tmp_path)
        migrate.upgrade(cluster.local.database)
        for role in ORDER:
            cluster.replace(role)
            work.advance(f"after the upgrade of {role}")
        for back in (True, False):
            for role in ("worker", "api"):
                cluster.replace(role, back=back)
                work.advance(f"after the {'rollback' if back else 'second upgrade'} of {role}")
        cluster.wait(lambda: on_this_version(cluster), "the workflows of all jobs on the present version")
        work.end()

        ends = Counter(one.status.name for one in workflows(cluster) if one.status)
        assert {"COMPLETED", "CONTINUED_AS_NEW", "RUNNING"} >= ends.keys()
