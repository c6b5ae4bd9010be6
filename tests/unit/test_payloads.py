"""Payloads are read as Temporal's SDK reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.converter import DataConverter

from peloton.model.host import LaunchResult, Placement, PlacementBatch
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobProgress, JobState
from services.payloads import CONVERTER
from workflows.job import JobInput, JobLife
from workflows.policies import Policies

JOB = JobId("00000000-0000-4000-8000-000000000001")
VALUES = [
    JobInput(JOB, Policies(retry_s=0.5), JobLife("RUNNING", gang_run=3)),
    JobProgress(JobState.RUNNING, {"RUNNING": 3}, ready_count=2),
    PlacementBatch(JOB, "lease", (Placement(Hostname("h1"), ()),), 1, "no host"),
    LaunchResult(3),
    "text",
    7,
    None,
    ["a", "b"],
    b"bytes",
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_payloads_are_those_of_the_sdk(value: Any) -> None:
    """The bytes are the same, and so is what becomes of them."""
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
