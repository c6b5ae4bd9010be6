"""``peloton host maintenance``: requests, texts, and the view of drains."""

from __future__ import annotations

import io
import json
from typing import Any

import click
import grpc
import pytest
from rich.console import Console

from cli.errors import Failed
from cli.host.drains import watch_drains
from cli.host.maintenance import start
from cli.params import HOSTNAME
from cli.settings import Settings
from cli.watching import WatchPace
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.client import NO_RETRIES, Client
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


def host(name: str, state: str, goal: str = "DOWN", **more: Any) -> pb.HostMaintenance:
    number = host_pb2.HostState.Value
    return pb.HostMaintenance(
        hostname=name, state=number(f"HOST_STATE_{state}"), goal_state=number(f"HOST_STATE_{goal}"), **more
    )


def answer(*hosts: pb.HostMaintenance) -> pb.QueryResponse:
    return pb.QueryResponse(hosts=hosts, away_max=2, host_count=20)


BLOCKED = host(
    "h1",
    "DRAINING",
    pod_count=3,
    leaving_count=1,
    waiting_for="the end of 1 pod and the SLA of 1 job to let 2 pods go",
    blockers=[pb.Blocker(job_id=JOB, pod_count=2, reason="1 of at most 1 instances are unavailable already")],
)
WAITING = host("h2", "UP", waiting_for="its turn: 2 of at most 2 hosts are draining or down")


def test_start(run: Run, api: FakeApi) -> None:
    """Each host has the original's text; options are sent as seconds and counts, and an absent one as no value."""
    api.answers["maintenance.Start"] = [pb.StartResponse()]

    result = run("host maintenance start h1 h2 --deadline 1m30s --at-most 3 --reason kernel")
    run("host maintenance start h1")

    text = "Host successfully submitted for maintenance: h1\nHost successfully submitted for maintenance: h2\n"
    assert (0, text) == (result.exit_code, result.stdout)
    assert [
        pb.StartRequest(hostnames=["h1", "h2"], deadline_seconds=90, at_most=3, reason="kernel"),
        pb.StartRequest(hostnames=["h1"]),
    ] == api.requests("maintenance.Start")


def test_who_waits_is_reported(run: Run, api: FakeApi) -> None:
    """The output counts the hosts that begin and that wait, names the bound and its option, and lists the first few
    hosts."""
    others = [host(f"w{i}", "UP", waiting_for="its turn") for i in range(11)]
    api.answers["maintenance.Start"] = [pb.StartResponse(hosts=[BLOCKED, WAITING]), pb.StartResponse(hosts=others)]

    lines = run("host maintenance start h1 h2").stdout.splitlines()
    many = run("host maintenance start h1").stdout.splitlines()

    assert [
        "Hosts that begin: 1; that wait: 1",
        "h2 waits for its turn: 2 of at most 2 hosts are draining or down",
    ] == lines[2:4]
    assert lines[4].startswith("To allow N unavailable hosts, repeat it with --at-most N")
    assert ("w9 waits for its turn", "and 1 more") == tuple(many[-3:-1])


VERBS = {
    "complete": ("Complete", pb.CompleteResponse, "Host successfully submitted for maintenance completion: h1\n"),
    "cancel": ("Cancel", pb.CancelResponse, "Maintenance of host cancelled: h1\n"),
    "force": ("Force", pb.ForceResponse, "Drain of host forced: h1\n"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs(verb: str, run: Run, api: FakeApi) -> None:
    """Each verb is one call; a refusal is the API's text with exit code 1."""
    method, response, text = VERBS[verb]
    api.answers[f"maintenance.{method}"] = [response(hosts=[BLOCKED]), (grpc.StatusCode.ABORTED, "host h1 is ...")]

    result = run(f"host maintenance {verb} h1")
    refused = run(f"host maintenance {verb} h1")

    assert (0, text) == (result.exit_code, result.stdout)
    assert (1, "host h1 is ... (ABORTED)\n") == (refused.exit_code, refused.stderr)
    assert [["h1"], ["h1"]] == [list(request.hostnames) for request in api.requests(f"maintenance.{method}")]


HOSTS = host_svc_pb2.QueryHostsResponse(
    host_infos=[host_pb2.HostInfo(hostname=f"node-{i}", cluster="east" if i else "west") for i in range(3)]
)


@pytest.mark.parametrize("verb", ["start", *VERBS])
def test_a_host_that_no_cluster_has(verb: str, run: Run, api: FakeApi) -> None:
    """The error names the host, the clusters that answered and the nearest names."""
    refusal = (grpc.StatusCode.ABORTED, "host is not a Peloton agent: nde-1")
    api.answers[f"maintenance.{verb.capitalize()}"] = [refusal]
    api.answers["hosts.QueryHosts"] = [HOSTS]

    refused = run(f"host maintenance {verb} node-0 nde-1 x")

    text = (
        "unknown host 'nde-1' (did you mean node-1 or node-2 or node-0?) or 'x' in clusters east, west: peloton "
        "host list shows the known hosts\n"
    )
    assert (1, text) == (refused.exit_code, refused.stderr)


def test_a_host_that_may_be_in_a_silent_cluster(run: Run, api: FakeApi) -> None:
    """The error is the refusal itself, as with known hosts."""
    api.answers["maintenance.Start"] = [(grpc.StatusCode.ABORTED, "host is not a Peloton agent: x")]
    silent = host_svc_pb2.QueryHostsResponse(silent_clusters=["north"])
    silent.MergeFrom(HOSTS)
    api.answers["hosts.QueryHosts"] = [silent]

    assert "host is not a Peloton agent: x (ABORTED)\n" == run("host maintenance start x").stderr


def test_json(run: Run, api: FakeApi) -> None:
    """--json prints the complete response."""
    api.answers["maintenance.Cancel"] = [pb.CancelResponse(hosts=[WAITING])]
    api.answers["maintenance.Query"] = [answer(WAITING)]

    assert "h2" == json.loads(run("host maintenance cancel h2 --json").stdout)["hosts"][0]["hostname"]
    assert 20 == json.loads(run("host maintenance status --json").stdout)["hostCount"]


STATUS = f"""\
Hostname  State     Goal  Pods  Leaving  Waiting for
h1        DRAINING  DOWN  3     1        the end of 1 pod and the SLA of 1 job to let 2 pods go
h2        UP        DOWN                 its turn: 2 of at most 2 hosts are draining or down
h3        DOWN      DOWN                 completion
h4        DRAINED   UP
h1: job {JOB} keeps 2: 1 of at most 1 instances are unavailable already
3 of 20 hosts unavailable, limit 2
"""


def test_status(run: Run, api: FakeApi) -> None:
    """The table has each host's state, the condition that it waits for, the blocking jobs, and the number of hosts
    away."""
    api.answers["maintenance.Query"] = [
        answer(BLOCKED, WAITING, host("h3", "DOWN"), host("h4", "DRAINED", "UP")),
        answer(),
    ]

    assert STATUS == run("host maintenance status").stdout
    assert "Not in maintenance: h9\n" == run("host maintenance status h9").stdout
    assert "No hosts in maintenance\n" == run("host maintenance status").stdout
    assert [[], ["h9"], []] == [list(request.hostnames) for request in api.requests("maintenance.Query")]
    api.answers["maintenance.Query"] = [pb.QueryResponse(silent_clusters=["west"])]
    reported = run("host maintenance status h9")
    assert "Not in maintenance in the clusters that answer: h9\n" == reported.stdout
    assert "Without the hosts of west, whose host managers do not answer\n" == reported.stderr


def test_forced_drains_say_so(run: Run, api: FakeApi) -> None:
    """The status marks a forced drain as forced."""
    forced = host("h1", "DRAINING", pod_count=1, leaving_count=1, forced=True, waiting_for="the end of 1 pod")
    api.answers["maintenance.Query"] = [answer(forced)]

    assert "forced; the end of 1 pod" in run("host maintenance status").stdout


class Waits:
    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def pace(self) -> WatchPace:
        return WatchPace(sleep=self.sleep, clock=lambda: self.now_s)


def run_watch(api: FakeApi, *hosts: str, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)
    with Client(api.address, retry=NO_RETRIES) as client:
        watch_drains(client, hosts, console, Waits().pace)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_drain_is_lines_of_json(run: Run, api: FakeApi) -> None:
    """--json prints each changed answer on one line; hosts that are UP again are named on standard error."""
    api.answers["maintenance.Query"] = [answer(WAITING), answer(WAITING), answer()]
    result = run("host maintenance status h2 --watch --json")

    assert [["h2"]] == [[host["hostname"] for host in json.loads(line)["hosts"]] for line in result.stdout.splitlines()]
    assert "h2 is UP\n" == result.stderr


LINES = f"""\
h1 DRAINING  3 pods, 1 leaving  waits for the end of 1 pod and the SLA of 1 job to let 2 pods go
h1: job {JOB} keeps 2: 1 of at most 1 instances are unavailable already
h2 UP  waits for its turn: 2 of at most 2 hosts are draining or down
h1 DRAINED
h1 DOWN  waits for completion
h2 is UP
"""


def test_watching_reports_what_changes(api: FakeApi) -> None:
    """The watch prints a line at each change, until all hosts are down or out of maintenance."""
    down = host("h1", "DOWN")
    api.answers["maintenance.Query"] = [
        answer(BLOCKED, WAITING),
        answer(BLOCKED, WAITING),
        answer(host("h1", "DRAINED"), WAITING),
        answer(down, WAITING),
        answer(down),
    ]

    assert LINES == run_watch(api, "h1", "h2")
    assert [["h1", "h2"]] * 5 == [list(request.hostnames) for request in api.requests("maintenance.Query")]


def test_watching_on_a_terminal(api: FakeApi) -> None:
    """The watch redraws the table in place."""
    api.answers["maintenance.Query"] = [answer(BLOCKED), answer(host("h1", "DOWN"))]

    shown = run_watch(api, terminal=True)

    assert "DRAINING" in shown
    assert f"h1: job {JOB} keeps 2" in shown
    assert "1 of 20 hosts unavailable, limit 2" in shown


def test_watching_nothing(api: FakeApi) -> None:
    """The watch says that there are no hosts, and ends."""
    api.answers["maintenance.Query"] = [answer()]

    assert "No hosts in maintenance\n" == run_watch(api)


def test_watching_sits_outages_out(api: FakeApi) -> None:
    """A short outage of the API is waited for; after a long one the watch gives up."""
    away = (grpc.StatusCode.UNAVAILABLE, "hostmgr is not there")
    api.answers["maintenance.Query"] = [away, answer(host("h1", "DOWN"))]

    lines = run_watch(api, "h1").splitlines()

    assert [f"{api.address} does not answer; the maintenance continues, retrying ...",
            f"{api.address} answers again", "h1 DOWN  waits for completion"] == lines  # fmt: skip
    api.answers["maintenance.Query"] = [away]
    with pytest.raises(
        Failed, match="the maintenance is not affected, see `peloton host maintenance status h1 --watch`"
    ):
        run_watch(api, "h1")


SILENT_LINES = """\
h1 DRAINED
h2 DOWN  waits for completion
Without the hosts of west, whose host managers do not answer
All clusters answer again
h1 is UP
"""


def test_watching_waits_for_silent_clusters(api: FakeApi) -> None:
    """A host of a cluster that does not answer counts neither as UP nor as finished."""
    h1, h2 = host("h1", "DRAINED", cluster="west"), host("h2", "DOWN", cluster="east")
    silent = answer(h2)
    silent.silent_clusters.append("west")
    api.answers["maintenance.Query"] = [answer(h1, h2), silent, silent, answer(h2)]

    assert SILENT_LINES == run_watch(api, "h1", "h2")


def test_names_of_hosts_are_completed(api: FakeApi) -> None:
    """The completion asks the API, and offers nothing if the API fails."""
    hosts = [host_pb2.HostInfo(hostname=name) for name in ("h2", "h1", "other")]
    api.answers["hosts.QueryHosts"] = [host_svc_pb2.QueryHostsResponse(host_infos=hosts), (grpc.StatusCode.ABORTED, "")]
    context = click.Context(start, obj=Settings(address=api.address))

    assert ["h1", "h2"] == [item.value for item in HOSTNAME.shell_complete(context, start.params[0], "h")]
    assert [] == HOSTNAME.shell_complete(context, start.params[0], "h")
