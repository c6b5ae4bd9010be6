"""A service of the v1alpha API, with the actions and conditions that its stories use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import ParseDict

from peloton.api.convert import POD_STATES
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc.pod_svc_pb2 import GetPodEventsRequest
from peloton.lifecycle.backoff import DEFAULT_BACKOFF
from peloton.model.pod import PodState
from tests.availability import Tale
from tests.e2e.local import Cluster
from tests.waiting import QUIET_S, Condition

SLEEP = "sleep 1000"
NEXT_RUN_S = DEFAULT_BACKOFF.initial_s + QUIET_S
"""Timeout for the run after a failure, before which the pod of a service waits."""


@dataclass
class Seen:
    """The changes of a service's pods during a block; complete when the block has ended."""

    away_most: int = 0


class Service:
    """Created with ``create``; each change is decided on the version that was read just before."""

    def __init__(self, cluster: Cluster, pool_id: str, count: int, command: str = SLEEP, **fields: Any) -> None:
        self.cluster, self.client = cluster, cluster.client
        self.fields = {"name": "service", "respoolId": {"value": pool_id}, **fields}
        self.count, self.command = count, command
        self.image: str = self.fields.pop("image", "")
        self.liveness: dict[str, Any] = self.fields.pop("livenessCheck", {})
        self.memory_mb = int(self.fields.pop("memoryMb", 16))
        self.pod: dict[str, Any] = self.fields.pop("pod", {})
        self.id = ""

    def spec(self) -> stateless_pb2.JobSpec:
        container = {
            "resource": {"cpuLimit": 0.1, "memLimitMb": self.memory_mb, "diskLimitMb": 1},
            "entrypoint": {"value": self.command},
            "image": self.image,
        }
        if self.liveness:
            container["livenessCheck"] = self.liveness
        fields = {
            **self.fields,
            "instanceCount": self.count,
            "sla": {"preemptible": True, **self.fields.get("sla", {})},
            "defaultSpec": {"containers": [container], **self.pod},
        }
        return ParseDict(fields, stateless_pb2.JobSpec())

    # What its owner does.

    def create(self, secrets: Sequence[peloton_pb2.Secret] = (), **create_spec: Any) -> Service:
        create = stateless_pb2.CreateSpec(**create_spec)
        request = svc.CreateJobRequest(spec=self.spec(), create_spec=create, secrets=secrets)
        self.id = self.client.services.CreateJob(request).job_id.value
        return self

    def replace(
        self,
        command: str = "",
        count: int = 0,
        version: str = "",
        image: str = "",
        secrets: Sequence[peloton_pb2.Secret] = (),
        **update_spec: Any,
    ) -> None:
        self.command, self.count, self.image = command or self.command, count or self.count, image or self.image
        update = stateless_pb2.UpdateSpec(**update_spec)
        request = svc.ReplaceJobRequest(spec=self.spec(), secrets=secrets, update_spec=update, **self._at(version))
        self.client.services.ReplaceJob(request)

    def restart(self, *ranges: tuple[int, int], batch_size: int = 0) -> None:
        wires = [pod_pb2.InstanceIDRange(**{"from": start, "to": end}) for start, end in ranges]
        spec = stateless_pb2.RestartSpec(batch_size=batch_size, ranges=wires)
        self.client.services.RestartJob(svc.RestartJobRequest(restart_spec=spec, **self._at()))

    def pause(self) -> None:
        self.client.services.PauseJobWorkflow(svc.PauseJobWorkflowRequest(**self._at()))

    def resume(self) -> None:
        self.client.services.ResumeJobWorkflow(svc.ResumeJobWorkflowRequest(**self._at()))

    def abort(self) -> None:
        self.client.services.AbortJobWorkflow(svc.AbortJobWorkflowRequest(**self._at()))

    def stop(self) -> None:
        self.client.services.StopJob(svc.StopJobRequest(**self._at()))

    def start(self) -> None:
        self.client.services.StartJob(svc.StartJobRequest(**self._at()))

    def delete(self, force: bool = False) -> None:
        self.client.services.DeleteJob(svc.DeleteJobRequest(force=force, **self._at()))

    def _at(self, version: str = "") -> dict[str, Any]:
        seen = peloton_pb2.EntityVersion(value=version or self.version)
        return {"job_id": peloton_pb2.JobID(value=self.id), "version": seen}

    # What can be seen of it.

    def get(self) -> svc.GetJobResponse:
        return self.client.services.GetJob(svc.GetJobRequest(job_id=peloton_pb2.JobID(value=self.id)))

    @property
    def stored_id(self) -> str:
        """The id as SQLite stores it."""
        return self.id.replace("-", "")

    @property
    def status(self) -> stateless_pb2.JobStatus:
        return self.get().job_info.status

    @property
    def version(self) -> str:
        return str(self.status.version.value)

    @property
    def config(self) -> int:
        """The version of its configuration."""
        return int(self.version.partition("-")[0])

    @property
    def state(self) -> str:
        return stateless_pb2.JobState.Name(self.status.state).removeprefix("JOB_STATE_")

    @property
    def has_settled(self) -> bool:
        """The job itself, which lags behind its update, reports that all of its instances run."""
        status = self.status
        running = stateless_pb2.JobState.Value("JOB_STATE_RUNNING")
        return status.state == running and status.pod_stats["POD_STATE_RUNNING"] == self.count

    @property
    def update(self) -> stateless_pb2.WorkflowStatus:
        return self.status.workflow_status

    @property
    def update_state(self) -> str:
        return stateless_pb2.WorkflowState.Name(self.update.state).removeprefix("WORKFLOW_STATE_")

    def pods(self) -> dict[int, pod_pb2.PodStatus]:
        """Pods by instance; empty for a deleted service."""
        request = svc.ListPodsRequest(job_id=peloton_pb2.JobID(value=self.id))
        found = [pod for answer in self.client.services.ListPods(request) for pod in answer.pods]
        return {int(pod.pod_name.value.rpartition("-")[2]): pod.status for pod in found}

    def versions(self) -> list[int]:
        """The configuration version that each instance runs."""
        return [int(pod.version.value.partition("-")[0]) for _, pod in sorted(self.pods().items())]

    def runs(self) -> dict[int, int]:
        return {i: int(pod.pod_id.value.rpartition("-")[2]) for i, pod in self.pods().items()}

    def events(self, instance: int, run: int) -> list[pod_pb2.PodEvent]:
        """The newest first."""
        pod_name = peloton_pb2.PodName(value=f"{self.id}-{instance}")
        pod_id = peloton_pb2.PodID(value=f"{self.id}-{instance}-{run}")
        return list(self.client.pods.GetPodEvents(GetPodEventsRequest(pod_name=pod_name, pod_id=pod_id)).events)

    def runs_that_ran(self) -> dict[int, list[int]]:
        """The runs of each instance that ran. A run may be lost on its way to its host: it has a number, and never
        ran."""
        return {i: [run for run in range(1, last + 1) if self._ran(i, run)] for i, last in self.runs().items()}

    def _ran(self, instance: int, run: int) -> bool:
        return any(event.actual_state == "POD_STATE_RUNNING" for event in self.events(instance, run))

    def states(self) -> dict[int, str]:
        name = pod_pb2.PodState.Name
        return {i: name(pod.state).removeprefix("POD_STATE_") for i, pod in self.pods().items()}

    def away(self) -> int:
        """Instances that do not run."""
        return self.count - list(self.states().values()).count("RUNNING")

    # Waiting and watching.

    def wait(self, condition: Condition, what: str, quiet_s: float = QUIET_S) -> None:
        self.cluster.wait(condition, what, quiet_s)

    def wait_update(self, *states: str) -> Service:
        """Wait for the latest update to reach one of ``states``."""
        self.wait(lambda: self.update_state in states, f"update {' or '.join(states)}")
        return self

    def wait_running(self) -> Service:
        self.wait(lambda: self.states() == dict.fromkeys(range(self.count), "RUNNING"), f"{self.count} pods running")
        return self

    @contextmanager
    def observe(self) -> Iterator[Seen]:
        """Record every write of the service's pods until the block ends. All of them run at the beginning."""
        seen, away = Seen(), set[int]()
        with closing(Tale(self.cluster.local.data_dir / "peloton.db").record()) as tale:
            assert self.away() == 0
            yield seen
            for what, is_gone, line in tale.rest():
                if what == "pod" and line["job_id"] == self.stored_id:
                    runs = not is_gone and POD_STATES[line["state"]] is PodState.RUNNING
                    away = away - {line["instance_id"]} if runs else away | {line["instance_id"]}
                    seen.away_most = max(seen.away_most, len(away))


def hosts_of(service: Service) -> Sequence[str]:
    return sorted({pod.host for pod in service.pods().values() if pod.host})
