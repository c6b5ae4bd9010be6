"""``peloton overview``: the whole installation at a glance, and its problems first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from cli import overview_history
from cli.command import VerbsAndCommand
from cli.output import Row, Table, print_for_programs, print_table
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0
from peloton.model.problem import Severity

SEVERITIES = {severity.value: severity.name for severity in Severity}
PROBLEMS: Table[v0.overview.Problem] = Table(
    ("Severity", lambda problem: SEVERITIES.get(problem.severity, "")),
    ("Since", lambda problem: seconds_text(problem.since) if problem.since else ""),
    ("What", lambda problem: problem.text),
    ("More", lambda problem: problem.command),
    whole=["Severity"],
    spare=["Since", "More"],
)
AMOUNTS: Table[Row] = Table(
    "Cluster", "Kind", "Capacity", "Away", "Allocated", "Used", "Slack", "Slack held",
    whole=["Cluster", "Kind", "Capacity", "Allocated"],
    spare=["Away", "Slack held", "Slack", "Used"],
)  # fmt: skip
UNITS = {"cpu": "cpu (cores)", "memory": "memory (MiB)", "disk": "disk (MiB)", "gpu": "gpu (gpus)"}


@click.group(cls=VerbsAndCommand, invoke_without_command=True)
@pass_settings
@click.pass_context
def overview(context: click.Context, settings: Settings) -> None:
    """Show the present problems, the worst first, with the command for details; then capacity, allocation and use of
    the clusters, and hosts, jobs and pods by state.

    Problems are: no leader, Temporal or all workers unavailable, a workflow that fails or whose activity is on its
    tenth attempt, a host manager that does not answer, hosts that left their cluster within an hour, are avoided or
    marked RED, drains that are blocked or late, volumes that are LOST, updates that failed, were rolled
    back or have stalled, gangs that will never start, pods that fit no host, pools that wait for their entitlement,
    components that are locked, and time series that are not recorded.

    \b
    Examples:
      peloton overview
      peloton --json overview | jq -r '.problems[].text'
    """
    if context.invoked_subcommand is not None:
        return
    answer = settings.client.overview.GetOverview(v0.overview.GetOverviewRequest())
    if print_for_programs(settings, answer, (problem.subject_id for problem in answer.problems)):
        return
    is_wide = settings.output == "wide"
    if answer.problems:
        print_table(PROBLEMS, answer.problems, is_wide)
    else:
        echo("Nothing is wrong")
    if answer.problems_left_out:
        echo(f"and {answer.problems_left_out} more")
    echo()
    print_table(AMOUNTS, amount_rows(answer), is_wide)
    echo()
    for line in lines_of(answer):
        echo(line)


overview.add_command(overview_history.history)


def amount_rows(answer: v0.overview.GetOverviewResponse) -> Iterator[tuple[str, ...]]:
    for cluster in answer.clusters:
        if cluster.is_silent:
            yield cluster.cluster, "no answer", *[""] * 6
        for one in cluster.amounts:
            is_slack, is_measured = one.kind == "cpu", one.measured_capacity > 0
            yield (
                cluster.cluster,
                UNITS.get(one.kind, one.kind),
                f"{one.capacity:.10g}",
                f"{one.away:.10g}",
                f"{one.allocation:.10g}" + (f" ({one.allocation / one.capacity:.0%})" if one.capacity else ""),
                f"{one.used:.2f} of {one.measured_capacity:.10g}" if is_measured else "",
                f"{one.slack:.10g}" if is_slack else "",
                f"{one.slack_held:.10g}" if is_slack else "",
            )


def lines_of(answer: v0.overview.GetOverviewResponse) -> Iterator[str]:
    for cluster in answer.clusters:
        if not cluster.is_silent:
            hosts = cluster.hosts
            more = [f"{hosts.in_maintenance} in maintenance"] if hosts.in_maintenance else []
            more += [f"{hosts.avoided} avoided"] if hosts.avoided else []
            more += [f"marked {counts_text(hosts.marks)}"] if hosts.marks else []
            yield ", ".join([f"Hosts of {cluster.cluster}: {counts_text(hosts.states) or 'none'}", *more])
    if answer.counted_time:
        yield f"Jobs: {counts_text(answer.jobs) or 'none'}"
        yield f"Pods: {counts_text(answer.pods) or 'none'}"
    else:
        yield "Jobs and pods are being counted: ask again in a few seconds"
    for role in answer.roles:
        led = f"led at {role.address}, lease for {role.seconds_left:.1f} s more" if role.address else "no leader"
        yield f"Role {role.role}: {led}"
    if answer.temporal_address:
        yield f"Temporal: {answer.temporal_address}, namespace {answer.temporal_namespace}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts as text, the largest first."""
    found = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {name}" for name, count in found)
