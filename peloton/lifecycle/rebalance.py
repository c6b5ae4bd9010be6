"""Rebalancing: unavailable pods allowed per service, the time of the next moves, the outcome of moves, requests of
operators, and reasons in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from peloton.model.rebalance import (
    Goal,
    Move,
    MoveRecord,
    MoveState,
    PodAfter,
    Rebalance,
    RebalanceAct,
    RebalancePlan,
    RebalanceProgress,
    RebalanceState,
)

AWAY_SHARE = 10
"""Divisor of a service without an SLA: a tenth of its instances may be unavailable at a time."""
MOVES_MAX = 1_000
"""Maximum moves of one plan."""
ROUND_MOVES_MAX = 100
"""Maximum moves of one round; the next plan follows when all have ended."""
REST_S = 30.0
"""Seconds from the end of the last move to the next plan, in which waiting pods take the freed resources."""
LATE_S = 600.0
"""Seconds after which a pod that does not run again blocks no other moves."""
PER_HOUR_DEFAULT, PER_HOUR_MAX = 60, 10_000
NAMED_MAX = 20
"""Maximum jobs that a progress names."""
HOUR_S = 3_600
NS_PER_S = 1_000_000_000
TO_RESUME = "an operator to resume it"
TO_GAIN = "something to gain"
TO_TAKE_CAPACITY = "waiting pods to be placed on the freed resources"


def grants_left(maximum: int, instance_count: int, missing_count: int) -> int:
    """Return how many more instances may be taken down. ``maximum``: unavailable instances allowed by the SLA, 0 = no
    SLA."""
    return max((maximum or max(1, instance_count // AWAY_SHARE)) - missing_count, 0)


# -- rounds ----------------------------------------------------------------------------------------------------------


def next_round(
    state: RebalanceState, per_hour: int, moving_count: int, hour_count: int, last_ended_ns: int, now_ns: int
) -> tuple[int, str]:
    """Return the number of moves that may start now, and if none, the condition they wait for. All moves of a round end
    before the next plan, which would otherwise move further pods for the same reason."""
    if state is RebalanceState.PAUSED:
        return 0, TO_RESUME
    if moving_count:
        return 0, "1 pod to run again" if moving_count == 1 else f"{moving_count} pods to run again"
    if state is not RebalanceState.RUNNING:
        return 0, ""
    if hour_count >= per_hour:
        return 0, f"the hour to pass, in which {hour_count} of {per_hour} moves were made"
    if now_ns - last_ended_ns < REST_S * NS_PER_S:
        return 0, TO_TAKE_CAPACITY
    return min(per_hour - hour_count, ROUND_MOVES_MAX), ""


def after_round(
    rebalance: Rebalance, moving_count: int, hour_count: int, waiting_for: str, plan: RebalancePlan | None
) -> RebalanceProgress:
    """Return the progress after a round. ``plan``: the plan of this round, if any; otherwise the previous one remains.
    STOPPING becomes STOPPED when no move is under way."""
    state, before = rebalance.state, rebalance.progress
    if state is RebalanceState.STOPPING and not moving_count:
        state = RebalanceState.STOPPED
    found = replace(
        before,
        state=state,
        move_count=rebalance.move_count,
        moving_count=moving_count,
        hour_count=hour_count,
        waiting_for=waiting_for,
    )
    if plan is not None:
        staying = tuple((str(why), count) for why, count in plan.staying)
        found = replace(found, stuck=tuple(plan.stuck[:NAMED_MAX]), staying=staying)
        if not moving_count:
            found = replace(found, waiting_for=TO_GAIN)
    return found


def move_state(move: MoveRecord, pod: PodAfter | None, now_ns: int) -> MoveState:
    """Return the new state of a move that was under way."""
    if pod is None or not pod.is_wanted:
        return MoveState.ENDED
    if pod.run_id > move.pod_id.run_id and pod.is_running:
        return MoveState.MOVED if pod.host == move.target else MoveState.ELSEWHERE
    return MoveState.LATE if now_ns - move.begun_ns > LATE_S * NS_PER_S else MoveState.MOVING


def affordable(moves: Sequence[Move], granted_count: int, budget: int) -> Sequence[Move]:
    """Return the moves of a service that its SLA and the hour's budget allow."""
    return moves[: max(min(granted_count, budget), 0)]


# -- requests of operators -------------------------------------------------------------------------------------------


def after_act(state: RebalanceState, act: RebalanceAct) -> RebalanceState:
    """Return the state after the request, which may be the current one."""
    match act:
        case RebalanceAct.PAUSE:
            return RebalanceState.PAUSED
        case RebalanceAct.RESUME:
            return RebalanceState.RUNNING
        case RebalanceAct.STOP:
            return state if state is RebalanceState.STOPPED else RebalanceState.STOPPING


def act_refusal(act: RebalanceAct, cluster: str, state: RebalanceState) -> str:
    """Return why the request is refused now; empty if it is not."""
    if act is RebalanceAct.STOP or state in (RebalanceState.RUNNING, RebalanceState.PAUSED):
        return ""
    return f"the rebalancing of cluster {cluster} is {state}: start it"


def goals_refusal(goals: Collection[Goal]) -> str:
    """Return why these goals exclude each other; empty if they do not."""
    if Goal.SPREAD in goals and Goal.EMPTY in goals:
        return "SPREAD and EMPTY undo each other: ask for one of them"
    return ""


# -- texts -----------------------------------------------------------------------------------------------------------


def details(cluster: str, progress: RebalanceProgress) -> str:
    """Describe the progress and its blockers, as Markdown."""
    lines = [
        f"The rebalancing of cluster **{cluster}** is **{progress.state}**.",
        "",
        f"{progress.move_count} pods were asked to move since it was started, {progress.hour_count} of them within the "
        f"last hour; {progress.moving_count} are on their way.",
    ]
    if progress.waiting_for:
        lines += ["", f"It waits for {progress.waiting_for}."]
    if progress.stuck:
        jobs = ", ".join(progress.stuck)
        lines += ["", f"Pods that fit on no host, and for which moves cannot free enough resources: of job {jobs}."]
    if progress.staying:
        staying = ", ".join(f"{count} {why}" for why, count in progress.staying)
        lines += ["", f"Pods that stay: {staying}."]
    return "\n".join(lines)


def move_text(move: Move) -> str:
    """Describe why a pod moves."""
    why = move.why
    of_several = f", by {why.move_count} moves" if why.move_count > 1 else ""
    match why.goal:
        case Goal.FREE:
            where = f"{move.source}, which is reserved for it," if why.is_reserved else move.source
            return f"frees resources on {where} for a pod of job {why.waiting_job} that fits on no host{of_several}"
        case Goal.SPREAD if (even := why.spread_excess) is not None:
            return (
                f"{even.label}={even.source} has {_pods(even.source_count)} of the job, {even.label}={even.target} has "
                f"{even.target_count}: max skew {even.max_skew}"
            )
        case Goal.SPREAD:
            loads = f"{_percent(why.source_load)} in use, the mean is {_percent(why.mean_load)}"
            return f"{move.source} has {loads}, and {move.target} {_percent(why.target_load)} with the pod"
        case Goal.EMPTY:
            return f"empties {move.source}, of which {_percent(why.source_load)} is in use{of_several}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _percent(load: int) -> str:
    return f"{load / 10:g} %"
