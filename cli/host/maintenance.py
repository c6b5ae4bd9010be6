"""``peloton host maintenance``: takes hosts out of the cluster for a while, and brings them back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import click

from cli.command import Group, verb_commands
from cli.host.drains import print_drains, start_lines, watch_drains
from cli.host.unknown_hosts import explain_unknown
from cli.output import print_for_programs
from cli.params import COUNT_FROM_1, DURATION, HOSTNAME
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.watching import progress_console
from cli.wire import v0

if TYPE_CHECKING:
    from google.protobuf.message import Message

HOSTS = click.argument("hosts", metavar="HOST...", type=HOSTNAME, nargs=-1, required=True)
WATCH = click.option("--watch", is_flag=True, help="Show the drain until every host is down or out of maintenance.")


@click.group("maintenance", cls=Group)
def maintenance() -> None:
    """Take hosts down for maintenance and up again.

    A host is drained first: pods of batch jobs go back to their queue, pods of services leave as the SLA of their job
    allows. The number of hosts that are unavailable at a time is bounded; the others wait in the order of the requests.
    """


@dataclass(frozen=True, slots=True)
class StartOptions:
    deadline: float | None  # seconds
    at_most: int | None
    reason: str


def start_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that begins maintenance, which receives them as ``options``."""

    @click.option(
        "--deadline", type=DURATION, help="Allow `force` after this time; if absent, the installation's default."
    )
    @click.option("--at-most", type=COUNT_FROM_1, help="Start while at most N hosts are unavailable.")
    @click.option("--reason", default="", help="A reason, shown with the host.")
    @wraps(command)
    def with_options(*args: object, deadline: float | None, at_most: int | None, reason: str, **kwargs: object) -> None:
        command(*args, options=StartOptions(deadline, at_most, reason), **kwargs)

    return with_options


@maintenance.command()
@HOSTS
@start_options
@WATCH
@pass_settings
def start(settings: Settings, hosts: Sequence[str], options: StartOptions, watch: bool) -> None:
    """Drain hosts and take them down; in each cluster all of them or none.

    \b
    Examples:
      peloton host maintenance start host1 host2 --watch
      peloton host maintenance start host1 --deadline 30m --at-most 5 --reason "new kernel"
    """
    begin(settings, hosts, options, watch)


def begin(settings: Settings, hosts: Sequence[str], options: StartOptions, watch: bool) -> None:
    deadline_s = None if options.deadline is None else math.ceil(options.deadline)
    request = v0.maintenance.StartRequest(
        hostnames=hosts, at_most=options.at_most or 0, reason=options.reason, deadline_seconds=deadline_s
    )
    with explain_unknown(settings, hosts):
        answer = settings.client.maintenance.Start(request)
    say(settings, hosts, answer, "Host successfully submitted for maintenance: {}", lines=watch)
    for line in () if settings.is_for_programs else start_lines(answer):
        echo(line)
    if watch:
        show_drains(settings, hosts, answer.hosts)


TEXTS = {
    "complete": "Bring back hosts that are DOWN; in each cluster all of them or none.",
    "cancel": "Keep hosts that are not DOWN yet in service. Evicted pods do not move back.",
}
DONE = {
    "complete": "Host successfully submitted for maintenance completion: {}",
    "cancel": "Maintenance of host cancelled: {}",
}


@verb_commands(TEXTS, "host maintenance {verb} host1 host2", maintenance)
@HOSTS
@pass_settings
def end(settings: Settings, verb: str, hosts: Sequence[str]) -> None:
    request = getattr(v0.maintenance, f"{verb.capitalize()}Request")(hostnames=hosts)
    with explain_unknown(settings, hosts):
        answer = getattr(settings.client.maintenance, verb.capitalize())(request)
    say(settings, hosts, answer, DONE[verb])


@maintenance.command()
@HOSTS
@WATCH
@pass_settings
def force(settings: Settings, hosts: Sequence[str], watch: bool) -> None:
    """Evict the pods of hosts against the SLA of their jobs. Only after the deadline of the drain.

    \b
    Example:
      peloton host maintenance force host1 --watch
    """
    with explain_unknown(settings, hosts):
        answer = settings.client.maintenance.Force(v0.maintenance.ForceRequest(hostnames=hosts))
    say(settings, hosts, answer, "Drain of host forced: {}", lines=watch)
    if watch:
        show_drains(settings, hosts)


@maintenance.command()
@click.argument("hosts", metavar="[HOST]...", type=HOSTNAME, nargs=-1)
@WATCH
@pass_settings
def status(settings: Settings, hosts: Sequence[str], watch: bool) -> None:
    """Show hosts in maintenance, what they wait for, and which jobs block them.

    \b
    Examples:
      peloton host maintenance status
      peloton host maintenance status host1 --watch
    """
    if watch:
        show_drains(settings, hosts)
        return
    answer = settings.client.maintenance.Query(v0.maintenance.QueryRequest(hostnames=hosts))
    if not print_for_programs(settings, answer, (host.hostname for host in answer.hosts)):
        print_drains(answer, hosts, is_wide=settings.output == "wide")


def say(settings: Settings, hosts: Sequence[str], answer: Message, text: str, lines: bool = False) -> None:
    """Print the response as JSON, or a line for each host."""
    if print_for_programs(settings, answer, dict.fromkeys(hosts), lines):
        return
    for host in dict.fromkeys(hosts):
        echo(text.format(host))


def show_drains(settings: Settings, hosts: Sequence[str], begun: Iterable[v0.maintenance.HostMaintenance] = ()) -> None:
    """Watch the drains. ``begun``: the answer of the call that began them."""
    console = progress_console(settings.is_for_programs)
    watch_drains(settings.client, hosts, console, is_json=settings.json, begun=begun)
