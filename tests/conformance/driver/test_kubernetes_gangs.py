"""DNS names of the pods of gangs on Kubernetes."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api import convert
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.lifecycle.discovery import pod_address
from peloton.model.ids import PodId, new_job_id
from peloton.model.pod import PodState
from services.hostmgr.driver import HostLaunch, PodLaunch, PodOnHost, PodTemplate
from services.hostmgr.kubernetes.pods import gang_services
from tests.conformance.driver.kubernetes import EmulatedProcess, Kubernetes, Plane, SharedPlane
from tests.conformance.driver.lab import Lab, lab_on
from tests.kubernetes.fixtures import REAL_KUBERNETES

SIZE = 2


@pytest.fixture(params=["emulated", pytest.param("real", marks=REAL_KUBERNETES)])
def lab(request: pytest.FixtureRequest, tmp_path: Path, emulated_process: EmulatedProcess) -> Iterator[Lab]:
    plane: Plane = emulated_process
    if request.param == "real":
        plane = SharedPlane(request.getfixturevalue("kubernetes"), tmp_path)
    cluster = Kubernetes(plane, is_shared=True, gang_services=True)
    try:
        with lab_on(cluster) as made:
            yield made
    finally:
        cluster.close()


def test_members_have_names_while_they_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those that the driver announces: in a Service, which goes some time after the last pod."""
    monkeypatch.setattr(gang_services, "SWEEP_S", 0.0)
    cluster = lab.cluster
    assert isinstance(cluster, Kubernetes)
    job = JobConfig(name="train", instanceCount=SIZE)
    job.sla.minimumRunningInstances = SIZE
    record = convert.new_job_record(new_job_id(), job, 1)
    task: dict[str, Any] = {"command": {"value": "sleep 300", "shell": True}, "resource": {"cpuLimit": 0.5}}
    template = PodTemplate(record, "/driver", ParseDict(task, TaskConfig()))
    pods = [PodLaunch(PodId(record.job_id, instance, 1), template, ()) for instance in range(SIZE)]
    path = f"/api/v1/namespaces/{cluster.namespace}"

    claim = lab.claim_of(cpu=1)
    assert [] == lab.driver.launch([HostLaunch(claim, pods)])

    pattern = lab.driver.capabilities.gang_address
    for pod in pods:
        spec = cluster.client.ask("GET", f"{path}/pods/{pod.pod_id}").json()["spec"]
        name = f"{spec['hostname']}.{spec['subdomain']}.{cluster.namespace}.svc"
        assert pod_address(pattern, record.job_id, pod.pod_id.instance_id) == name
        lab.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)
    service = f"{path}/services/{spec['subdomain']}"
    monkeypatch.setattr(gang_services, "UNUSED_S", 0.0)
    lab.run_periodic()
    assert "None" == cluster.client.ask("GET", service).json()["spec"]["clusterIP"]
    for pod in pods:
        cluster.client.ask("DELETE", f"{path}/pods/{pod.pod_id}", {"gracePeriodSeconds": 0})
    gone = lambda: cluster.client.ask("GET", service).status == http.client.NOT_FOUND  # noqa: E731
    lab.wait(gone, "the end of the Service")
