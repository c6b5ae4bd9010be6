"""``peloton host why``: requests, printed texts and errors."""

from __future__ import annotations

import json
from typing import Any

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

FLAPS = "after it was gone and came back 3 times within 40 s, until 2026-11-22 10:00:00 UTC"


def answer(api: FakeApi, *drains: maintenance_pb2.HostMaintenance, **info: Any) -> None:
    amounts = {"capacity": host_pb2.HostAmounts(cpu=8, memory_mib=4096), "free": host_pb2.HostAmounts(cpu=2.5)}
    known = host_pb2.HostInfo(hostname="h1", **{"state": host_pb2.HOST_STATE_UP, **amounts, **info})
    api.answers["hosts.QueryHosts"] = [host_svc_pb2.QueryHostsResponse(host_infos=[known])]
    api.answers["maintenance.Query"] = [maintenance_pb2.QueryResponse(hosts=drains)]


def test_a_host_that_takes_pods(run: Run, api: FakeApi) -> None:
    """The output has the free resources, and the reason why pods prefer other hosts."""
    answer(api, current_pool="shared", avoided=FLAPS)

    assert [
        "h1 is UP, in host pool shared: it takes pods",
        "Free: cpu 2.5 of 8, memory 0 of 4096 MiB, disk 0 of 0 MiB, gpu 0 of 0",
        f"Pods go elsewhere while others could take them: it is avoided {FLAPS}",
    ] == run("host why h1").stdout.splitlines()
    assert [host_svc_pb2.QueryHostsRequest(hostnames=["h1"])] == api.requests("hosts.QueryHosts")


def test_a_host_with_extended_resources(run: Run, api: FakeApi) -> None:
    """The free amounts are named by host why and host query, those of a used up resource too."""
    extended = host_pb2.HostAmounts(cpu=8, extended={"tapes": 2, "example.com/fpga": 1})
    amounts = {"capacity": extended, "free": host_pb2.HostAmounts(cpu=8, extended={"tapes": 1})}

    answer(api, **amounts)
    assert run("host why h1").stdout.splitlines()[1].endswith("gpu 0 of 0, example.com/fpga 0 of 1, tapes 1 of 2")
    answer(api, **amounts)
    assert run("host query").stdout.splitlines()[-1] == "h1 has free example.com/fpga 0 of 1, tapes 1 of 2"


def test_a_host_that_the_cluster_keeps_pods_away_from(run: Run, api: FakeApi) -> None:
    """A cordoned or tainted host is UP and takes no pods; the list says so instead of leaving its amounts blank."""
    for reason in ("an operator of the cluster has cordoned it", "it has the taint dedicated=db:NoSchedule"):
        answer(api, avoided=reason, capacity=None, free=None)
        assert ["h1 is UP (unschedulable): it takes no pods", f"Pods cannot go there: {reason}"] == run(
            "host why h1"
        ).stdout.splitlines()

        answer(api, avoided=reason, capacity=None, free=None)
        _, row, note = run("host query").stdout.splitlines()
        assert ["h1", "UP", "(unschedulable)", *["-"] * 6] == row.split()
        assert f"h1 is unschedulable: {reason}" == note


def test_a_host_that_is_reserved_for_a_pod(run: Run, api: FakeApi) -> None:
    """The reservation is in the list of hosts as well."""
    reserved = "for pod j-3 since 2026-11-22 10:00:00, until 10:30:00 UTC: there is room soon"
    answer(api, reserved=reserved)

    assert (
        f"It is reserved {reserved}. Others get what is free beyond that" == run("host why h1").stdout.splitlines()[2]
    )
    answer(api, reserved=reserved)
    assert f"h1 is reserved {reserved}" == run("host query").stdout.splitlines()[-1]


def test_a_host_in_maintenance(run: Run, api: FakeApi) -> None:
    """The output has the condition that the drain waits for, and its blocking jobs."""
    blocker = maintenance_pb2.Blocker(job_id="j", pod_count=2, reason="its SLA")
    drain = maintenance_pb2.HostMaintenance(
        hostname="h1",
        state=host_pb2.HOST_STATE_DRAINING,
        goal_state=host_pb2.HOST_STATE_DOWN,
        waiting_for="the SLA of 1 job",
        blockers=[blocker],
    )
    answer(api, drain, state=host_pb2.HOST_STATE_DRAINING)

    said = run("host why h1").stdout.splitlines()

    assert "h1 is DRAINING: it takes no pods" == said[0]
    assert ["It is on its way DOWN, and waits for the SLA of 1 job", "h1: job j keeps 2: its SLA"] == said[2:]


def test_programs_and_hosts_that_are_not_known(run: Run, api: FakeApi) -> None:
    """JSON has the host as the API answers it; an unknown host is an error."""
    answer(api)

    assert "h1" == json.loads(run("--json host why h1").stdout)["hostname"]
    assert "h1\n" == run("-o name host why h1").stdout
    unknown = run("host why h9")
    assert (1, True) == (unknown.exit_code, "unknown host h9" in unknown.stderr)


def test_a_mark_is_reported(run: Run, api: FakeApi) -> None:
    """The output has the mark's reason, and says that the mark keeps no pod away."""
    answer(api, marked="RED: cpu 95 %, red from 90 %")

    marked = "It is marked RED: cpu 95 %, red from 90 %; that keeps no pod from it"
    assert marked in run("host why h1").stdout.splitlines()
    assert "h1 is marked RED: cpu 95 %, red from 90 %" in run("host query").stdout.splitlines()
