"""Hosts in maintenance: as a table, and as a live view of their drains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cli.output import Row, Table, as_json_line, print_table, silent_clusters_text, terminal_table
from cli.terminal import echo
from cli.watching import Retrier, WatchPace, display_on, redrawn
from cli.wire import v0

if TYPE_CHECKING:
    from rich.console import Console, Group

    from peloton.client import Client

WAITING_NAMED_MAX = 10
TABLE: Table[Row] = Table(
    "Hostname", "State", "Goal", "Pods", "Leaving", "Waiting for",
    whole=["Hostname", "State", "Goal"],
    spare=["Goal", "Leaving", "Pods"],
)  # fmt: skip


def state_name(number: int) -> str:
    return v0.host.HostState.Name(number).removeprefix("HOST_STATE_")  # type: ignore[arg-type]


def summary(answer: v0.maintenance.QueryResponse) -> str:
    away = sum(state_name(host.state) != "UP" for host in answer.hosts)
    return f"{away} of {answer.host_count} hosts unavailable, limit {answer.away_max}"


def start_lines(answer: v0.maintenance.StartResponse) -> Iterator[str]:
    """Yield the number of hosts whose maintenance begins, and what each of the others waits for."""
    waiting = [host for host in answer.hosts if (state_name(host.state), state_name(host.goal_state)) == ("UP", "DOWN")]
    if not waiting:
        return
    begun = len(answer.hosts) - len(waiting)
    yield f"Hosts that begin: {begun}; that wait: {len(waiting)}"
    yield from (f"{host.hostname} waits for {host.waiting_for}" for host in waiting[:WAITING_NAMED_MAX])
    if len(waiting) > WAITING_NAMED_MAX:
        yield f"and {len(waiting) - WAITING_NAMED_MAX} more"
    yield "To allow N unavailable hosts, repeat it with --at-most N. Pods of services leave as their SLA allows."


def row(host: v0.maintenance.HostMaintenance) -> tuple[str, ...]:
    state, goal = state_name(host.state), state_name(host.goal_state)
    pods = (str(host.pod_count), str(host.leaving_count)) if state == "DRAINING" else ("", "")
    aim = f"host pool {host.to_pool}" if host.to_pool and goal == "DOWN" else goal
    return (host.hostname, state, aim, *pods, waiting_text(host, state, goal))


def waiting_text(host: v0.maintenance.HostMaintenance, state: str, goal: str) -> str:
    if state == "DOWN" and goal == "DOWN":
        return "completion"
    forced = "forced; " if host.forced and state == "DRAINING" else ""
    return forced + host.waiting_for


def blocker_lines(host: v0.maintenance.HostMaintenance) -> list[str]:
    return [f"{host.hostname}: job {b.job_name or b.job_id} keeps {b.pod_count}: {b.reason}" for b in host.blockers]


def lines_of(host: v0.maintenance.HostMaintenance) -> list[str]:
    name, state, goal, pods, leaving, waiting = row(host)
    words = [f"{name} {state}"]
    words += [f"on its way {goal}"] if goal == "UP" else [f"on its way to {goal}"] if host.to_pool else []
    words += [f"{pods} pods, {leaving} leaving"] if pods else []
    words += [f"waits for {waiting}"] if waiting else []
    return ["  ".join(words), *blocker_lines(host)]


def not_in_maintenance(hosts: Sequence[str], silent: Sequence[str]) -> str:
    """Return the text. ``hosts``: the requested ones; none: all. ``silent``: clusters that do not answer."""
    where = " in the clusters that answer" if silent else ""
    return f"Not in maintenance{where}: {', '.join(hosts)}" if hosts else f"No hosts in maintenance{where}"


def print_drains(answer: v0.maintenance.QueryResponse, hosts: Sequence[str] = (), is_wide: bool = False) -> None:
    """Print hosts in maintenance. ``hosts``: the requested ones; none: all."""
    found = {host.hostname for host in answer.hosts}
    others = [name for name in hosts if name not in found]
    if others or not found:
        echo(not_in_maintenance(others, answer.silent_clusters))
    if answer.silent_clusters:
        echo(silent_clusters_text(answer.silent_clusters), err=True)
    if not found:
        return
    print_table(TABLE, [row(host) for host in answer.hosts], is_wide)
    for host in answer.hosts:
        for line in blocker_lines(host):
            echo(line)
    echo(summary(answer))


def watch_drains(
    client: Client,
    hosts: Sequence[str],
    console: Console,
    pace: WatchPace | None = None,
    is_json: bool = False,
    begun: Iterable[v0.maintenance.HostMaintenance] = (),
) -> None:
    """Show hosts in maintenance (all, or the named ones) until each of them is down or out of it.

    ``begun``: hosts whose maintenance began with this command; it may have ended since.

    Raises Failed when the API stays unavailable for longer than the pace allows.
    """
    pace = pace or WatchPace()
    again = " ".join(["peloton host maintenance status", *hosts, "--watch"])
    retrier = Retrier(client, pace, "maintenance of hosts", again)
    request = v0.maintenance.QueryRequest(hostnames=hosts)
    seen = {host.hostname: host.cluster for host in begun}  # hosts in maintenance -> their clusters
    silent: list[str] = []

    def draw(answer: v0.maintenance.QueryResponse) -> Group:
        return picture(answer, console.width)

    with display_on(
        console,
        is_json,
        json_of=as_json_line,
        lines_of=lambda answer: {host.hostname: lines_of(host) for host in answer.hosts},
        live=lambda: redrawn(console, draw),
    ) as display:
        while True:
            answer = retrier.ask(display.say, lambda: client.maintenance.Query(request))
            if list(answer.silent_clusters) != silent:
                silent = list(answer.silent_clusters)
                display.say(silent_clusters_text(silent) if silent else "All clusters answer again")
            if answer.hosts:
                display.show(answer)
            elif not seen:
                display.say(not_in_maintenance(hosts, silent))
            left = {host.hostname: host.cluster for host in answer.hosts}
            unknown = {name: cluster for name, cluster in seen.items() if name not in left and cluster in silent}
            for name in sorted(seen.keys() - left.keys() - unknown.keys()):
                display.say(f"{name} is UP")
            seen = left | unknown
            if not unknown and all(is_down(host) for host in answer.hosts):
                break
            pace.sleep(pace.interval_s)


def is_down(host: v0.maintenance.HostMaintenance) -> bool:
    """Return whether the host is down until its maintenance is completed."""
    return state_name(host.state) == state_name(host.goal_state) == "DOWN"


def picture(answer: v0.maintenance.QueryResponse, width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    table = terminal_table(TABLE, TABLE.texts(map(row, answer.hosts)), width)
    lines = [Text(line, style="yellow") for host in answer.hosts for line in blocker_lines(host)]
    return Group(table, *lines, Text(summary(answer), style="dim"))
