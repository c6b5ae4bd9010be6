"""A service by Aurora's API, over the Aurora bridge. Metadata of an update have its key.

A client of Thrift needs the IDL and a library: here they are Peloton's own, for another one they are Aurora's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from service import AGAIN_S, PULSE_S, Health, Seen, Wanted
from thriftpy2.http import make_client
from thriftpy2.thrift import TException

from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.api.yaml_config import load_message
from services.aurorabridge.thrift import api

UPDATE_ID = "org.apache.aurora.client.update_id"
"""Metadata by which a repeated call is recognised."""
VERSION = "version"
"""Metadata of the service's pods."""
UpdateStatus, ScheduleStatus = api.JobUpdateStatus, api.ScheduleStatus
ENDED = {UpdateStatus.ROLLED_FORWARD: "SUCCEEDED"} | {
    getattr(UpdateStatus, name): name for name in ("ROLLED_BACK", "ABORTED", "ERROR", "FAILED")
}
RUN_WITH_CHECK = """\
export VERSION='{version}'
(
{command}) &
until {check}; do sleep 0.1; done
while {check}; do sleep 1; done
exit 1"""
"""Command of a pod: without Thermos there are no health checks, so that a pod whose check fails ends."""


class Refused(Exception):
    """Refusal of a call by the bridge."""


class Bridge:
    def __init__(self, address: str, job: str) -> None:
        role, environment, name = job.split("/")
        self.address = address
        self.key = api.JobKey(role=role, environment=environment, name=name)

    def call(self, method: str, **arguments: Any) -> Any:
        """Call until an answer arrives; return its result. Raises Refused."""
        while True:
            client = make_client(api.AuroraSchedulerManager, url=f"http://{self.address}/api")
            try:
                answer = getattr(client, method)(**arguments)
                break
            except (OSError, EOFError, TException):  # unavailable, or too busy
                time.sleep(AGAIN_S)
            finally:
                client.close()
        if answer.responseCode != api.ResponseCode.OK:
            raise Refused("; ".join(detail.message for detail in answer.details))
        return answer.result

    # -- the service

    def before(self) -> str:
        """Return the version of instance 0, which the metadata of its pods have."""
        return next(version for instance, version, _ in self.running() if instance == 0)

    def tasks(self, *statuses: int) -> list[Any]:
        query = api.TaskQuery(jobKeys=[self.key], statuses=list(statuses))
        tasks: list[Any] = self.call("getTasksWithoutConfigs", query=query).scheduleStatusResult.tasks
        return tasks

    def running(self) -> list[tuple[int, str, str]]:
        """Return instance, version and id of each running task."""
        found = (task.assignedTask for task in self.tasks(ScheduleStatus.RUNNING))
        return [(task.instanceId, text_of(task.task.metadata, VERSION), task.taskId) for task in found]

    def create(self, wanted: Wanted) -> None:
        """Create the service, if it is not there."""
        self.start(f"{wanted.deploy}/create", wanted, wanted.version, api.JobUpdateSettings())

    def stop(self) -> None:
        self.call("killTasks", job=self.key)

    # -- updates

    def updates(self) -> dict[str, Any]:
        """Return the summaries of updates by their keys."""
        query = api.JobUpdateQuery(jobKey=self.key)
        found = self.call("getJobUpdateSummaries", jobUpdateQuery=query).getJobUpdateSummariesResult.updateSummaries
        return {text_of(summary.metadata, UPDATE_ID): summary for summary in reversed(found)}

    def update_keys(self) -> set[str]:
        return set(self.updates())

    def roll_out(self, key: str, wanted: Wanted, before: str, canaries: int) -> None:
        """An instance that fails once has failed. The update waits for its first pulse."""
        settings = api.JobUpdateSettings(
            updateGroupSize=wanted.batch_size,
            maxPerInstanceFailures=0,
            maxFailedInstances=0,
            blockIfNoPulsesAfterMs=PULSE_S * 1_000,
        )
        if canaries:
            settings.updateOnlyTheseInstances = [api.Range(first=0, last=canaries - 1)]
        self.start(key, wanted, wanted.version, settings)

    def take_back(self, key: str, wanted: Wanted, before: str) -> None:
        self.start(key, wanted, before, api.JobUpdateSettings())

    def start(self, key: str, wanted: Wanted, version: str, settings: Any) -> None:
        """Start an update unless it was started before: it may have been replaced by another one since then."""
        if key in self.update_keys():
            return
        spec = load_message(wanted.file, JobSpec)
        request = api.JobUpdateRequest(
            taskConfig=self.task(spec, version),
            instanceCount=spec.instance_count,
            settings=settings,
            metadata=[api.Metadata(key=UPDATE_ID, value=key)],
        )
        self.call("startJobUpdate", request=request, message=f"deploy {key}")

    def task(self, spec: JobSpec, version: str) -> Any:
        """Return the pods of the file as Aurora describes them: one process, run by a shell."""
        (container,) = spec.default_spec.containers
        check = container.liveness_check.command_check.command
        command = RUN_WITH_CHECK.format(version=version, command=container.entrypoint.value, check=check)
        data = {"task": {"processes": [{"name": container.name, "cmdline": command}]}}
        return api.TaskConfig(
            job=self.key,
            owner=api.Identity(user=spec.owning_team),
            isService=True,
            resources=[
                api.Resource(numCpus=container.resource.cpu_limit),
                api.Resource(ramMb=int(container.resource.mem_limit_mb)),
                api.Resource(diskMb=int(container.resource.disk_limit_mb)),
            ],
            executorConfig=api.ExecutorConfig(name="AuroraExecutor", data=json.dumps(data)),
            metadata=[api.Metadata(key=VERSION, value=version)],
        )

    def progress(self, key: str, pulse: bool) -> Iterator[str]:
        while True:
            summary = self.updates()[key]
            status = summary.state.status
            yield ENDED.get(status) or UpdateStatus._VALUES_TO_NAMES[status]
            if status in ENDED:
                return
            if pulse:
                self.call("pulseJobUpdate", key=summary.key)
            time.sleep(AGAIN_S)

    def health(self, seen: Seen, save: Callable[[], None]) -> Health:
        return Poll(self, seen, save)


class Poll(Health):
    """Polls the tasks: earlier runs are among them, so that no failure between two polls is missed."""

    def __init__(self, bridge: Bridge, seen: Seen, save: Callable[[], None]) -> None:
        super().__init__(seen, save)
        self.bridge = bridge

    def run(self) -> None:
        while True:
            tasks = self.bridge.tasks(ScheduleStatus.FAILED, ScheduleStatus.LOST)
            for task in (each.assignedTask for each in tasks):
                if self.seen.revision and task.taskId not in self.seen.failures:
                    text = f"instance {task.instanceId} failed in {self.bridge.address}"
                    self.seen.trouble = self.seen.trouble or text
            self.seen.failures = {each.assignedTask.taskId: 1 for each in tasks}
            self.seen.revision += 1
            self.save()
            self.is_watching.set()
            time.sleep(AGAIN_S)


def text_of(metadata: list[Any] | None, key: str) -> str:
    return next((one.value for one in metadata or () if one.key == key), "")
