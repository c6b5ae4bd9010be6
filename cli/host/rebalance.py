"""``peloton host rebalance``: the plan of moves of pods with the reasons, the moves themselves, and their progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from cli.command import VerbsAndCommand, verb_commands
from cli.output import Row, Table, print_for_programs, print_list, silent_clusters_text
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.rebalance import Goal

MOVES_MAX = 1_000
PER_HOUR_MAX = 10_000
STUCK_NAMED_MAX = 10
GOAL_PREFIX = "GOAL_"
TABLE: Table[v0.rebalance.Move] = Table(
    ("Job", lambda move: move.job_id),
    ("Instance", lambda move: move.instance_id),
    ("From", lambda move: move.source),
    ("To", lambda move: move.target),
    ("Goal", lambda move: v0.rebalance.Goal.Name(move.goal).removeprefix(GOAL_PREFIX)),
    ("Cluster", lambda move: move.cluster),
    ("Why", lambda move: move.reason),
    whole=["Job", "Instance", "From", "To"],
    spare=["Cluster", "Goal"],
    nothing="No moves: none would improve the placement, or the pods that would move have to stay",
    name=lambda move: f"{move.job_id}-{move.instance_id}",
)
PAST: Table[Row] = Table(
    "Job", "Instance", "From", "To", "State", "Begun", "Cluster", "Why",
    whole=["Job", "Instance", "From", "To", "State"],
    spare=["Cluster", "Begun"],
    nothing="No moves yet",
)  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])


def goals_option(function: F) -> F:
    option = click.option(
        "--goal",
        "goals",
        type=click.Choice([goal.lower() for goal in Goal]),
        multiple=True,
        help="free: free resources for a pod that fits on no host; the default. spread: fill hosts far emptier "
        "than the mean. empty: empty hosts with few pods. May be repeated; spread and empty exclude each other.",
    )
    return option(function)


CLUSTER = click.option("--cluster", default="", help="Only this cluster; all if absent.")


@click.group(cls=VerbsAndCommand, invoke_without_command=True)
@click.option("--plan", "shows_plan", is_flag=True, help="Show which pods would be moved, without moving them.")
@goals_option
@click.option("--moves", "moves_max", type=click.IntRange(1, MOVES_MAX), help="The limit of moves in each cluster.")
@pass_settings
@click.pass_context
def rebalance(
    context: click.Context, settings: Settings, shows_plan: bool, goals: Sequence[str], moves_max: int | None
) -> None:
    """Move pods of services to other hosts of their cluster, or show which would, and why.

    A pod stays where its SLA or its volume keeps it, and pods of batch jobs stay. No pod moves against its constraint,
    or against that of another pod.

    \b
    Examples:
      peloton host rebalance --plan
      peloton host rebalance --plan --goal free --goal empty --moves 20
    """
    if context.invoked_subcommand is None:
        if not shows_plan:
            raise click.UsageError("missing command: give --plan, or one of start, pause, resume, stop and status")
        show_plan(settings, goals, moves_max)
    elif shows_plan or goals or moves_max:
        raise click.UsageError(
            f"--plan, --goal and --moves cannot precede {context.invoked_subcommand}, which has options of its own"
        )


def show_plan(settings: Settings, goals: Sequence[str], moves_max: int | None) -> None:
    answer = settings.client.rebalances.PlanRebalance(
        v0.rebalance.PlanRebalanceRequest(goals=numbers(goals), moves_max=moves_max or 0)
    )
    print_list(settings, answer, TABLE, answer.moves)
    if not settings.is_for_programs:
        for line in notes(answer.stuck_job_ids, answer.staying):
            echo(line)
    if answer.silent_clusters:
        echo(silent_clusters_text(answer.silent_clusters), err=True)


def numbers(goals: Sequence[str]) -> list[v0.rebalance.Goal.ValueType]:
    return [v0.rebalance.Goal.Value(f"{GOAL_PREFIX}{goal.upper()}") for goal in goals]


def notes(stuck: Sequence[str], staying: Iterable[v0.rebalance.Staying]) -> Iterator[str]:
    """Yield notes on pods that still fit on no host, and on pods that stay, with the reasons."""
    if stuck:
        more = f" and {len(stuck) - STUCK_NAMED_MAX} more" if len(stuck) > STUCK_NAMED_MAX else ""
        jobs = f"{', '.join(stuck[:STUCK_NAMED_MAX])}{more}"
        yield f"Pods that fit on no host, and for which moves cannot free enough resources: of job {jobs}"
    counts: Counter[str] = Counter()
    for one in staying:
        counts[one.reason] += one.pod_count
    if counts:
        yield f"Pods that stay: {', '.join(f'{count} {why}' for why, count in sorted(counts.items()))}"


@rebalance.command()
@goals_option
@click.option(
    "--per-hour",
    type=click.IntRange(1, PER_HOUR_MAX),
    help="The limit of moves per hour in each cluster; 60 if absent.",
)
@CLUSTER
@pass_settings
def start(settings: Settings, goals: Sequence[str], per_hour: int | None, cluster: str) -> None:
    """Move pods as --plan shows, until `stop`. A rebalancing that is under way continues with these goals and this
    budget.

    \b
    Examples:
      peloton host rebalance start
      peloton host rebalance start --goal free --goal empty --per-hour 20 --cluster east
    """
    request = v0.rebalance.StartRebalanceRequest(cluster=cluster, goals=numbers(goals), moves_per_hour=per_hour or 0)
    say(settings, settings.client.rebalances.StartRebalance(request))


STEERING = {
    "pause": "Begin no further moves until an operator resumes it.",
    "resume": "Continue what is paused.",
    "stop": "Begin no further moves. Pods that are moving still reach their new hosts.",
}


@verb_commands(STEERING, "host rebalance {verb}", rebalance)
@CLUSTER
@pass_settings
def steer(settings: Settings, verb: str, cluster: str) -> None:
    name = f"{verb.capitalize()}Rebalance"
    request = getattr(v0.rebalance, f"{name}Request")(cluster=cluster)
    say(settings, getattr(settings.client.rebalances, name)(request))


@rebalance.command()
@CLUSTER
@click.option("--moves", "moves_max", type=click.IntRange(1, MOVES_MAX), help="Latest moves to show; 20 if absent.")
@pass_settings
def status(settings: Settings, cluster: str, moves_max: int | None) -> None:
    """Show the progress of rebalancing, what blocks it, and the latest moves with their reasons.

    \b
    Example:
      peloton host rebalance status
    """
    request = v0.rebalance.QueryRebalanceRequest(cluster=cluster, moves_limit=moves_max or 0)
    answer = settings.client.rebalances.QueryRebalance(request)
    if not settings.is_for_programs:
        for one in answer.rebalances:
            for line in state_lines(one):
                echo(line)
    rows = [
        (
            move.job_id,
            move.instance_id,
            move.source,
            move.target,
            move.state,
            move.begun_time[:19],
            one.cluster,
            move.reason,
        )
        for one in answer.rebalances
        for move in one.moves
    ]
    if answer.rebalances:
        print_list(settings, answer, PAST, rows, (one.cluster for one in answer.rebalances))
    elif not print_for_programs(settings, answer):
        which = f"cluster {cluster} has never" if cluster else "no cluster has ever"
        echo(f"Rebalancing is off: {which} been rebalanced")


def state_lines(one: v0.rebalance.Rebalance) -> Iterator[str]:
    goals = ", ".join(v0.rebalance.Goal.Name(goal).removeprefix(GOAL_PREFIX).lower() for goal in one.goals)
    yield (
        f"Cluster {one.cluster} is {one.state}: {goals}; {one.move_count} moves, {one.moving_count} of them under way; "
        f"{one.hour_count} of {one.moves_per_hour} within the hour"
    )
    if one.waiting_for:
        yield f"It waits for {one.waiting_for}"
    yield from notes(one.stuck_job_ids, one.staying)


def say(settings: Settings, answer: Any) -> None:
    if not print_for_programs(settings, answer, (one.cluster for one in answer.rebalances)):
        for one in answer.rebalances:
            echo(f"The rebalancing of cluster {one.cluster} is {one.state}")
