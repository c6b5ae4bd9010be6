"""``peloton volume``: requests, printed texts and exit codes."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.volume import volume_pb2 as pb
from peloton.api.v0.volume.svc import volume_svc_pb2 as svc
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
IDS = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in range(2)]


def info(number: int, **fields: Any) -> pb.PersistentVolumeInfo:
    return pb.PersistentVolumeInfo(
        id=peloton_pb2.VolumeID(value=IDS[number]), jobId=peloton_pb2.JobID(value=JOB), instanceId=number,
        createTime="2026-01-02T03:04:05.678Z", **fields,
    )  # fmt: skip


FOUND = [
    info(0, hostname="h1", state=pb.CREATED, goalState=pb.CREATED, sizeMB=500, podName=f"{JOB}-0", podState="RUNNING"),
    info(1, hostname="h2", state=pb.LOST, goalState=pb.DELETED, sizeMB=500, message="host h2 is gone"),
]


def test_list(run: Run, api: FakeApi) -> None:
    """The list has all pages, sorted by job and instance; a volume that its host has yet to destroy is DELETING."""
    api.answers["volumes.ListVolumes"] = [
        svc.ListVolumesResponse(volumes={IDS[1]: FOUND[1]}, next=IDS[1]),
        svc.ListVolumesResponse(volumes={IDS[0]: FOUND[0]}),
    ]

    result = run(f"volume list {JOB} -o wide")

    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [IDS[0], f"{JOB}-0", "RUNNING", "h1", "CREATED", "500", "2026-01-02T03:04:05Z"] == rows[0]
    assert [IDS[1], "h2", "DELETING", "500", "2026-01-02T03:04:05Z", "host", "h2", "is", "gone"] == rows[1]
    first, second = api.requests("volumes.ListVolumes")
    assert svc.ListVolumesRequest(jobId=peloton_pb2.JobID(value=JOB)) == first
    assert IDS[1] == second.after


def test_list_nothing(run: Run, api: FakeApi) -> None:
    """The list of all jobs' orphaned volumes says that there are none."""
    api.answers["volumes.ListVolumes"] = [svc.ListVolumesResponse()]

    assert "No volumes\n" == run("volume list --orphaned").stdout

    (request,) = api.requests("volumes.ListVolumes")
    assert ("", True) == (request.jobId.value, request.orphaned)


def test_get(run: Run, api: FakeApi) -> None:
    """The output is the API's answer."""
    api.answers["volumes.GetVolume"] = [svc.GetVolumeResponse(result=FOUND[0])]

    assert "hostname: h1" in run(f"volume get {IDS[0]}").stdout


@pytest.mark.parametrize("flag", ["", " --give-up"])
def test_delete(run: Run, api: FakeApi, flag: str) -> None:
    """The command sends a request for each volume, after a question."""
    api.answers["volumes.DeleteVolume"] = [svc.DeleteVolumeResponse()]

    result = run(f"volume delete {' '.join(IDS)}{flag} --yes")

    assert [f"Volume {one} is deleted; its host destroys it" for one in IDS] == result.stdout.splitlines()
    wanted = [svc.DeleteVolumeRequest(id=peloton_pb2.VolumeID(value=one), giveUp=bool(flag)) for one in IDS]
    assert wanted == api.requests("volumes.DeleteVolume")


def test_nothing_is_deleted_without_a_yes(run: Run, api: FakeApi) -> None:
    """The question names the volume."""
    result = run(f"volume delete {IDS[0]}", text="n\n")

    assert 1 == result.exit_code
    assert f"Delete {IDS[0]} with all that is on it?" in result.stderr
    assert [] == api.requests("volumes.DeleteVolume")


def test_a_refusal(run: Run, api: FakeApi) -> None:
    """The error is the API's text."""
    api.answers["volumes.DeleteVolume"] = [(grpc.StatusCode.ABORTED, "volume x is in use")]

    result = run(f"volume delete -y {IDS[0]}")

    assert (1, True) == (result.exit_code, "volume x is in use" in result.stderr)
