"""A service by Peloton's own API. Updates are identified by their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
from service import AGAIN_S, PULSE_S, Health, Seen, Wanted

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec, UpdateSpec, WorkflowInfo, WorkflowState
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.yaml_config import load_message
from peloton.client import Client, RetryPolicy

PATIENCE = RetryPolicy(away_s=3_600)
"""Every call is idempotent, so that a repeated one returns the answer that was lost."""
ENDED = {"SUCCEEDED", "FAILED", "ABORTED", "ROLLED_BACK"}


def state_of(status: stateless_pb2.WorkflowStatus) -> str:
    return WorkflowState.Name(status.state).removeprefix("WORKFLOW_STATE_")


class Cluster:
    """One service in the cluster whose API is at ``address``."""

    def __init__(self, address: str, job_id: str) -> None:
        self.address = address
        self.client = Client(address, retry=PATIENCE)
        self.id = peloton_pb2.JobID(value=job_id)

    def before(self) -> str:
        return self.version()

    def update_keys(self) -> set[str]:
        return set(self.updates())

    def roll_out(self, key: str, wanted: Wanted, before: str, canaries: int) -> None:
        """An instance that fails once has failed. Canaries are overrides: the default stays the old version."""
        spec, old = self.new_spec(wanted, before), self.spec(before)
        if canaries:
            for instance in range(canaries):
                old.instance_spec[instance].CopyFrom(spec.default_spec)
            spec = old
        update = UpdateSpec(batch_size=wanted.batch_size, pulse_seconds=PULSE_S)
        update.max_instance_retries = update.max_tolerable_instance_failures = 1
        self.replace(key, spec, update)

    def take_back(self, key: str, wanted: Wanted, before: str) -> None:
        self.replace(key, self.spec(before), UpdateSpec())

    def new_spec(self, wanted: Wanted, before: str) -> JobSpec:
        """Return the spec of the file with the new version: here it is a variable, elsewhere it would be an image."""
        spec = load_message(wanted.file, JobSpec)
        spec.respool_id.CopyFrom(self.spec(before).respool_id)
        for variable in spec.default_spec.containers[0].environment:
            if variable.name == "VERSION":
                variable.value = wanted.version
        return spec

    def health(self, seen: Seen, save: Callable[[], None]) -> Health:
        return Watch(self, seen, save)

    def version(self) -> str:
        request = svc.GetJobRequest(job_id=self.id, summary_only=True)
        return self.client.services.GetJob(request).summary.status.version.value

    def spec(self, version: str) -> JobSpec:
        request = svc.GetJobRequest(job_id=self.id, version=peloton_pb2.EntityVersion(value=version))
        spec = self.client.services.GetJob(request).job_info.spec
        spec.ClearField("revision")
        return spec

    def updates(self) -> dict[str, WorkflowInfo]:
        """Return the updates by their keys."""
        request = svc.ListJobWorkflowsRequest(job_id=self.id)
        return {each.update_key: each for each in self.client.services.ListJobWorkflows(request).workflow_infos}

    def replace(self, key: str, spec: JobSpec, update: UpdateSpec) -> None:
        """Replace the job. A repeated call with the same key has no effect: the version in it is checked the first time
        only.
        """
        version = peloton_pb2.EntityVersion(value=self.version())
        request = svc.ReplaceJobRequest(job_id=self.id, version=version, spec=spec, update_spec=update, update_key=key)
        self.client.services.ReplaceJob(request)

    def progress(self, key: str, pulse: bool) -> Iterator[str]:
        """Yield the states of an update until its end, and send a pulse with each if ``pulse`` is set."""
        while True:
            state = state_of(self.updates()[key].status)
            yield state
            if state in ENDED:
                return
            if pulse:
                request = svc.PulseJobWorkflowRequest(job_id=self.id, update_key=key)
                self.client.services.PulseJobWorkflow(request)
            time.sleep(AGAIN_S)


class Watch(Health):
    def __init__(self, cluster: Cluster, seen: Seen, save: Callable[[], None]) -> None:
        super().__init__(seen, save)
        self.cluster = cluster

    def run(self) -> None:
        try:
            self.watch()
        except grpc.RpcError as error:  # a deploy that is not watched does not continue
            self.seen.trouble = self.seen.trouble or f"{self.cluster.address} refuses the watch: {error}"
            self.is_watching.set()

    def watch(self) -> None:
        job_id, since = self.cluster.id.value, self.seen.revision
        for changes in self.cluster.client.watch_pods(job_id, since=since, policy=PATIENCE):
            for pod in changes.changed:
                self.note(pod)
            self.seen.revision = changes.revision
            self.save()
            self.is_watching.set()

    def note(self, pod: pod_pb2.PodSummary) -> None:
        """Record a pod. Failures before the first read are not caused by the new version."""
        name, failures = pod.pod_name.value, pod.status.failure_count
        is_ill = any(each.healthy.state == pod_pb2.HEALTH_STATE_UNHEALTHY for each in pod.status.containers_status)
        if is_ill or failures > self.seen.failures.get(name, failures):
            instance = name.rpartition("-")[2]
            what = "is not well" if is_ill else "failed"
            self.seen.trouble = self.seen.trouble or f"instance {instance} {what} in {self.cluster.address}"
        self.seen.failures = {**self.seen.failures, name: failures}  # another thread may be saving the old one
