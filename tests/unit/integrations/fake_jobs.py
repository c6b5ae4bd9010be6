"""A double of the calls that integrations make: one pool, and jobs whose instances a test moves from state to state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import Client
from peloton.model.job import JOB_TERMINAL
from peloton.model.pod import TERMINAL

POOL = "/science"


class Refused(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INVALID_ARGUMENT


class FakeClient:
    """``calls`` has the names of the calls so far; ``jobs_seen`` the configurations of the jobs, by id.

    ``before`` is called with the name of each call and may change the double, as another client would.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.jobs_seen: dict[str, job_pb2.JobConfig] = {}
        self.runs: dict[str, list[task_pb2.TaskInfo]] = {}
        self.before: Callable[[str], None] = lambda name: None
        self.jobs = self.tasks = self.respools = self

    run, stop, _do = Client.run, Client.stop, Client._do

    def move(self, job_id: str, state: str, *numbers: int, goal: str = "SUCCEEDED") -> None:
        for number in numbers:
            runtime = self.runs[job_id][number].runtime
            runtime.state, runtime.goalState = task_pb2.TaskState.Value(state), task_pb2.TaskState.Value(goal)

    def states(self, job_id: str) -> list[str]:
        return [task_pb2.TaskState.Name(info.runtime.state) for info in self.runs[job_id]]

    def state(self, job_id: str) -> str:
        states = self.states(job_id)
        if not TERMINAL.issuperset(states):
            return "RUNNING"
        return next((state for state in ("FAILED", "KILLED") if state in states), "SUCCEEDED")

    def close(self) -> None:
        self.calls.append("close")

    def LookupResourcePoolID(self, request: respool_pb2.LookupRequest) -> respool_pb2.LookupResponse:
        answer = respool_pb2.LookupResponse()
        if request.path.value == POOL:
            answer.id.value = "pool"
        else:
            answer.error.notFound.path.CopyFrom(request.path)
        return answer

    def Create(self, request: job_pb2.CreateRequest) -> job_pb2.CreateResponse:
        self.note("Create")
        job_id, answer = request.id.value, job_pb2.CreateResponse()
        if job_id in self.jobs_seen:
            answer.error.alreadyExists.id.value = job_id
            return answer
        self.jobs_seen[job_id] = config = job_pb2.JobConfig()
        config.CopyFrom(request.config)
        self.runs[job_id] = [run(number) for number in range(config.instanceCount)]
        answer.jobId.value = job_id
        return answer

    def Update(self, request: job_pb2.UpdateRequest) -> job_pb2.UpdateResponse:
        self.note("Update")
        self.check_active(request.id.value)
        runs = self.runs[request.id.value]
        runs += [run(number) for number in range(len(runs), request.config.instanceCount)]
        self.jobs_seen[request.id.value].CopyFrom(request.config)
        return job_pb2.UpdateResponse()

    def GetCache(self, request: job_pb2.GetCacheRequest) -> job_pb2.GetCacheResponse:
        job_id = request.id.value
        answer = job_pb2.GetCacheResponse(config=job_pb2.JobConfig(instanceCount=len(self.runs[job_id])))
        answer.runtime.state = job_pb2.JobState.Value(self.state(job_id))
        for state, count in Counter(self.states(job_id)).items():
            answer.runtime.taskStats[state] = count
        return answer

    def Get(self, request: job_pb2.GetRequest) -> job_pb2.GetResponse:
        return job_pb2.GetResponse(jobInfo=job_pb2.JobInfo(id=request.id, config=self.jobs_seen[request.id.value]))

    def Query(self, request: job_pb2.QueryRequest) -> job_pb2.QueryResponse:
        """Find jobs that have all of the labels."""
        wanted = {(label.key, label.value) for label in request.spec.labels}
        answer = job_pb2.QueryResponse()
        for job_id, config in self.jobs_seen.items():
            if wanted <= {(label.key, label.value) for label in config.labels}:
                answer.results.add(id={"value": job_id}, labels=config.labels)
        return answer

    def List(self, request: task_pb2.ListRequest) -> task_pb2.ListResponse:
        self.note("List")
        answer = task_pb2.ListResponse()
        for info in self.runs[request.jobId.value]:
            answer.result.value[info.instanceId].CopyFrom(info)
        return answer

    def Start(self, request: task_pb2.StartRequest) -> task_pb2.StartResponse:
        self.note("Start")
        self.check_active(request.jobId.value)
        self.move(request.jobId.value, "INITIALIZED", *numbers_of(request))
        return task_pb2.StartResponse()

    def Restart(self, request: task_pb2.RestartRequest) -> task_pb2.RestartResponse:
        self.note("Restart")
        self.check_active(request.jobId.value)
        self.move(request.jobId.value, "INITIALIZED", *numbers_of(request))
        return task_pb2.RestartResponse()

    def Stop(self, request: task_pb2.StopRequest) -> task_pb2.StopResponse:
        self.note("Stop")
        numbers = numbers_of(request) or range(len(self.runs[request.jobId.value]))
        alive = [n for n in numbers if self.states(request.jobId.value)[n] not in TERMINAL]
        self.move(request.jobId.value, "KILLED", *alive, goal="KILLED")
        return task_pb2.StopResponse()

    def note(self, call: str) -> None:
        self.before(call)
        self.calls.append(call)

    def check_active(self, job_id: str) -> None:
        if self.state(job_id) in JOB_TERMINAL:
            raise Refused


def run(number: int) -> task_pb2.TaskInfo:
    info = task_pb2.TaskInfo(instanceId=number)
    info.runtime.state, info.runtime.goalState = task_pb2.PENDING, task_pb2.SUCCEEDED
    return info


def numbers_of(request: Any) -> list[int]:
    return [number for one in request.ranges for number in range(getattr(one, "from"), one.to)]
