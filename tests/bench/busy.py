"""A cluster that stays as busy for as long as something is measured: pods are replaced, and short jobs come and go."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, POD_STATE_NUMBERS
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import NO_RETRIES, Client
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.storage.engine import Database
from services.storage.tables import JOB, POD, POD_EVENT
from tests.bench.cluster import Cluster
from tests.e2e.local import job_config, shell

RUN_S = 10.0
"""Run time of short jobs' pods."""
SHORT = "short"
CALL_TIMEOUT_S, WARM_S = 60.0, 300.0
SUCCEEDED = JOB_STATE_NUMBERS[JobState.SUCCEEDED]
RUNNING = POD_STATE_NUMBERS[PodState.RUNNING]


class Busy:
    """Load generator for a block: ``with Busy(...) as busy``. Each second it restarts so many pods of a long job, the
    next ones in turn, and creates a job of as many short pods. Leaving the block raises the error of a call.
    """

    def __init__(self, cluster: Cluster, job_id: str, instances: int, per_second: int) -> None:
        self._addresses = cluster.local.addresses
        self._job_id, self._instances, self._count = job_id, instances, per_second
        pool = cluster.pool("busy", cpu=1e9, memory=1e9)
        self._short = job_config(
            pool, name=SHORT, instanceCount=per_second, defaultConfig=shell(f"sleep {RUN_S}", cpu=0.1)
        )
        self._db = Database(cluster.local.database)
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(1)

    def __enter__(self) -> Busy:
        self._work: Future[None] = self._threads.submit(self._keep_on)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._threads.shutdown()
        self._db.close()
        self._work.result()

    def warm(self, cluster: Cluster) -> None:
        """Wait until the first short job has ended, so that short pods end as fast as they begin."""
        is_over = sa.select(JOB.c.job_id).where(JOB.c.name == SHORT, JOB.c.state == SUCCEEDED).limit(1)

        def is_warm() -> bool:
            return self._work.done() or self._db.read(lambda conn: conn.execute(is_over).first()) is not None

        cluster.wait(is_warm, "the end of a short job", WARM_S)

    def figures(self, since_ns: int, until_ns: int) -> dict[str, float]:
        """Return figures of all pods: the running ones now, changes in that time, and changes to RUNNING, a second."""
        event, seconds = POD_EVENT.c, (until_ns - since_ns) / 1e9
        runs_now = sa.select(sa.func.count()).select_from(POD).where(POD.c.state == RUNNING)
        is_start = sa.and_(event.state == RUNNING, event.run_id == event.desired_run_id)
        changes = (
            sa.select(sa.func.count(), sa.func.sum(sa.case((is_start, 1), else_=0)))
            .select_from(POD_EVENT)
            .where(event.time_ns.between(since_ns, until_ns))
        )

        def work(conn: sa.Connection) -> tuple[int, int, int]:
            changed, started = conn.execute(changes).one()
            return int(conn.execute(runs_now).scalar_one()), int(changed), int(started or 0)

        running, changed, started = self._db.read(work)
        return {
            "running": running,
            "started_per_second": round(started / seconds, 1),
            "changes_per_second": round(changed / seconds, 1),
        }

    def _keep_on(self) -> None:
        first, due_s = 0, time.monotonic()
        with Client(self._addresses, timeout_s=CALL_TIMEOUT_S, retry=NO_RETRIES) as client:
            while not self._over.wait(max(due_s - time.monotonic(), 0)):
                client.tasks.Restart(self._next(first))
                answer: Any = client.jobs.Create(job_pb2.CreateRequest(config=self._short))
                assert not answer.HasField("error"), answer.error
                first = (first + self._count) % self._instances
                due_s = max(due_s + 1, time.monotonic())

    def _next(self, first: int) -> task_pb2.RestartRequest:
        request = task_pb2.RestartRequest(jobId=peloton_pb2.JobID(value=self._job_id))
        request.ranges.add(**{"from": first, "to": min(first + self._count, self._instances)})
        return request
