"""``peloton host drain``: the plan, the question, and the drain."""

from __future__ import annotations

from peloton.api.v0.maintenance import maintenance_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.test_host_maintenance import host

JOBS = [f"{digit}0000000-0000-4000-8000-000000000000" for digit in range(4)]


def a_plan() -> pb.PlanResponse:
    departures = [pb.DEPARTURE_REQUEUED, pb.DEPARTURE_SLA, pb.DEPARTURE_STOPPED, pb.DEPARTURE_LAST]
    jobs = [pb.JobDeparture(job_id=job, departure=how, pod_count=2) for job, how in zip(JOBS, departures, strict=True)]
    jobs[1].allowed_count = jobs[1].homeless_count = 1
    return pb.PlanResponse(
        hosts=[pb.HostDeparture(hostname="h1", cluster="local", jobs=jobs, leaving_count=3, unchecked_count=4)]
    )


PLAN = f"""\
Hostname  Job                                   Pods  Leave                                                     Unplaceable  Cluster
h1        {JOBS[0]}  2     at once, and are queued again                                          local
h1        {JOBS[1]}  2     as the SLA allows: 1 of the job now                       1            local
h1        {JOBS[2]}  2     when an operator stops them: their volume is on the host               local
h1        {JOBS[3]}  2     after all other pods                                                   local
Pods that are leaving already: 3
Pods of services that were not checked for another host: 4
"""  # noqa: E501


def test_the_plan_alone(run: Run, api: FakeApi) -> None:
    """--plan shows the plan and drains nothing."""
    api.answers["maintenance.Plan"] = [a_plan()]

    assert PLAN == run("host drain h1 --plan -o wide").stdout
    assert ["h1"] == list(api.requests("maintenance.Plan")[0].hostnames)
    assert [] == api.requests("maintenance.Start")


def test_the_drain_follows_a_yes(run: Run, api: FakeApi) -> None:
    """The drain has the options of maintenance, and the command watches it."""
    api.answers["maintenance.Plan"] = [a_plan()]
    api.answers["maintenance.Start"] = [pb.StartResponse(hosts=[host("h1", "DRAINING")])]
    api.answers["maintenance.Query"] = [pb.QueryResponse(hosts=[host("h1", "DOWN")], away_max=1, host_count=3)]

    result = run("host drain h1 --at-most 2 --deadline 1m --reason kernel", text="y\n")

    assert 0 == result.exit_code
    assert "after all other pods" in result.stdout
    assert "h1 DOWN  waits for completion" in result.stdout
    (sent,) = api.requests("maintenance.Start")
    assert (["h1"], 2, 60, "kernel") == (list(sent.hostnames), sent.at_most, sent.deadline_seconds, sent.reason)


def test_a_no_drains_nothing(run: Run, api: FakeApi) -> None:
    """The command shows the plan, and a no starts nothing."""
    api.answers["maintenance.Plan"] = [pb.PlanResponse(hosts=[pb.HostDeparture(hostname="h1")])]

    result = run("host drain h1", text="n\n")

    assert (1, "No pods are on these hosts\n") == (result.exit_code, result.stdout)
    assert [] == api.requests("maintenance.Start")


def test_yes_asks_nothing(run: Run, api: FakeApi) -> None:
    """--yes drains without plan and question."""
    api.answers["maintenance.Start"] = [pb.StartResponse(hosts=[host("h1", "DOWN")])]
    api.answers["maintenance.Query"] = [pb.QueryResponse(hosts=[host("h1", "DOWN")], away_max=1, host_count=3)]

    assert 0 == run("host drain h1 --yes").exit_code
    assert [] == api.requests("maintenance.Plan")
