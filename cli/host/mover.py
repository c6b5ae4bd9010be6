"""``peloton host pool mover``: hosts that follow demand between host pools."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.command import Group, verb_commands
from cli.output import Table, print_list, print_outcome
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0

POOLS: Table[v0.mover.Pool] = Table(
    ("Host pool", lambda pool: pool.name),
    ("Does", lambda pool: "takes" if pool.takes else "gives"),
    ("Hosts", lambda pool: pool.host_count),
    ("Minimum", lambda pool: pool.minimum),
    ("In use", lambda pool: f"{pool.used_percent} %"),
    ("Marked", lambda pool: pool.marked_count),
    ("Red", lambda pool: pool.red_count),
    ("Slow", lambda pool: pool.slow_count if pool.takes else ""),
    # for its waiting pods, or up to its minimum
    ("Lacks", lambda pool: max(pool.waiting_count, pool.minimum - pool.host_count, 0)),
    ("Moving", lambda pool: pool.moving_count),
    ("Has from", lambda pool: ", ".join(f"{name} {count}" for name, count in sorted(pool.lent.items()))),
    ("State", lambda pool: pool.state),
    whole=["Host pool", "Does", "Hosts"],
    spare=["Slow", "Red", "Marked", "Moving", "Minimum"],
    nothing="No host pool takes hosts (serves stateless, and no batch jobs), and none gives them (serves batch, shared "
    "or both, and nothing else): see peloton host pool create",
    name=lambda pool: pool.name,
)
SHIFTS: Table[v0.mover.Shift] = Table(
    ("From", lambda shift: shift.source),
    ("To", lambda shift: shift.destination),
    ("Hosts", lambda shift: shift.host_count),
    ("Why", lambda shift: shift.reason),
    whole=["From", "To", "Hosts"],
    nothing="Nothing to move",
    name=lambda shift: f"{shift.source} {shift.destination}",
)
MADE_SHOWN = 10


@click.group("mover", cls=Group)
def mover() -> None:
    """Let hosts follow demand between host pools.

    A host pool for services (it serves stateless, and no batch jobs) takes hosts while it lacks some: its pods wait for
    hosts, its hosts are loaded, or the host advisor marks too many of them or some services. Host pools that serve
    batch jobs alone give them, down to their --minimum, and get them back once the need has been over for a while. Any
    of them fetches hosts while it has fewer than its minimum. Each host is drained first, as the SLA of the services on
    it allows; one that is not empty after an hour stays where it is.
    """


TEXTS = {
    "on": "Switch the mover on.",
    "off": "Switch the mover off. Moves under way continue; hosts that it has taken stay where they are.",
}


@verb_commands(TEXTS, "host pool mover {verb}", mover)
@pass_settings
def switch(settings: Settings, verb: str) -> None:
    response = settings.client.mover.Switch(v0.mover.SwitchRequest(on=verb == "on"))
    print_outcome(settings, response, f"The mover of host pools is {verb}.", ["mover"])


@mover.command()
@pass_settings
def plan(settings: Settings) -> None:
    """Show the hosts that would move now, if the demand had lasted for long enough; nothing is moved.

    \b
    Example:
      peloton host pool mover plan
    """
    answer = settings.client.mover.Query(v0.mover.QueryRequest())
    print_list(settings, answer, SHIFTS, answer.planned)
    if not settings.is_for_programs and not answer.on:
        echo("The mover is off")


@mover.command()
@pass_settings
def show(settings: Settings) -> None:
    """Show the hosts and demand of each host pool, what the mover waits for, and the latest moves.

    \b
    Example:
      peloton host pool mover show
    """
    answer = settings.client.mover.Query(v0.mover.QueryRequest())
    if not settings.is_for_programs:
        echo(f"The mover is {'on' if answer.on else 'off'}")
    print_list(settings, answer, POOLS, answer.pools)
    if not settings.is_for_programs:
        for line in latest_moves(answer):
            echo(line)


def latest_moves(answer: v0.mover.QueryResponse) -> Iterator[str]:
    """Yield the latest moves, the newest first."""
    for one in answer.made[:MADE_SHOWN]:
        hosts = ", ".join(one.hostnames)
        yield f"{seconds_text(one.time)}  {hosts} from {one.source} to {one.destination}: {one.reason}"
    if len(answer.made) > MADE_SHOWN:
        yield f"and {len(answer.made) - MADE_SHOWN} more"
