"""Payloads are read as Temporal's SDK reads them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from temporalio.converter import DataConverter

from peloton.model.host import LaunchResult, Placement, PlacementBatch, Unplaced
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobProgress, JobState
from peloton.model.reason import RequeueReason, RequeueRule
from services.temporal.payloads import CONVERTER
from tests.reasons import lacking_capacity, too_large
from workflows.job import JobCarryOver, JobInput
from workflows.policies import Policies

JOB = JobId("00000000-0000-4000-8000-000000000001")
VALUES = [
    JobInput(JOB, Policies(retry_s=0.5), JobCarryOver("RUNNING", gang_run=3)),
    JobProgress(JobState.RUNNING, {"RUNNING": 3}, ready_count=2),
    PlacementBatch(
        JOB, "lease", (Placement(Hostname("h1"), ()),), 1, lacking_capacity(1), (Unplaced((0,), (too_large(7),)),)
    ),
    RequeueReason(
        RequeueRule.FITS_NO_HOST, 4, 4, 2.5, ((too_large(7, "a"), too_large(7, "b")),), lacking_capacity(2), 1
    ),
    LaunchResult(3),
    "text",
    7,
    None,
    ["a", "b"],
    b"bytes",
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_payloads_are_those_of_the_sdk(value: Any) -> None:
    """The bytes equal the SDK's, and so are the decoded values."""
    kinds = [type(value)] if value is not None else None
    usual = await DataConverter.default.encode([value])
    ours = await CONVERTER.encode([value])

    assert [payload.SerializeToString() for payload in usual] == [payload.SerializeToString() for payload in ours]
    assert [value] == await CONVERTER.decode(usual, kinds) == await DataConverter.default.decode(ours, kinds)


@pytest.mark.parametrize("converter", [CONVERTER, DataConverter.default], ids=["ours", "SDK"])
async def test_other_versions(converter: DataConverter) -> None:
    """Unknown fields are left out, a missing one without a default is an error, and so is a value of another kind."""
    [payload] = await converter.encode([{"launched_count": 3, "of_tomorrow": 1}])
    assert [LaunchResult(3)] == await converter.decode([payload], [LaunchResult])

    for wrong in ({"refused_count": 1}, {"launched_count": "three"}, 3):
        payload.data = json.dumps(wrong).encode()
        with pytest.raises(TypeError):
            await converter.decode([payload], [LaunchResult])


async def test_a_reason_of_before_is_read() -> None:
    """A reason that a worker wrote as a text, before reasons were values, is read as the text."""
    for value in ("no hosts", RequeueReason(RequeueRule.LEFT_BEHIND, 1, 4)):
        assert [value] == await CONVERTER.decode(await CONVERTER.encode([value]), [cast("type", RequeueReason | str)])
