"""Stores are restored from different moments, or one is lost: every job reaches its goal, and no instance runs
twice at a time.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from peloton.api.v0.schedule import schedule_pb2
from peloton.model.job import JobType
from peloton.model.pod import PodState
from services.backup.backup import Part, Stores, restore, take
from services.hostmgr.mesos.operator import Operator
from services.settings import Settings
from services.storage.storage import Storage
from tests.e2e.local import Cluster, job_config, shell, temporary
from tests.e2e.service import Service
from tests.nightly import nightly

pytestmark = pytest.mark.xdist_group("restore")
PODS, INSTANCES = 40, 4
LIVE = {"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "Pending", "Running"}
OLD, NEW, NOW, LOST = "old", "new", "as it is", "lost"
ROLES = "resmgr", "hostmgr", "api", "worker"
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["minicluster", nightly("kubernetes")])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = temporary(tmp_path_factory.mktemp("restore"), simulate=8)
    if request.param == "kubernetes":
        settings = replace(settings, simulate=0, kubernetes=8, no_mesos=True)
    with Cluster(settings) as running:
        yield running


class Watch:
    """Reads the tasks of the emulated Mesos again and again, and notes instances with two live ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.doubles: set[str] = set()
        self.runs: dict[str, set[int]] = defaultdict(set)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def live(self) -> Counter[str]:
        """Count the live tasks of each instance."""
        count: Counter[str] = Counter()
        for pod, state in self._list_pods():
            instance, _, run = pod.rpartition("-")
            self.runs[instance].add(int(run))
            count[instance] += state in LIVE
        return count

    def _list_pods(self) -> Iterator[tuple[str, str]]:
        """Yield pods and their states, of those that the cluster remembers."""
        if self._cluster.local.kubernetes is not None:
            pods = json.loads(self._cluster.ask_kubernetes("/api/v1/pods?labelSelector=peloton.io%2Fcluster"))["items"]
            yield from ((one["metadata"]["name"], one["status"]["phase"]) for one in pods)
            return
        answer = Operator().call(self._cluster.local.mesos, {"type": "GET_TASKS"})["get_tasks"]
        tasks = *answer.get("tasks", ()), *answer.get("completed_tasks", ())
        yield from ((task["task_id"]["value"], task["state"]) for task in tasks)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            with suppress(OSError):
                self.doubles |= {instance for instance, count in self.live().items() if count > 1}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def disaster(cluster: Cluster) -> Iterator[None]:
    """Kill the control plane and Temporal; hosts run on. Start them again in the end."""
    roles = [name for name in cluster.local.parts if name.startswith(ROLES)]
    for part in (*roles, "temporal"):
        cluster.stop_part(part, now=True)
    cluster.wait(lambda: not leads(cluster), "the end of the leases")
    yield
    for part in ("temporal", *roles):
        cluster.start_part(part)


def leads(cluster: Cluster) -> bool:
    storage = Storage(cluster.local.database)
    try:
        return any(row.expires_s > time.time() for row in storage.overview.leases())
    finally:
        storage.close()


def stores_of(cluster: Cluster) -> Stores:
    return Stores(cluster.local.database, cluster.local.data_dir / "temporal.db")


def back_up(cluster: Cluster, folder: Path) -> Path:
    settings = Settings(temporal=cluster.local.temporal)
    take(settings, stores_of(cluster), folder, "test", has_schedules=True)
    return folder


def bring_back(cluster: Cluster, folder: Path, part: Part) -> None:
    settings = Settings(temporal=cluster.local.temporal)
    restore(settings, stores_of(cluster), folder, [part], may_replace=True)


@pytest.mark.parametrize(
    ("database", "temporal"),
    [(NEW, OLD), nightly(OLD, OLD), nightly(NOW, OLD), nightly(OLD, LOST), nightly(OLD, NOW), nightly(OLD, NEW)],
)
def test_stores_of_different_moments(database: str, temporal: str, cluster: Cluster, tmp_path: Path) -> None:
    """Jobs and a service of before the backup end as wished; what was begun after it is unknown, and killed."""
    number = next(_numbers)
    pool = cluster.pool(f"restored-{number}")
    service = Service(cluster, cluster.pool(f"services-{number}"), INSTANCES).create().wait_running()
    add_schedule(cluster, f"yearly-{number}", pool)
    nap = shell("sleep 2", cpu=0.5, memory=16)
    first = cluster.submit(pool, instanceCount=PODS, defaultConfig=nap)
    cluster.wait(lambda: cluster.counts(first).get("SUCCEEDED", 0) >= PODS // 10, "a tenth of the first job")
    backups = {OLD: back_up(cluster, tmp_path / OLD)}
    second = cluster.submit(pool, instanceCount=PODS, defaultConfig=nap)
    service.replace("sleep 2000", batch_size=2)
    cluster.wait(lambda: cluster.counts(second).get("SUCCEEDED", 0) >= PODS // 10, "a tenth of the second job")
    backups[NEW] = back_up(cluster, tmp_path / NEW)
    third = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 30", cpu=0.1, memory=16))
    cluster.wait(lambda: cluster.counts(third).get("RUNNING", 0) > 0, "the third job runs")
    known = {OLD: [first], NEW: [first, second], NOW: [first, second, third]}[database]

    with Watch(cluster) as watch:
        with disaster(cluster):
            if database in backups:
                bring_back(cluster, backups[database], Part.DATABASE)
            if temporal in backups:
                bring_back(cluster, backups[temporal], Part.TEMPORAL)
            if temporal == LOST:
                for path in cluster.local.data_dir.glob("temporal.db*"):
                    path.unlink()
        if temporal == LOST:
            cluster.wait(lambda: is_served(cluster), "Temporal again")
            bring_back(cluster, backups[OLD], Part.SCHEDULES)
        assert ["SUCCEEDED"] * len(known) == [cluster.finish(job, quiet_s=120) for job in known]
        service.wait_running()
        unknown = {first, second, third} - {*known}
        cluster.wait(lambda: not any(n for name, n in watch.live().items() if name[:36] in unknown), "orphans end")

    assert set() == watch.doubles
    assert {job: {"SUCCEEDED": PODS} for job in known} == {job: cluster.counts(job) for job in known}
    described = cluster.client.schedules.GetSchedule(schedule_pb2.GetScheduleRequest(name=f"yearly-{number}")).schedule
    assert (["5 4 3 2 *"], True, "in spring") == ([*described.times.crons], described.paused, described.note)
    if database in backups:
        launched = list_launched(backups[database])
        assert {name: {1} for name in launched} == {name: watch.runs[name] for name in launched}


def add_schedule(cluster: Cluster, name: str, pool: str) -> None:
    config = job_config(pool, instanceCount=1, defaultConfig=shell("sleep 1"))
    times = schedule_pb2.Times(crons=["5 4 3 2 *"])
    request = schedule_pb2.CreateScheduleRequest(
        name=name, times=times, paused=True, note="in spring", job_config=config
    )
    cluster.client.schedules.CreateSchedule(request)

    def is_listed() -> bool:
        found = cluster.client.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest(limit=1_000)).schedules
        return name in [one.name for one in found]

    cluster.wait(is_listed, "the schedule")


def is_served(cluster: Cluster) -> bool:
    """Return whether Temporal answers through the api."""
    cluster.client.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest())
    return True


def list_launched(folder: Path) -> list[str]:
    """Return the batch pods that the backup has on hosts, or ended."""
    storage = Storage(f"sqlite:///{folder / 'peloton.db'}")
    try:
        pods = [pod for job in storage.jobs.active_ids() for pod in storage.pods.page(job)]
        waiting = {PodState.INITIALIZED, PodState.PENDING, PodState.READY}
        services = {job for job in storage.jobs.active_ids() if storage.jobs.get(job).type is JobType.SERVICE}  # type: ignore[union-attr]
        return [
            f"{pod.job_id}-{pod.instance_id}" for pod in pods if pod.state not in waiting and pod.job_id not in services
        ]
    finally:
        storage.close()
