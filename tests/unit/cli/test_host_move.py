"""``peloton host pool move --drain``: requests, texts, and moves in the view of drains."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi


def moving(name: str, state: str, goal: str = "DOWN", **more: Any) -> pb.HostMaintenance:
    number = host_pb2.HostState.Value
    states: dict[str, Any] = {"state": number(f"HOST_STATE_{state}"), "goal_state": number(f"HOST_STATE_{goal}")}
    return pb.HostMaintenance(hostname=name, to_pool="batch", **states, **more)


WAITING = moving("h2", "UP", waiting_for="its turn: 1 of at most 1 hosts are draining or down")
DRAINING = moving("h1", "DRAINING", pod_count=3, leaving_count=1, waiting_for="the end of 1 pod")


IN_BATCH = host_svc_pb2.ListHostPoolsResponse(pools=[host_pb2.HostPoolInfo(name="batch", hosts=["h1"])])


def test_hosts_are_drained_first(run: Run, api: FakeApi) -> None:
    """The output names the condition that each host waits for; a host already in the pool is complete."""
    api.answers["maintenance.Move"] = [pb.MoveResponse(hosts=[DRAINING, WAITING])]

    result = run("host pool move h1 h2 h3 --to batch --drain")

    assert (0, "") == (result.exit_code, result.stderr)
    assert result.stdout.splitlines() == [
        'Host "h1" moves to host pool "batch" and waits for the end of 1 pod',
        'Host "h2" moves to host pool "batch" and waits for its turn: 1 of at most 1 hosts are draining or down',
        'Host "h3" moves to host pool "batch".',
    ]
    (sent,) = api.requests("maintenance.Move")
    assert (["h1", "h2", "h3"], "batch") == (list(sent.hostnames), sent.host_pool)


def test_a_bound_is_sent_along(run: Run, api: FakeApi) -> None:
    """A bound alone makes the move a draining one."""
    api.answers["maintenance.Move"] = [pb.MoveResponse(hosts=[DRAINING])]

    assert 0 == run("host pool move h1 --to batch --at-most 5").exit_code

    assert [5] == [sent.at_most for sent in api.requests("maintenance.Move")]


def test_hosts_that_are_elsewhere_are_refused(run: Run, api: FakeApi) -> None:
    """The command sends nothing if one of the hosts is in another pool than --from names."""
    pools = [host_pb2.HostPoolInfo(name="default", hosts=["h1"]), host_pb2.HostPoolInfo(name="gpu", hosts=["h2"])]
    api.answers["hosts.ListHostPools"] = [host_svc_pb2.ListHostPoolsResponse(pools=pools)]

    result = run("host pool move h1 h2 --to batch --from default --drain")

    assert (1, 'host "h2" is in host pool "gpu", not in "default"\n') == (result.exit_code, result.stderr)
    assert [] == api.requests("maintenance.Move")


@pytest.mark.parametrize("option", ["--watch", "--drain --watch"])
def test_a_move_is_watched_to_its_end(run: Run, api: FakeApi, option: str) -> None:
    """A host has moved once it is not in maintenance."""
    api.answers["maintenance.Move"] = [pb.MoveResponse(hosts=[DRAINING])]
    api.answers["maintenance.Query"] = [
        pb.QueryResponse(hosts=[DRAINING], away_max=1, host_count=3),
        pb.QueryResponse(away_max=1, host_count=3),
    ]

    api.answers["hosts.ListHostPools"] = [IN_BATCH]

    result = run(f"host pool move h1 --to batch {option}")

    assert result.exit_code == 0
    assert "h1 DRAINING  on its way to host pool batch  3 pods, 1 leaving  waits for the end of 1 pod" in result.stdout
    assert result.stdout.endswith('h1 is UP\nHost "h1" is in host pool "batch".\n')


def test_a_move_may_have_ended_before_it_is_watched(run: Run, api: FakeApi) -> None:
    """The move of an empty host may end at once, and its name is still valid."""
    api.answers["maintenance.Move"] = [pb.MoveResponse(hosts=[moving("h1", "DRAINED")])]
    api.answers["maintenance.Query"] = [pb.QueryResponse(away_max=1, host_count=3)]
    api.answers["hosts.ListHostPools"] = [IN_BATCH]

    assert run("host pool move h1 --to batch --drain --watch").stdout.splitlines() == [
        'Host "h1" moves to host pool "batch".',
        "h1 is UP",
        'Host "h1" is in host pool "batch".',
    ]


def test_moves_are_among_the_hosts_in_maintenance(run: Run, api: FakeApi) -> None:
    """The goal of moving hosts is a host pool, and UP after the change of pools."""
    rows = [DRAINING, WAITING, moving("h3", "DRAINED", "UP")]
    api.answers["maintenance.Query"] = [pb.QueryResponse(hosts=rows, away_max=1, host_count=3)]

    assert run("host maintenance status").stdout == (
        "Hostname  State     Goal             Pods  Leaving  Waiting for\n"
        "h1        DRAINING  host pool batch  3     1        the end of 1 pod\n"
        "h2        UP        host pool batch                 its turn: 1 of at most 1 hosts are draining or down\n"
        "h3        DRAINED   UP\n"
        "2 of 3 hosts unavailable, limit 1\n"
    )
