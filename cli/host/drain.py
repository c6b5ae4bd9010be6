"""``peloton host drain``: the effects of a drain on the pods of hosts, and the drain itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from cli.command import Command
from cli.host.maintenance import HOSTS, StartOptions, begin, start_options
from cli.host.unknown_hosts import explain_unknown
from cli.output import Row, Table, print_list
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0

TABLE: Table[Row] = Table(
    "Hostname", "Job", "Pods", "Leave", "Unplaceable", "Cluster",
    whole=["Hostname", "Pods", "Leave", "Unplaceable"],
    spare=["Cluster"],
    nothing="No pods are on these hosts",
)  # fmt: skip
DEPARTURES = {
    "DEPARTURE_REQUEUED": "at once, and are queued again",
    "DEPARTURE_STOPPED": "when an operator stops them: their volume is on the host",
    "DEPARTURE_LAST": "after all other pods",
}


@click.command(cls=Command)
@HOSTS
@click.option("--plan", "is_plan", is_flag=True, help="Show which pods would leave, and when, without draining.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@start_options
@pass_settings
def drain(settings: Settings, hosts: Sequence[str], is_plan: bool, yes: bool, options: StartOptions) -> None:
    """Show the pods that a drain of hosts evicts, ask for confirmation, and drain them as `host maintenance start
    --watch` does.

    The plan is for all of the hosts drained at once. Unplaceable pods are pods of services that fit on no other host
    now: they would wait.

    \b
    Examples:
      peloton host drain host1 --plan
      peloton host drain host1 host2 --yes --reason "new kernel"
    """
    if is_plan or not yes:
        with explain_unknown(settings, hosts):
            answer = settings.client.maintenance.Plan(v0.maintenance.PlanRequest(hostnames=hosts))
        show(settings, answer, is_plan)
        if is_plan:
            return
        click.confirm(f"Drain {', '.join(hosts)} for maintenance?", err=True, abort=True)
    begin(settings, hosts, options, watch=True)


def show(settings: Settings, answer: v0.maintenance.PlanResponse, is_plan: bool) -> None:
    """Print the plan as the command's output, or only for the user to decide."""
    if settings.is_for_programs and not is_plan:
        return
    rows = [
        (
            host.hostname,
            job.job_name or job.job_id,
            str(job.pod_count),
            departure_of(job),
            unplaceable(job),
            host.cluster,
        )
        for host in answer.hosts
        for job in host.jobs
    ]
    print_list(settings, answer, TABLE, rows, (host.hostname for host in answer.hosts))
    if not settings.is_for_programs:
        for line in notes(answer):
            echo(line)


def departure_of(job: v0.maintenance.JobDeparture) -> str:
    name = v0.maintenance.Departure.Name(job.departure)
    return DEPARTURES.get(name) or f"as the SLA allows: {job.allowed_count} of the job now"


def unplaceable(job: v0.maintenance.JobDeparture) -> str:
    return str(job.homeless_count) if job.departure == v0.maintenance.DEPARTURE_SLA else ""


def notes(answer: v0.maintenance.PlanResponse) -> Iterator[str]:
    if leaving := sum(host.leaving_count for host in answer.hosts):
        yield f"Pods that are leaving already: {leaving}"
    if unchecked := sum(host.unchecked_count for host in answer.hosts):
        yield f"Pods of services that were not checked for another host: {unchecked}"
