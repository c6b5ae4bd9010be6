"""``peloton job use``: the measured use of instances, and their requests."""

from __future__ import annotations

import time

import click

from cli.command import Command
from cli.names import job_argument
from cli.output import Row, Table, print_list
from cli.params import INSTANCE_MAX, InstanceRange, range_option
from cli.settings import Settings, pass_settings
from cli.wire import v0

INSTANCES_MAX = 100
RATE_S = 4.0
"""Two samples of a counter of cpu seconds make a rate; the API takes the second one some seconds after the first."""
UNKNOWN = "-"
TABLE: Table[Row] = Table(
    "Instance", "Host", "CPU Used", "CPU Asked", "CPU", "MiB Used", "MiB Asked", "Memory",
    whole=["Instance"],
    nothing="No instance is on a host.",
    name=lambda row: str(row[0]),
)  # fmt: skip


@click.command("use", cls=Command)
@job_argument
@range_option
@pass_settings
def use(settings: Settings, job_id: str, instances: InstanceRange) -> None:
    """Measure the usage of instances, compared with their requests.

    At most 100 instances are measured; without --range, the first 100 that are on a host.

    \b
    Examples:
      peloton job use JOB
      peloton job use JOB -r 0:10 -o json
    """
    first, end = instances
    chosen: range = range(0)
    if end != INSTANCE_MAX:
        if end - first > INSTANCES_MAX:
            raise click.BadParameter(f"{end - first:,} instances, at most {INSTANCES_MAX} can be measured at once")
        chosen = range(first, end)
    elif first:
        chosen = range(first, first + INSTANCES_MAX)
    request = v0.table.GetInstanceUseRequest(instances=chosen)
    request.id.value = job_id
    response = settings.client.job_table.GetInstanceUse(request)
    if not all(one.measured for one in response.instances):
        time.sleep(RATE_S)
        response = settings.client.job_table.GetInstanceUse(request)
    print_list(settings, response, TABLE, map(_row, response.instances))


def _row(one: v0.table.InstanceUse) -> tuple[object, ...]:
    asked = f"{one.cpuAsked:g}", f"{one.memoryMbAsked:,.0f}"
    if not one.measured:
        return one.instance, one.host, UNKNOWN, asked[0], UNKNOWN, UNKNOWN, asked[1], UNKNOWN
    used = f"{one.cpuUsed:.2f}", f"{one.memoryMbUsed:,.0f}"
    percents = _percent(one.cpuUsed, one.cpuAsked), _percent(one.memoryMbUsed, one.memoryMbAsked)
    return one.instance, one.host, used[0], asked[0], percents[0], used[1], asked[1], percents[1]


def _percent(used: float, asked: float) -> str:
    return f"{100 * used / asked:.0f} %" if asked else UNKNOWN
