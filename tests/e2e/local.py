"""A local cluster in a background thread, and a typed client with the actions and conditions that stories use."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from google.protobuf.json_format import ParseDict

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.peloton_pb2 import Secret
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import NO_RETRIES, Client
from peloton.model.pod import TERMINAL
from services.lab.local.cluster import LocalCluster, LocalSettings
from services.lab.local.control import ControlServer, call
from services.lab.local.part import Part
from services.resmgr.audit import BROKEN
from services.storage.storage import Storage
from tests.kubernetes.client import Client as KubernetesClient
from tests.kubernetes.client import login_of
from tests.waiting import LONGEST_S, QUIET_S, Condition, pause_s, timeout_s

TIMEOUT_S = LONGEST_S
"""The timeout of calls and of processes that a story starts; a wait for a condition has that of ``tests.waiting``."""
POLL_S, POLL_MAX_S = 0.1, 0.5
"""Bounds of the pause between two reads: reads take a third of the CPU of a story."""
MESOS = os.environ.get("PELOTON_TEST_MESOS", "")
"""A real Mesos, host:port, on which the stories of batch jobs run."""
STRICT = {"PELOTON_CHECK_INVARIANTS": "true", "PELOTON_RETRY_WAIT_S": "1"}
JOB_END = {"SUCCEEDED", "FAILED", "KILLED"}
PODS_SHOWN, EVENTS_SHOWN, LINES_SHOWN = 5, 6, 60
"""Limits of a wait's failure message: pods of each job, events of each pod, lines of the log."""


@contextmanager
def between_writes(database: str) -> Iterator[None]:
    """Keep the turn of the writers of an SQLite file meanwhile: a process that stopped while it had the turn would
    stop all others with it."""
    url = sa.make_url(database)
    if url.get_backend_name() != "sqlite":
        yield
        return
    path = url.database
    with open(f"{path}-gate", "rb") as gate, open(f"{path}-turn", "rb") as turn:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def stand_still(pids: Iterable[int]) -> None:
    """Stop the processes and wait until all of their threads have stopped."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            while not has_stopped(thread):
                time.sleep(POLL_S)


def has_stopped(thread: Path) -> bool:
    """Return whether the process has stopped or ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Cluster:
    """``with Cluster(...) as c``: all processes of a Peloton, and calls to its API."""

    made_of: type[LocalCluster] = LocalCluster

    def __init__(self, settings: LocalSettings) -> None:
        self.log: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local cluster", daemon=True)
        self._thread.start()
        self.local = self._run(self._make(settings))

    async def _make(self, settings: LocalSettings) -> LocalCluster:
        return self.made_of(settings, lambda part, line: self.log.append(f"{part}: {line}"))

    def _run(self, work: Any, max_s: float = TIMEOUT_S) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(max_s)

    def __enter__(self) -> Self:
        try:
            self._run(self.local.__aenter__())
        except BaseException:
            self._end()
            print("\n".join(self.log[-200:]))
            raise
        self.client = Client(self.local.addresses, retry=NO_RETRIES)
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self._run(self.local.__aexit__())
        self._end()
        broken = [line for line in self.log if BROKEN in line]
        assert not broken, "\n".join(broken[:20])

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Failures.

    def kill(self, part: str) -> None:
        """kill -9; the supervisor starts it again."""

        async def act() -> None:
            self.local.part(part).kill()

        self._run(act())

    @contextmanager
    def standby(self, role: str) -> Iterator[Part]:
        """A second process of the role, which leads when the first one falls silent."""
        first = self.local.part(role)
        second = type(first)(f"{role}-standby", first.argv, first.environment, first.log_path, first.report)
        self._run(second.start())
        try:
            yield second
        finally:
            self._run(second.stop())

    @contextmanager
    def asleep(self, *parts: str) -> Iterator[None]:
        """Stop these processes, or all of them, during the block, as when their machine sleeps."""
        with self.parts_asleep([self.local.part(name) for name in parts or self.local.parts]):
            yield

    @contextmanager
    def parts_asleep(self, stopped: Sequence[Part]) -> Iterator[None]:
        health_paths = [part.health_path for part in stopped]
        for part in stopped:
            part.health_path = None  # they hang on purpose
        running = [part.process for part in stopped if part.process and part.is_running]
        with between_writes(self.local.database):
            for process in running:
                process.send_signal(signal.SIGSTOP)
            stand_still(process.pid for process in running)
        try:
            yield
        finally:
            for process in running:
                process.send_signal(signal.SIGCONT)
            for part, path in zip(stopped, health_paths, strict=True):
                part.health_path = path

    def stop_part(self, part: str, now: bool = False) -> None:
        self._run(self.local.part(part).stop(now))

    def start_part(self, part: str) -> None:
        self._run(self.local.part(part).start())

    def lose_temporal_store(self) -> None:
        """Kill Temporal, delete what it has stored, and start it again."""
        self.stop_part("temporal", now=True)
        for path in self.local.data_dir.glob("temporal.db*"):
            path.unlink()
        self.start_part("temporal")

    @contextmanager
    def control(self) -> Iterator[Callable[[str, str], list[str]]]:
        """Send an action and a name to `peloton local`, as its commands do; return the answer's lines."""
        server = ControlServer(self.local)
        self._run(server.__aenter__())
        try:
            yield lambda action, name: call(self.local.port, action, name)
        finally:
            self._run(server.__aexit__())

    def drill(self, path: str, body: dict[str, Any]) -> None:
        """Something that the emulated Mesos of the first cluster does to itself. Raises HTTPError."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.local.token}"}
        url = f"http://{self.local.mesos}/minicluster/{path}"
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60).read()

    # Pools and jobs.

    def capacity(self, kind: str = "cpu") -> float:
        return self._capacities()[kind]

    def _capacities(self) -> dict[str, float]:
        """Capacities by kind; raises UNAVAILABLE while they are not known."""
        root = self.client.respools.GetResourcePool(respool_pb2.GetRequest()).poolinfo.config
        return {r.kind: r.limit for r in root.resources}

    def pool(
        self, name: str, cpu: float = 1e4, memory: float = 1e7, disk: float = 1e8, gpu: float = 0, own_cpu: float = 0
    ) -> str:
        """Create a first-level pool whose limits are cut to the cluster's; ``own_cpu`` is reserved. Returns its id."""
        capacity: dict[str, float] = {}
        self.wait(lambda: capacity.update(self._capacities()) or capacity["cpu"] > 0, "the capacity of the cluster")
        wanted = {"cpu": cpu, "memory": memory, "disk": disk, "gpu": gpu}
        config = respool_pb2.ResourcePoolConfig(name=name, parent=peloton_pb2.ResourcePoolID(value="root"))
        for kind, limit in wanted.items():
            reserved = own_cpu if kind == "cpu" else 0
            config.resources.add(kind=kind, reservation=reserved, limit=min(limit, capacity.get(kind, 0)), share=1)
        answer = self.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
        assert not answer.HasField("error"), answer.error
        return str(answer.result.value)

    def submit(self, pool_id: str, job_id: str = "", secrets: Sequence[Secret] = (), **config: Any) -> str:
        """Create a batch job; keywords are those of ``job_config``."""
        request = job_pb2.CreateRequest(config=job_config(pool_id, **config), secrets=secrets)
        if job_id:
            request.id.value = job_id
        answer = self.client.jobs.Create(request)
        assert not answer.HasField("error"), answer.error
        return str(answer.jobId.value)

    def runtime(self, job_id: str) -> job_pb2.RuntimeInfo:
        answer = self.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id)))
        assert not answer.HasField("error"), answer.error
        return answer.jobInfo.runtime

    def job_state(self, job_id: str) -> str:
        return job_pb2.JobState.Name(self.runtime(job_id).state)

    def counts(self, job_id: str) -> dict[str, int]:
        return {state: count for state, count in self.runtime(job_id).taskStats.items() if count}

    def finish(self, job_id: str, quiet_s: float = QUIET_S) -> str:
        """Wait until the job has ended; returns its state."""
        self.wait(lambda: self.job_state(job_id) in JOB_END, f"end of job {job_id}", quiet_s)
        return self.job_state(job_id)

    def wait(self, condition: Condition, what: str, quiet_s: float = QUIET_S) -> None:
        """Wait for a condition; errors of an API that does not respond count as "not yet". ``quiet_s`` is the timeout
        on a quiet machine, see ``tests.waiting``."""
        import grpc

        began_s, last = time.monotonic(), ""
        while (waited_s := time.monotonic() - began_s) < timeout_s(quiet_s):
            try:
                if condition():
                    return
                last = ""
            except grpc.RpcError as error:
                last = str(error)
            time.sleep(pause_s(waited_s, POLL_S, POLL_MAX_S))
        seen = "\n".join([*self._list_unfinished(), *self.log[-LINES_SHOWN:]])
        raise AssertionError(f"{what} not seen within {waited_s:.0f} s {last}\n{seen}")

    def _list_unfinished(self) -> list[str]:
        """Return what storage has of the jobs and pods that have not ended, for the reader of a failure."""
        storage = Storage(self.local.database)
        try:
            lines = []
            for job_id in storage.jobs.active_ids():
                pods = [pod for pod in storage.pods.page(job_id) if pod.state not in TERMINAL]
                lines.append(f"{storage.jobs.get(job_id)}")
                for pod in pods[:PODS_SHOWN]:
                    lines.append(f"  {pod.pod_id} {pod.state} goal {pod.goal} {pod.host} {pod.message} {pod.reason}")
                    events = storage.pods.events(job_id, pod.instance_id)[:EVENTS_SHOWN]
                    lines += [
                        f"    {e.time_ns} {e.state} goal {e.goal} {e.host} {e.message} {e.reason}" for e in events
                    ]
            return lines
        finally:
            storage.close()

    # Pods.

    def takes_pods(self, pool_id: str, host: str) -> bool:
        """Return whether a job that requires this very host runs to success."""
        job = self.submit(
            pool_id, instanceCount=1, defaultConfig=shell("sleep 0.1", memory=1, **bound_to("hostname", host))
        )
        return self.finish(job) == "SUCCEEDED"

    def host_events(self, host: str) -> list[tuple[str, str]]:
        """The events of a host, the oldest first: kind and text."""
        events = self.client.overview.ListHostEvents(overview_pb2.ListHostEventsRequest(hostname=host)).events
        name = overview_pb2.HostEventKind.Name
        return [(name(one.kind).removeprefix("HOST_EVENT_KIND_"), one.text) for one in reversed(events)]

    def list_avoided(self) -> dict[str, str]:
        """Return the hosts that placement avoids, and why."""
        infos = self.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
        return {info.hostname: info.avoided for info in infos if info.avoided}

    def tasks(self, job_id: str) -> dict[int, task_pb2.TaskInfo]:
        """Tasks by instance; empty while none is created yet (which the API calls not found)."""
        answer = self.client.tasks.List(task_pb2.ListRequest(jobId=peloton_pb2.JobID(value=job_id)))
        return dict(answer.result.value)

    def task(self, job_id: str, instance: int = 0) -> task_pb2.TaskInfo:
        answer = self.client.tasks.Get(task_pb2.GetRequest(jobId=peloton_pb2.JobID(value=job_id), instanceId=instance))
        return answer.result

    def states(self, job_id: str) -> dict[int, str]:
        return {i: task_pb2.TaskState.Name(t.runtime.state) for i, t in self.tasks(job_id).items()}

    def run_ids(self, job_id: str) -> dict[int, int]:
        return {i: int(t.runtime.mesosTaskId.value.rpartition("-")[2]) for i, t in self.tasks(job_id).items()}

    def ask_kubernetes(self, path: str) -> bytes:
        """The answer of the emulated apiserver, unchanged."""
        assert self.local.kubernetes is not None
        with KubernetesClient(login_of(self.local.kubernetes.kubeconfig)) as client:
            reply = client.ask("GET", path)
        assert reply.status == HTTPStatus.OK, reply.body
        return reply.body

    def log_of(self, job_id: str, instance: int = 0, file: str = "stdout") -> str:
        import urllib.request
        from urllib.parse import quote

        request = task_pb2.BrowseSandboxRequest(jobId=peloton_pb2.JobID(value=job_id), instanceId=instance)
        answers: list[task_pb2.BrowseSandboxResponse] = []

        def is_answered() -> bool:  # its host may be about to register again
            answers[:] = [self.client.tasks.BrowseSandbox(request)]
            return not answers[0].HasField("error")

        self.wait(is_answered, f"the files of {job_id}-{instance}")
        (answer,) = answers
        path = next(p for p in answer.paths if p.endswith(f"/{file}"))
        with urllib.request.urlopen(f"http://{answer.hostname}:{answer.port}/files/download?path={quote(path)}") as r:
            return str(r.read().decode())


def job_config(pool_id: str, **config: Any) -> job_pb2.JobConfig:
    """A JobConfig of a batch job, preemptible by default; keywords are JobConfig fields in JSON form."""
    sla = {"preemptible": True, **config.pop("sla", {})}
    return ParseDict({"name": "test", "respoolID": {"value": pool_id}, "sla": sla, **config}, job_pb2.JobConfig())


def shell(command: str, cpu: float = 0.1, memory: float = 16, **rest: Any) -> dict[str, Any]:
    """A TaskConfig that runs a shell command."""
    return {
        "resource": {"cpuLimit": cpu, "memLimitMb": memory, "diskLimitMb": 1},
        "command": {"shell": True, "value": command},
        **rest,
    }


def bound_to(key: str, value: str) -> dict[str, Any]:
    """The fields of a TaskConfig that restrict it to hosts with this label."""
    rule = {"kind": "HOST", "condition": "CONDITION_EQUAL", "requirement": 1, "label": {"key": key, "value": value}}
    return {"constraint": {"type": "LABEL_CONSTRAINT", "labelConstraint": rule}}


def temporary(tmp_path: Path, **settings: Any) -> LocalSettings:
    """A cluster whose resource manager checks its state after each cycle; ``Cluster`` fails when an invariant was
    broken. Batch pods that fail run again soon.

    Slack is not estimated unless the story is about it: each estimate takes offers away, and a launch in that moment
    makes one more run, which other stories count.
    """
    environment = {**STRICT, **settings.pop("environment", {})}
    return LocalSettings(port=0, data_dir=tmp_path, environment=environment, **{"slack_interval_s": 0, **settings})


def on_real_mesos() -> Cluster:
    """Return a cluster on ``MESOS``, where the framework goes with the data folder, which is the cluster's own."""
    return Cluster(LocalSettings(port=0, mesos=MESOS, slack_interval_s=0, environment=STRICT))
