"""Instances of one batch job, which a framework adds and stops by batches.

    spec = InstanceSpec(command="exec my-worker", cpu=1, memory_mib=1024)
    with Client(address) as client:
        workers = Instances(client, "/science", "workers", spec)
        workers.add(500)          # two calls, whatever the number
        workers.stop([3, 4, 5])
        workers.stop_all()

A number of instances takes as many calls as there are kinds of change, not as there are instances: new ones are one
update of the job, and instances that ended are used again by one call. The job ends with its last instance; ``add``
then creates a new one.
"""

from __future__ import annotations

import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.task import task_pb2
from peloton.client import Client, operations
from peloton.client.operations import ranges_of
from peloton.errors import Aborted, InvalidArgument
from peloton.model.job import JOB_TERMINAL
from peloton.model.pod import TERMINAL

TRIES = 3
"""Tries of ``add``, whose job may end between a read and a call."""


@dataclass(frozen=True)
class InstanceSpec:
    """The command of each instance, what it may use, and what may be done to it.

    ``command`` runs in a shell, and ends the instance when it ends; ``PELOTON_JOB_ID`` and ``PELOTON_INSTANCE_ID`` name
    the instance. Without ``image`` it runs on the files of the host. Failed runs are repeated up to ``failures_max``
    times, and preempted ones when there is capacity again, unless the instance ``ends_when_preempted``. SIGKILL follows
    SIGTERM after ``grace_s``.
    """

    command: str = ""
    cpu: float = 1.0
    memory_mib: float = 1024.0
    disk_mib: float = 256.0
    gpu: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    preemptible: bool = True
    revocable: bool = False
    ends_when_preempted: bool = False
    failures_max: int = 3
    grace_s: int = 30
    ports: Sequence[str] = ()
    """Names of ports of the host, each in an environment variable of its name."""

    def interpreter(self, given: str = "") -> str:
        """Return the interpreter in the pod: the given one, else that of the image, or of this process without one."""
        return given or ("python3" if self.image else sys.executable)

    def task(self) -> dict[str, Any]:
        """Return the TaskConfig in its JSON form."""
        variables = [{"name": name, "value": value} for name, value in sorted(self.environment.items())]
        command = {"shell": True, "value": self.command, "environment": {"variables": variables}}
        task: dict[str, Any] = {
            "resource": {
                "cpuLimit": self.cpu,
                "memLimitMb": self.memory_mib,
                "diskLimitMb": self.disk_mib,
                "gpuLimit": self.gpu,
            },
            "command": command,
            "ports": [{"name": name, "envName": name} for name in self.ports],
            "restartPolicy": {"maxFailures": self.failures_max},
            "killGracePeriodSeconds": self.grace_s,
            "revocable": self.revocable,
        }
        if self.ends_when_preempted:
            task["preemptionPolicy"] = {"killOnPreempt": True}
        if self.image:
            docker = {"type": "DOCKER", "docker": {"name": self.image}}
            task["container"] = {"type": "MESOS", "mesos": {"image": docker}}
        return task


@dataclass(frozen=True)
class Instance:
    """An instance and its current run. ``state`` is a name of TaskState."""

    number: int
    state: str
    is_wanted: bool
    host: str = ""
    run: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    message: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True)
class Counts:
    """The state of a job, a name of JobState, and the numbers of its instances by name of TaskState."""

    state: str
    instance_count: int
    by_state: Mapping[str, int]

    @property
    def has_ended(self) -> bool:
        return self.state in JOB_TERMINAL

    @property
    def alive_count(self) -> int:
        """Instances that run, or will."""
        return self.instance_count - sum(self.by_state.get(state, 0) for state in TERMINAL)


class Instances:
    """The instances of one job in a pool. Thread-safe; errors of calls are ``grpc.RpcError``."""

    def __init__(
        self,
        client: Client,
        pool: str,
        name: str,
        spec: InstanceSpec,
        *,
        owner: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the job, which ``add`` creates. Raises NotFound if there is no such pool."""
        config = ParseDict(
            {
                "name": name,
                "type": "BATCH",
                "owningTeam": owner or name,
                "owner": owner,
                "labels": [{"key": key, "value": value} for key, value in sorted((labels or {}).items())],
                "respoolID": {"value": client.run(operations.find_pool(pool))},
                "sla": {"preemptible": spec.preemptible, "revocable": spec.revocable},
                "defaultConfig": spec.task(),
            },
            job_pb2.JobConfig(),
        )
        self._begin(client, config)

    def _begin(self, client: Client, config: job_pb2.JobConfig) -> None:
        self.job_id = ""
        self._client, self._config = client, config
        self._lock = threading.RLock()
        self._next_id = str(uuid.uuid4())

    @classmethod
    def find(cls, client: Client, job_id: str) -> Instances:
        """Return the instances of a job that was created before, by another program perhaps."""
        answer = refuse(client.jobs.Get(job_pb2.GetRequest(id=JobID(value=job_id))))
        found = cls.__new__(cls)
        found._begin(client, answer.jobInfo.config)
        found.job_id = job_id
        return found

    def add(self, count: int, use_ended: bool = True) -> list[int]:
        """Start so many more instances; return their numbers. A new job takes the place of one that has ended.

        Ended instances are started again before new ones are added, unless ``use_ended`` is false.
        After an error ``count`` says what was added; only the creation of a job may be repeated without effect.
        """
        if count <= 0:
            return []
        with self._lock:
            for _ in range(TRIES):
                known = self.count()
                if known is None or known.has_ended:
                    return self._create(count)
                with suppress(Aborted):
                    return self._grow(known.instance_count, count, use_ended)
        raise Aborted(f"job {self.job_id} ended {TRIES} times while {count} instances were added")

    def stop(self, numbers: Iterable[int]) -> None:
        """Stop instances, which are not repeated. An instance that has ended can be added again afterwards."""
        with self._lock:
            if self.job_id and (ranges := ranges_of(numbers)):
                request = task_pb2.StopRequest(jobId=self._id(), ranges=ranges)
                refuse(self._client.tasks.Stop(request))

    def stop_all(self) -> None:
        """Stop the job."""
        with self._lock:
            if self.job_id:
                refuse(self._client.tasks.Stop(task_pb2.StopRequest(jobId=self._id())))

    def read(self) -> list[Instance]:
        """Return all instances, by number."""
        if not self.job_id:
            return []
        answer = self._client.tasks.List(task_pb2.ListRequest(jobId=self._id()))
        return [instance_of(info) for _, info in sorted(answer.result.value.items())]

    def count(self) -> Counts | None:
        """Return the state of the job and its instances by state, which one short call reads; None before ``add``."""
        if not self.job_id:
            return None
        cache = self._client.jobs.GetCache(job_pb2.GetCacheRequest(id=self._id()))
        by_state = {state: count for state, count in cache.runtime.taskStats.items() if count}
        return Counts(job_pb2.JobState.Name(cache.runtime.state), cache.config.instanceCount, by_state)

    def _create(self, count: int) -> list[int]:
        self._config.instanceCount = count
        answer = self._client.jobs.Create(job_pb2.CreateRequest(id=JobID(value=self._next_id), config=self._config))
        if answer.error.alreadyExists.id.value != self._next_id:  # else the answer to an earlier try was lost
            refuse(answer)
        self.job_id, self._next_id = self._next_id, str(uuid.uuid4())
        return list(range(count))

    def _grow(self, known: int, count: int, use_ended: bool) -> list[int]:
        """Use ended instances again, and add new ones to the ``known`` ones. Raises Aborted if the job has ended."""
        ended = [one for one in self.read() if one.has_ended][:count] if use_ended else []
        stopped = [one.number for one in ended if not one.is_wanted]
        over = [one.number for one in ended if one.is_wanted]
        new = range(known, known + count - len(ended))
        if stopped:
            self._call(self._client.tasks.Start, task_pb2.StartRequest(jobId=self._id(), ranges=ranges_of(stopped)))
        if over:
            self._call(self._client.tasks.Restart, task_pb2.RestartRequest(jobId=self._id(), ranges=ranges_of(over)))
        if new:
            self._config.instanceCount = new.stop
            self._call(self._client.jobs.Update, job_pb2.UpdateRequest(id=self._id(), config=self._config))
        return sorted([*stopped, *over, *new])

    def _id(self) -> JobID:
        return JobID(value=self.job_id)

    def _call(self, call: Callable[[Any], Any], request: Any) -> None:
        try:
            refuse(call(request))
        except grpc.RpcError as error:
            known = self.count() if error.code() is grpc.StatusCode.INVALID_ARGUMENT else None
            if known is not None and known.has_ended:
                raise Aborted(f"job {self.job_id} has ended") from error
            raise


def refuse(answer: Any) -> Any:
    """Return the answer. Raises InvalidArgument with the text of the error in it, if it has one."""
    if "error" in answer.DESCRIPTOR.fields_by_name and answer.HasField("error"):
        [(_, error), *_] = answer.error.ListFields() or [("", answer.error)]
        raise InvalidArgument(getattr(error, "message", "") or str(error).strip())
    return answer


def instance_of(info: task_pb2.TaskInfo) -> Instance:
    runtime = info.runtime
    return Instance(
        number=info.instanceId,
        state=task_pb2.TaskState.Name(runtime.state),
        is_wanted=runtime.goalState not in (task_pb2.KILLED, task_pb2.DELETED),
        host=runtime.host,
        run=runtime.mesosTaskId.value,
        ports=dict(runtime.ports),
        message=runtime.message,
    )


def local_address(api: str) -> str:
    """Return the address of this host from which it reaches the API, at which pods most likely reach it.

    Raises InvalidArgument, OSError.
    """
    first = api.partition(",")[0].strip()
    host, _, port = first.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise InvalidArgument(f"address {first!r}: want HOST:PORT")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # sends nothing
        return str(probe.getsockname()[0])
