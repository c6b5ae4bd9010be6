"""``peloton host pool mover``: requests, printed texts and exit codes."""

from __future__ import annotations

import json
from typing import Any

import grpc

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.mover import mover_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

WHY = "pods of services wait for 2 hosts"
SHIFT: dict[str, Any] = {
    "source": "batch",
    "destination": "services",
    "host_count": 2,
    "rule": "WAITING",
    "reason": WHY,
}
SEEN = pb.QueryResponse(
    on=True,
    pools=[pb.Pool(
            name="services", takes=True, host_count=3, minimum=1, used_percent=97, waiting_count=2,
            lent={"batch": 2}, state="has lacked hosts for 12 s",
        ), pb.Pool(name="batch", host_count=5, minimum=8, used_percent=40)],
    planned=[pb.Shift(**SHIFT)],
    made=[pb.Shift(**SHIFT, hostnames=["h1", "h2"], time="2026-01-01T00:00:00Z")],
)  # fmt: skip


def test_it_is_switched_on_and_off(run: Run, api: FakeApi) -> None:
    """The commands switch the mover, and print a refusal."""
    refusal = (grpc.StatusCode.UNIMPLEMENTED, "host pools not enabled")
    api.answers["mover.Switch"] = [pb.SwitchResponse(), pb.SwitchResponse(), refusal]

    assert "The mover of host pools is on.\n" == run("host pool mover on").stdout
    assert "The mover of host pools is off.\n" == run("host pool mover off").stdout
    failed = run("host pool mover on")

    assert (1, True) == (failed.exit_code, "host pools not enabled" in failed.stderr)
    assert [True, False, True] == [request.on for request in api.requests("mover.Switch")]


def test_what_it_sees_and_has_done_is_shown(run: Run, api: FakeApi) -> None:
    """Host pools that take hosts come first, with the cause of their waiting."""
    api.answers["mover.Query"] = [SEEN]

    lines = run("host pool mover show").stdout.splitlines()

    assert "The mover is on" == lines[0]
    assert ["services", "takes", "3"] == lines[2].split()[:3]
    assert "has lacked hosts for 12 s" in lines[2]
    assert ["batch", "gives", "5"] == lines[3].split()[:3]
    assert ["2", "3"] == [line[lines[1].index("Lacks") :].split()[0] for line in lines[2:4]]
    assert [f"2026-01-01T00:00:00Z  h1, h2 from batch to services: {WHY}"] == lines[4:]


def test_a_plan_says_what_would_move_and_why(run: Run, api: FakeApi) -> None:
    """The plan is available while the mover is off, and says so."""
    off = pb.QueryResponse(planned=[pb.Shift(**SHIFT)])
    api.answers["mover.Query"] = [off, off, off, pb.QueryResponse(on=True)]

    lines = run("host pool mover plan").stdout.splitlines()

    assert ["batch", "services", "2", *WHY.split()] == lines[1].split()
    assert "The mover is off" == lines[-1]
    assert "batch" == json.loads(run("--json host pool mover plan").stdout)["planned"][0]["source"]
    assert "batch services\n" == run("-o name host pool mover plan").stdout
    assert "Nothing to move\n" == run("host pool mover plan").stdout


def test_a_minimum_is_sent_when_it_is_given(run: Run, api: FakeApi) -> None:
    """The request contains the minimum only if it is given, zero included."""
    api.answers["hosts.CreateHostPool"] = [host_svc_pb2.CreateHostPoolResponse()]
    api.answers["hosts.UpdateHostPool"] = [host_svc_pb2.UpdateHostPoolResponse()]
    for command in ("create batch --minimum 3", "update batch --minimum 0", "update batch --cpu 1.2"):
        assert 0 == run(f"host pool {command}").exit_code

    assert [3] == [request.minimum for request in api.requests("hosts.CreateHostPool")]
    sent = api.requests("hosts.UpdateHostPool")
    assert [(True, 0), (False, 0)] == [(request.HasField("minimum"), request.minimum) for request in sent]
