"""Update keys and pulses through a running server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from services.api.v1.keys import KEY_BYTES_MAX
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import ID, UNKNOWN, create, evolve, ranges, spec, version
from tests.unit.api_service.story import JOB, NOW_NS, expect_refusal

Status = grpc.StatusCode
KEY: dict[str, Any] = {"update_key": "deploy-1"}
AT: dict[str, Any] = {"job_id": ID, "version": version("1-1-1")}
PULSED = stateless_pb2.UpdateSpec(batch_size=1, pulse_seconds=60)


def note(text: str) -> peloton_pb2.OpaqueData:
    return peloton_pb2.OpaqueData(data=text)


CALLS: dict[str, Callable[..., tuple[str, Any]]] = {
    "replace": lambda **more: ("ReplaceJob", svc.ReplaceJobRequest(**AT, spec=spec(image="web:2"), **more)),
    "patch": lambda **more: ("PatchJob", svc.PatchJobRequest(**AT, spec=stateless_pb2.JobSpec(owner="m"), **more)),
    "restart": lambda **more: ("RestartJob", svc.RestartJobRequest(**AT, **more)),
}


@pytest.mark.usefixtures("running_service")
@pytest.mark.parametrize("call", CALLS)
async def test_a_repeat_does_nothing(v1: Any, storage: Storage, wakes: RecordedWakes, call: str) -> None:
    """The answer is the current version, although the request names an older one, and the workflow is signalled
    again. The note is no part of the comparison. A repeat without a key is refused."""
    method, request = CALLS[call](**KEY, opaque_data=note("first try"))
    await getattr(v1, method)(request)
    evolve(storage)
    again = await getattr(v1, method)(CALLS[call](**KEY, opaque_data=note("second try"))[1])

    assert again.version.value == "2-1-2"
    assert wakes.changed == [JOB, JOB]
    assert len(storage.updates.of_job(JOB)) == 2
    info = (await v1.GetJob(svc.GetJobRequest(job_id=ID))).workflow_info
    assert (info.update_key, info.opaque_data.data) == ("deploy-1", "first try")
    request.ClearField("update_key")
    assert (await expect_refusal(getattr(v1, method)(request)))[0] is Status.ABORTED


@pytest.mark.usefixtures("running_service")
async def test_a_key_in_other_words(v1: Any, storage: Storage) -> None:
    """The key with another spec, batch size, range or method is refused, and nothing changes."""
    await v1.ReplaceJob(svc.ReplaceJobRequest(**AT, spec=spec(image="web:2"), **KEY))
    others = [
        v1.ReplaceJob(svc.ReplaceJobRequest(**AT, spec=spec(image="web:3"), **KEY)),
        v1.ReplaceJob(svc.ReplaceJobRequest(**AT, spec=spec(image="web:2"), update_spec=PULSED, **KEY)),
        v1.PatchJob(svc.PatchJobRequest(**AT, spec=spec(image="web:2"), **KEY)),
        v1.RestartJob(
            svc.RestartJobRequest(**AT, restart_spec=stateless_pb2.RestartSpec(ranges=ranges((0, 1))), **KEY)
        ),
    ]
    text = f"update key 'deploy-1' of job {JOB} belongs to another request, which led to version 2"
    for other in others:
        assert await expect_refusal(other) == (
            Status.ALREADY_EXISTS,
            f"failed to create update workload: code:already-exists message:{text}",
        )
    assert len(storage.updates.of_job(JOB)) == 2


async def test_a_creation_with_a_key(v1: Any, wakes: RecordedWakes) -> None:
    """A repeated creation answers with the existing job; a creation with a key requires a job_id."""
    assert await create(v1, spec(), **KEY) == await create(v1, spec(), **KEY) == "1-1-1"
    assert wakes.started == [JOB, JOB]
    assert (await expect_refusal(create(v1, spec(4), **KEY)))[0] is Status.ALREADY_EXISTS
    assert await expect_refusal(v1.CreateJob(svc.CreateJobRequest(spec=spec(), **KEY))) == (
        Status.INVALID_ARGUMENT,
        "a creation with the update key 'deploy-1' needs a job_id: repeated, it would make another job",
    )


@pytest.mark.usefixtures("running_service")
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("k" * 257, f"the update key has 257 bytes, at most {KEY_BYTES_MAX} are allowed"),
        ("a\0b", "the update key contains NUL"),
    ],
)
async def test_bad_keys(v1: Any, key: str, text: str) -> None:
    """A key that cannot be stored is refused with the numbers."""
    for call in (
        v1.RestartJob(svc.RestartJobRequest(**AT, update_key=key)),
        v1.PulseJobWorkflow(svc.PulseJobWorkflowRequest(job_id=ID, update_key=key)),
    ):
        assert await expect_refusal(call) == (Status.INVALID_ARGUMENT, text)


@pytest.mark.usefixtures("running_service")
async def test_a_pulse(v1: Any, storage: Storage, wakes: RecordedWakes) -> None:
    """The answer says whether the update waited for the pulse, and only then signals; the entity version is
    unchanged."""
    await v1.ReplaceJob(svc.ReplaceJobRequest(**AT, spec=spec(image="web:2"), update_spec=PULSED, **KEY))
    storage.updates.advance(JOB, NOW_NS)
    before = (await v1.GetJob(svc.GetJobRequest(job_id=ID))).job_info.status.workflow_status
    assert (before.awaiting_pulse, before.last_pulse_time) == (True, "")
    wakes.changed.clear()

    first = (await v1.PulseJobWorkflow(svc.PulseJobWorkflowRequest(job_id=ID, **KEY))).status
    assert (first.awaiting_pulse, first.version.value, first.last_pulse_time != "") == (True, "2-1-2", True)
    assert wakes.changed == [JOB]
    storage.updates.advance(JOB, NOW_NS)
    second = (await v1.PulseJobWorkflow(svc.PulseJobWorkflowRequest(job_id=ID))).status
    assert (second.awaiting_pulse, list(second.instances_current)) == (False, [0])
    assert wakes.changed == [JOB]
    info = (await v1.GetJob(svc.GetJobRequest(job_id=ID))).workflow_info
    assert info.update_spec.pulse_seconds == 60


@pytest.mark.usefixtures("running_service")
async def test_refused_pulses(v1: Any) -> None:
    """Pulses of an update without pulses, of another update, and of an unknown job are refused with the present
    state."""

    def pulse(**fields: Any) -> Any:
        return expect_refusal(v1.PulseJobWorkflow(svc.PulseJobWorkflowRequest(**{"job_id": ID, **fields})))

    assert await pulse() == (
        Status.INVALID_ARGUMENT,
        f"the update of job {JOB} needs no pulses: its pulse_seconds are 0",
    )
    assert await pulse(**KEY) == (
        Status.ABORTED,
        f"the update of job {JOB} is not 'deploy-1' but '', to version 1",
    )
    assert (await pulse(job_id=UNKNOWN))[0] is Status.NOT_FOUND
