"""Maintenance of hosts: the next step, the order of hosts, the drain of pods, and requests of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.host import HostState
from peloton.model.ids import JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Blocker, DrainProgress, HostedPod, HostMaintenance, MaintenanceAct
from peloton.model.times import NS_PER_S

BLOCKERS_MAX = 20
"""Maximum jobs named by the progress of a host."""
NOT_DOWN = "Host is not DOWN"
"""Error text compared by clients of v0."""


class Step(StrEnum):
    CORDON = "CORDON"  # wait for its turn; from then on the host takes no pods
    DRAIN = "DRAIN"
    TAKE_DOWN = "TAKE_DOWN"
    RELABEL = "RELABEL"  # the host is in its new host pool and has to return
    STAY = "STAY"  # until an operator completes it
    BRING_UP = "BRING_UP"
    NONE = "NONE"


UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN

NEXT_STEP: dict[tuple[HostState, HostState], Step] = {
    (DOWN, UP): Step.CORDON,
    (DOWN, DRAINING): Step.DRAIN,
    (DOWN, DRAINED): Step.TAKE_DOWN,
    (DOWN, DOWN): Step.STAY,
    (UP, DOWN): Step.BRING_UP,
    (UP, DRAINED): Step.BRING_UP,
    (UP, DRAINING): Step.BRING_UP,
    (UP, UP): Step.NONE,
}
"""(goal, state) -> next step."""


def next_step(host: HostMaintenance) -> Step:
    """Return the next step. A host that moves to another host pool takes the same steps, but never goes down."""
    step = NEXT_STEP[host.goal, host.state]
    return Step.RELABEL if host.is_move and step is Step.TAKE_DOWN else step


# -- order of hosts --------------------------------------------------------------------------------------------------


def unavailable_max(host_count: int, share: float) -> int:
    """Return the maximum of unavailable hosts: a share of all, at least one."""
    return max(1, int(host_count * share))


def turns(hosts: Iterable[HostMaintenance], default_max: int) -> list[HostMaintenance]:
    """Return the hosts that start now, in the order of the requests; a host whose bound is reached blocks all later
    ones."""
    ordered = sorted(hosts, key=lambda host: host.seq)
    unavailable_count = sum(host.is_unavailable for host in ordered)
    chosen: list[HostMaintenance] = []
    for host in ordered:
        if not host.waits_for_turn:
            continue
        if unavailable_count >= (host.at_most or default_max):
            break
        chosen.append(host)
        unavailable_count += 1
    return chosen


def turn_text(host: HostMaintenance, hosts: Iterable[HostMaintenance], default_max: int) -> str:
    """Describe why a host waits for its turn."""
    others = list(hosts)
    ahead = sum(other.waits_for_turn and other.seq < host.seq for other in others)
    unavailable_count = sum(other.is_unavailable for other in others)
    bound = f"{unavailable_count} of at most {host.at_most or default_max} hosts are draining or down"
    return f"its turn: {bound}" + (f", {ahead} wait before it" if ahead else "")


# -- drain of pods ---------------------------------------------------------------------------------------------------


HAS_VOLUME = "its volume is on the host: stop it, or force the drain, and it starts again here"


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """Actions for pods of a host that are not leaving yet. Jobs by id, instances sorted."""

    evict: tuple[JobId, ...] = ()  # batch jobs: pods are requeued, gangs as a whole
    disrupt: dict[JobId, tuple[int, ...]] = field(default_factory=dict)  # services: within the SLA
    keep: dict[JobId, int] = field(default_factory=dict)  # pods with volumes here: until an operator stops them
    pod_count: int = 0
    leaving_count: int = 0


def who_leaves(host: HostMaintenance, hosted_pods: Sequence[HostedPod]) -> list[HostedPod]:
    """Return the pods that have to leave. Daemons run in all host pools: their pods stay on a host that moves."""
    return [pod for pod in hosted_pods if not (host.is_move and pod.job_type is JobType.DAEMON)]


def plan_drain(hosted_pods: Sequence[HostedPod], is_forced: bool = False) -> DrainPlan:
    """Return the actions of a drain. A pod with a volume on the host stays until an operator stops it or forces the
    drain. Pods of daemons leave last, because the other pods may use them."""
    keep: Counter[JobId] = Counter()
    batch: set[JobId] = set()
    services: dict[JobId, list[int]] = {}
    are_others_left = any(pod.job_type is not JobType.DAEMON for pod in hosted_pods)
    for pod in hosted_pods:
        if pod.is_leaving or (are_others_left and pod.job_type is JobType.DAEMON):
            continue
        if pod.has_volume and not is_forced:
            keep[pod.job_id] += 1
        elif pod.job_type.runs_to_end:
            batch.add(pod.job_id)
        else:
            services.setdefault(pod.job_id, []).append(pod.instance_id)
    return DrainPlan(
        evict=tuple(sorted(batch)),
        disrupt={job: tuple(sorted(instances)) for job, instances in sorted(services.items())},
        keep=dict(sorted(keep.items())),
        pod_count=len(hosted_pods),
        leaving_count=sum(pod.is_leaving for pod in hosted_pods),
    )


def drain_progress(plan: DrainPlan, blockers: Sequence[Blocker]) -> DrainProgress:
    """Return the progress after the plan was executed; ``blockers`` are pods that the SLA does not let leave yet."""
    refused, kept = sum(blocker.pod_count for blocker in blockers), sum(plan.keep.values())
    leaving = plan.pod_count - refused - kept
    waits = [] if plan.pod_count else ["launches under way to end"]
    if leaving:
        waits.append(f"the end of {_pods(leaving)}")
    if blockers:
        jobs = "1 job" if len(blockers) == 1 else f"{len(blockers)} jobs"
        waits.append(f"the SLA of {jobs} to let {_pods(refused)} go")
    if kept:
        waits.append(f"an operator to stop {_pods(kept)} with {'its volume' if kept == 1 else 'volumes'} on the host")
    named = [*blockers, *(Blocker(job_id, count, HAS_VOLUME) for job_id, count in plan.keep.items())]
    return DrainProgress(plan.pod_count, leaving, tuple(named[:BLOCKERS_MAX]), " and ".join(waits))


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _purpose(host: HostMaintenance) -> str:
    if host.goal is UP:
        return "it takes pods" if host.state is UP else "it comes back up"
    if host.is_move:
        return f"it {'waits for its turn to move' if host.state is UP else 'moves'} to host pool {host.to_pool}"
    if host.state is DOWN:
        return "work on it, then complete its maintenance"
    return "it waits for its turn to go down" if host.state is UP else "it is going down for maintenance"


def details(host: HostMaintenance, refusal: str = "") -> str:
    """Describe the state of the host and the condition it waits for. ``refusal``: why a cancellation was refused."""
    progress = host.progress
    lines = [f"Host {host.hostname} is **{host.state}**: {_purpose(host)}."]
    if host.state is DRAINING and progress.pod_count:
        lines += ["", f"{_pods(progress.pod_count)} on the host, {progress.leaving_count} terminating."]
    if progress.waiting_for:
        lines += ["", f"It waits for {progress.waiting_for}."]
    if progress.blockers:
        lines += ["", *(f"- job {b.job_id}: {_pods(b.pod_count)} may not leave: {b.reason}" for b in progress.blockers)]
    if refusal:
        lines += ["", f"The cancellation was refused: {refusal}"]
    return "\n".join(lines)


# -- requests of operators -------------------------------------------------------------------------------------------


def refusal_of(act: MaintenanceAct, host: HostMaintenance, now_ns: int) -> str:
    """Return why a host in maintenance refuses the request now; empty if it does not."""
    match act:
        case MaintenanceAct.COMPLETE:
            return "" if host.state is DOWN else NOT_DOWN
        case MaintenanceAct.CANCEL:
            return f"host {host.hostname} is DOWN: complete its maintenance instead" if host.state is DOWN else ""
        case MaintenanceAct.FORCE:
            return _refuse_force(host, now_ns)


def _refuse_force(host: HostMaintenance, now_ns: int) -> str:
    if host.goal is UP:
        return f"host {host.hostname} is {host.state} on its way back up: nothing is left to force"
    if host.state is UP:
        return f"host {host.hostname} waits for its turn: its drain has not begun"
    if host.state is not DRAINING:
        return f"host {host.hostname} is {host.state}: nothing is left to force"
    if now_ns < host.deadline_ns:
        left_s = (host.deadline_ns - now_ns + NS_PER_S - 1) // NS_PER_S
        return f"host {host.hostname} may be forced {host.deadline_s} s after its drain began: {left_s} s are left"
    return ""
