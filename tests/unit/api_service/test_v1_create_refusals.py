"""v1alpha CreateJob: the code and the text of each refusal, which stores nothing."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import CHAIN, NOT_UUID, UNKNOWN, container, spec, spec_in, spec_with
from tests.unit.api_service.story import INNER, expect_refusal

Status = grpc.StatusCode


def secret_volume(wanted: stateless_pb2.JobSpec) -> None:
    info = container(wanted).container
    info.type = mesos_pb2.ContainerInfo.MESOS
    volume = info.volumes.add(mode=mesos_pb2.Volume.RO, container_path="/secret")
    volume.source.type = mesos_pb2.Volume.Source.SECRET


NEEDS = ": it needs a cluster of kind kubernetes, and there are mesos"
INVALID = "invalid job spec: code:invalid-argument message:"
CREATIONS: dict[str, tuple[svc.CreateJobRequest, grpc.StatusCode, str]] = {
    "no UUID": (
        svc.CreateJobRequest(job_id=NOT_UUID, spec=spec()),
        Status.INVALID_ARGUMENT,
        "jobID is not valid UUID",
    ),
    "no pool": (
        svc.CreateJobRequest(spec=spec_in("")),
        Status.INVALID_ARGUMENT,
        "failed to validate resource pool: " + CHAIN("invalid-argument", "resource pool ID is null"),
    ),
    "root pool": (
        svc.CreateJobRequest(spec=spec_in("root")),
        Status.INVALID_ARGUMENT,
        "failed to validate resource pool: "
        + CHAIN("invalid-argument", "cannot submit jobs to the `root` resource pool"),
    ),
    "unknown pool": (
        svc.CreateJobRequest(spec=spec_in(UNKNOWN.value)),
        Status.NOT_FOUND,
        "failed to validate resource pool: " + CHAIN("not-found", "resource pool not found"),
    ),
    "inner pool": (
        svc.CreateJobRequest(spec=spec_in(INNER)),
        Status.INVALID_ARGUMENT,
        "failed to validate resource pool: "
        + CHAIN("invalid-argument", "cannot submit jobs to a non leaf resource pool: /eng has child pools"),
    ),
    "two containers": (
        svc.CreateJobRequest(spec=spec_with(lambda s: s.default_spec.containers.add())),
        Status.UNIMPLEMENTED,
        "failed to convert job spec: "
        + CHAIN("unimplemented", "configuration of more than one container per pod is not supported" + NEEDS),
    ),
    "an init container": (
        svc.CreateJobRequest(spec=spec_with(lambda s: s.instance_spec[0].init_containers.add())),
        Status.UNIMPLEMENTED,
        "failed to convert job spec: " + CHAIN("unimplemented", "init containers are not supported" + NEEDS),
    ),
    "a secret volume": (
        svc.CreateJobRequest(spec=spec_with(secret_volume)),
        Status.INVALID_ARGUMENT,
        "input cannot contain secret volume: "
        + CHAIN("invalid-argument", "adding secret volumes directly in config is not allowed"),
    ),
    "secrets": (
        svc.CreateJobRequest(spec=spec(), secrets=[peloton_pb2.Secret()]),
        Status.INVALID_ARGUMENT,
        "failed to handle create-secrets: " + CHAIN("invalid-argument", "secret does not have a path"),
    ),
    "no command": (
        svc.CreateJobRequest(spec=spec_with(lambda s: container(s).ClearField("entrypoint"))),
        Status.INVALID_ARGUMENT,
        INVALID + "missing command info for instance 0",
    ),
    "revocable, not preemptible": (
        svc.CreateJobRequest(
            spec=spec_with(lambda s: s.sla.CopyFrom(stateless_pb2.SlaSpec(revocable=True, preemptible=False)))
        ),
        Status.INVALID_ARGUMENT,
        INVALID + "revocable job must be preemptible",
    ),
    "killed when preempted": (
        svc.CreateJobRequest(
            spec=spec_with(lambda s: setattr(s.default_spec.preemption_policy, "kill_on_preempt", True))
        ),
        Status.INVALID_ARGUMENT,
        INVALID + "Invalid config for instance 0, Task preemption policy should be false for stateless job",
    ),
    "too large for the pool": (
        svc.CreateJobRequest(spec=spec_with(lambda s: setattr(container(s).resource, "cpu_limit", 1000))),
        Status.INVALID_ARGUMENT,
        INVALID + "instance 0 asks cpu 1000, limit of resource pool /eng/maps is 12",
    ),
}


@pytest.mark.parametrize("name", CREATIONS)
async def test_create(v1: Any, storage: Storage, wakes: RecordedWakes, name: str) -> None:
    """A refused creation stores nothing and starts no workflow."""
    request, code, text = CREATIONS[name]

    assert await expect_refusal(v1.CreateJob(request)) == (code, text)
    assert storage.jobs.active_ids() == []
    assert wakes.started == []


@pytest.mark.parametrize("name", ["no pool", "root pool", "unknown pool", "two containers"])
async def test_a_plan_is_refused_like_the_service(v1: Any, channel: grpc.aio.Channel, name: str) -> None:
    """The plan of an invalid service has the creation's refusal."""
    request, code, text = CREATIONS[name]
    plan: Any = explain_pb2_grpc.ExplainServiceStub(channel)

    assert (code, text) == await expect_refusal(plan.JobPlan(explain_pb2.JobPlanRequest(spec=request.spec)))
