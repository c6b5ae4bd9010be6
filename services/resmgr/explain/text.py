"""Explanations and plans as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.lifecycle.avoidance import QUICK_S
from peloton.lifecycle.reason_text import (
    NO_NAMES,
    Names,
    amount_text,
    backfill_text,
    format_count,
    hosts_text,
    infeasible_text,
    job_text,
    placement_text,
    queue_text,
)
from peloton.lifecycle.retry import THROTTLED_MESSAGE, fails_quickly
from peloton.lifecycle.stall import describe_failed_runs, stall_text
from peloton.lifecycle.volumes import waiting_text
from peloton.model.advice import Mark, Marked
from peloton.model.aurora_update import aurora_update
from peloton.model.by_hand import name_person
from peloton.model.daemon import DaemonReach
from peloton.model.ids import Hostname
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import TERMINAL, PodRecord, PodState, Strategy
from peloton.model.reason import Rule
from peloton.model.update import Disruption, UpdateRecord, UpdateState
from peloton.model.update_text import update_wait_text
from peloton.model.volume import VolumeRecord
from peloton.scheduling.explain import Holder, Obstacle, Unqueued, Wait
from services.resmgr.settings import LoopSettings

LINES_MAX = 50
"""Limit of the lines of one section."""
WAIT_TEXT_MAX = 400
"""Limit of the characters of a host's reason for a container that it cannot start."""
MARKED_MAX = 5
"""Limit of the marked hosts in one answer."""
_UPDATE_STATES = {
    UpdateState.INITIALIZED: "has not begun",
    UpdateState.ROLLING_FORWARD: "is rolling out",
    UpdateState.ROLLING_BACKWARD: "is being rolled back",
    UpdateState.PAUSED: "is paused",
}
"""The verbs of the states of an active update."""
_NOT_STARTED = (PodState.INITIALIZED, PodState.PENDING, PodState.READY)


def headline(job: JobRecord, pool_path: str, counts: Mapping[PodState, int]) -> str:
    """Return the name and pool of a job (no path: its pool is gone), and its pods by state."""
    public = Counter[PodState]()
    for state, count in counts.items():
        public[state.public] += count
    shown = ", ".join(f"{public[state]} {state}" for state in PodState if public[state]) or "no instances yet"
    verb = "is" if job.is_active else "ended"
    where = f"pool {pool_path}" if pool_path else "a pool that is gone"
    name = job.name.strip() or job.job_id
    created = f", created by {job.creator}," if job.creator else ""
    return f"Job {name}{created} {verb} {job.state} in {where}: {shown}"


def story(
    job: JobRecord,
    counts: Mapping[PodState, int],
    waiting: Sequence[tuple[Wait, tuple[Holder, ...]]],
    others: Sequence[Unqueued],
    failures: Sequence[PodRecord],
    starting: tuple[Sequence[PodRecord], int] = ((), 0),
    names: Names = NO_NAMES,
) -> Iterator[str]:
    """Yield the lines below the headline. Failures of an active job are lines of their own, see ``failure_line``."""
    if not job.is_active:
        yield from (_describe_ended(pod) for pod in failures)
        return
    if job.goal is JobState.KILLED:
        yield "it is being stopped"
    for wait, holders in waiting:
        yield from wait_lines(wait, holders, names)
    yield from map(describe_unqueued, others)
    pods, count = starting
    yield from map(start_line, pods)
    if count > len(pods):
        yield f"{count - len(pods)} more instances wait on their hosts for their containers"
    if not waiting and not others and not failures and not pods and job.goal is not JobState.KILLED:
        started = sum(n for state, n in counts.items() if state not in TERMINAL and state not in _NOT_STARTED)
        yield (
            f"nothing waits: {_instances(started)} on hosts" if started else "no instance waits, and none is on a host"
        )


def slack_line(waiting: Sequence[tuple[Wait, tuple[Holder, ...]]], slack_cpu: int, held_cpu: int) -> Iterator[str]:
    """Yield, when gangs wait for slack, the slack of hosts in thousandths of a cpu, and the part of it that is
    taken."""
    if any(wait.cause.rule is Rule.SLACK_ENTITLEMENT for wait, _ in waiting):
        slack, held = amount_text("cpu", slack_cpu), amount_text("cpu", held_cpu)
        yield (
            f"revocable instances run on slack, what others hold and do not use: the hosts have cpu {slack} of it, "
            f"admitted revocable instances hold {held}"
        )


def wait_lines(wait: Wait, holders: Sequence[Holder], names: Names = NO_NAMES) -> Iterator[str]:
    yield f"{_describe_gangs(wait)}: {wait_text(wait, names)}"
    if holders:
        yield f"  held by {'; '.join(_holder_text(holder, wait.cause.kind, names) for holder in holders)}"
    if backfilled := backfill_text(wait.reason):
        yield f"  {backfilled}"


def _holder_text(holder: Holder, kind: str, names: Names) -> str:
    name = job_text(holder.job_id, names) if holder.job_id else f"pool {holder.pool_path}"
    above = f" ({amount_text(kind, holder.borrowed)} above its reservation)" if holder.borrowed else ""
    return f"{name}: {kind} {amount_text(kind, holder.amount)}{above}"


def wait_text(wait: Wait, names: Names = NO_NAMES) -> str:
    reason = queue_text(wait.reason, names)
    if not wait.blocking:
        return reason
    blocking = queue_text(wait.blocking, names)
    if wait.reason.job_id == wait.run.job_id:
        return f"waits behind other instances of the job; for them: {blocking}"
    return f"{reason}; that one: {blocking}"


def _describe_gangs(wait: Wait) -> str:
    size, end = wait.run.gang_size, wait.start + wait.gang_count * wait.run.gang_size - 1
    instances = _span(wait.start, end - wait.start + 1)
    gangs = f" ({format_count(wait.gang_count, 'gang')} of {size})" if size > 1 else ""
    ahead = f"{format_count(wait.gangs_ahead, 'gang')} ahead"
    queue = wait.run.queue.name.lower().replace("_", "-")
    return f"{instances}{gangs} in the {queue} queue of {wait.pool_path}, {ahead}"


def describe_unqueued(one: Unqueued) -> str:
    instances, size = _instances(one.pod_count), one.gang_size
    whole = f"gang of {size} waits for hosts for all of it; " if size else ""
    match one.obstacle:
        case Obstacle.GANG_INCOMPLETE:
            return f"{instances} of the gang of {size} not queued before the others have ended: it starts whole"
        case Obstacle.NO_HOST:
            return f"{whole}admitted, but {placement_text(one.placement)}"
        case Obstacle.ITS_HOST:
            why = f": {placement_text(one.placement)}" if one.placement else ""
            return f"{instances} not on the host yet{why}"
        case Obstacle.NEXT_PLACEMENT:
            return f"{whole}{instances} admitted; a host is being looked for"
        case Obstacle.NEXT_CYCLE:
            return f"{instances} about to be queued"
        case Obstacle.MAXIMUM_RUNNING:
            return (
                f"{instances} not queued yet: at most {one.bound} may run at a time, {one.used} are queued or running"
            )
        case Obstacle.FITS_NO_HOST:
            named = f"{instances}, the first {one.first}," if one.has_gaps else _span(one.first, one.pod_count)
            verb, waits = ("fits", "it waits") if one.pod_count == 1 else ("fit", "they wait")
            why = infeasible_text(one.infeasible)
            return f"{named} {verb} no host, even an empty one: {why}; {waits} for one to join"


def _describe_ended(pod: PodRecord) -> str:
    words = " ".join(f"{pod.message} {pod.reason}".split())
    return f"instance {pod.instance_id}: {pod.state}{f', {words}' if words else ''}"


def _span(start: int, count: int) -> str:
    return f"instance {start}" if count == 1 else f"instances {start}-{start + count - 1}"


def _instances(count: int) -> str:
    return format_count(count, "instance")


def reach_line(reach: DaemonReach) -> str:
    """Return a line on the hosts of a cluster on which a daemon runs."""
    total = reach.matching_count + sum(hosts.host_count for hosts in reach.refusing)
    where = f"cluster {reach.cluster}: " if reach.cluster else ""
    others = f"; of the others {'; '.join(map(hosts_text, reach.refusing))}" if reach.refusing else ""
    verb = "matches" if reach.matching_count == 1 else "match"
    return f"{where}{reach.matching_count} of {format_count(total, 'host')} {verb}{others}"


def pool_lines(answer: pb.PoolWhyResponse, heads: Sequence[Sequence[str]], rules: LoopSettings) -> Iterator[str]:
    """Yield the lines on a pool. ``heads``: the lines of each of ``answer.queues``."""
    pool = answer.pool
    yield f"Pool {pool.path}: {format_count(pool.queuedInstances, 'instance')} in queues"
    for each in pool.amounts:
        if each.limit or each.allocation or each.demand:
            yield (
                f"  {each.kind}: holds {_show(each.kind, each.allocation)} of its entitlement "
                f"{_show(each.kind, each.entitlement)}, {_show(each.kind, each.demand)} more wanted; "
                f"reservation {_show(each.kind, each.reservation)}, limit {_show(each.kind, each.limit)}"
            )
    for part in pool.onHosts:
        for each in part.amounts:
            if each.allocation or each.demand:
                yield (
                    f"    in {part.hostPools}, {each.kind}: holds {_show(each.kind, each.allocation)} of its "
                    f"entitlement {_show(each.kind, each.entitlement)}, {_show(each.kind, each.demand)} more wanted"
                )
    for queue, lines in zip(answer.queues, heads, strict=True):
        name = pb.Queue.Name(queue.queue).removeprefix("QUEUE_").lower().replace("_", "-")
        where = f" of {queue.poolPath}" if queue.poolPath != pool.path else ""
        waiting = f"{format_count(queue.gangCount, 'gang')} of {format_count(queue.instanceCount, 'instance')}"
        yield f"  {name} queue{where}: {waiting}, first {job_text(queue.head.jobId.value, answer.jobNames)}"
        yield from (f"    {line}" for line in lines)
    if not answer.queues:
        yield "  its queues are empty"
    yield from _loans("borrows", answer.borrowed, "left unused by", answer.lenders)
    yield from _describe_wanted_back(answer, rules)
    yield from _loans("lends", answer.lent, "held above their reservations by", answer.borrowers)


def _loans(verb: str, mine: Iterable[pb.Loan], words: str, theirs: Sequence[pb.Loan]) -> Iterator[str]:
    for loan in mine:
        others = ", ".join(
            f"{other.poolPath} ({_show(other.kind, other.amount)})" for other in theirs if other.kind == loan.kind
        )
        yield f"  {verb} {loan.kind} {_show(loan.kind, loan.amount)}, {words} {others}"


def _describe_wanted_back(answer: pb.PoolWhyResponse, rules: LoopSettings) -> Iterator[str]:
    """Yield the lenders that wait for their loans, and when they have them back."""
    how = f"it comes back as instances in {answer.pool.path} end, for preemption is off"
    if rules.preempts:
        rounds, within_s = rules.sustained_over_count, rules.sustained_over_count * rules.preemption_period_s
        how = f"instances in {answer.pool.path} may be evicted within {rounds} rounds of preemption ({within_s:g} s)"
    for lender in answer.lenders:
        if lender.wantedBack:
            wanted = _show(lender.kind, lender.wantedBack)
            yield f"  {lender.poolPath} wants {lender.kind} {wanted} of that back: {how}"


def plan_lines(answer: pb.PoolPlanResponse) -> Iterator[str]:
    yield f"Pool {answer.poolPath} would be {'created' if answer.isNew else 'changed'}."
    yield from _section(
        "Entitlements that would change:",
        "No entitlement would change.",
        [f"{e.poolPath} {e.kind}: {_show(e.kind, e.before)} -> {_show(e.kind, e.after)}" for e in answer.entitlements],
    )
    yield from _section(
        "Pools that would hold more than their entitlement:",
        "No pool would hold more than its entitlement.",
        [
            f"{e.poolPath} {e.kind}: holds {_show(e.kind, e.allocation)}, entitlement {_show(e.kind, e.entitlement)}"
            for e in answer.aboveEntitlement
        ],
    )
    yield from _section(
        "Gangs that would be admitted now:",
        "No waiting gang would be admitted now.",
        [
            f"{format_count(a.gangCount, 'gang')} of {a.gangSize} of {job_text(a.jobId.value, answer.jobNames)} "
            f"in {a.poolPath} ({a.gangCountBefore} without the change)"
            for a in answer.admitted
        ],
    )
    yield from _section(
        "Instances that would be evicted:",
        "No instance would be evicted.",
        list(eviction_lines(answer.evictions, answer.jobNames)),
    )


def eviction_lines(evictions: Iterable[pb.PlannedEviction], names: Names) -> Iterator[str]:
    for one in evictions:
        last = one.firstInstance + one.instanceCount - 1
        which = f"instances {one.firstInstance}-{last}" if one.instanceCount > 1 else f"instance {last}"
        when = "the next round" if one.rounds == 1 else f"{one.rounds} rounds"
        whose = f"{which} of {job_text(one.jobId.value, names)}"
        yield f"after {when} of preemption ({one.withinS:g} s), {whose}: {one.text}"


def volume_line(volume: VolumeRecord) -> str:
    """Return a line on a lost volume."""
    return f"instance {volume.instance_id}: {waiting_text(volume, rfc3339_seconds(volume.changed_ns))}"


def update_lines(update: UpdateRecord | None, owner: str, person: str = "") -> Iterator[str]:
    """Yield lines on the progress of the update of a service with this owner. ``person``: the user who paused it."""
    if update is None or not update.is_active:
        return
    failed = f", {format_count(len(update.failed), 'instance')} failed" if update.failed else ""
    failed += f", {describe_failed_runs(update)}" if update.failed_run_count else ""
    waits = f", waits for {wait}" if (wait := update_wait_text(update)) else ""
    done = f"{len(update.done)} of {update.total_count} done"
    state = name_person(_UPDATE_STATES[update.state], person)
    yield f"the {update.type.lower()} {state}: {done}{failed}{waits}"
    if why := stall_text(update):
        yield f"the update has stalled: {' '.join(why.split())}"
    if aurora := aurora_update(update.opaque_data):
        yield f"{aurora}, owner {owner or 'unknown'}"


def start_line(pod: PodRecord) -> str:
    """Return a line on why a pod that a host has taken does not run yet."""
    text = " ".join(pod.message.split())[:WAIT_TEXT_MAX]
    return f"instance {pod.instance_id} on {pod.host} cannot be started yet: {pod.reason}{f', {text}' if text else ''}"


def failure_line(pod: PodRecord, job_type: JobType) -> str:
    how = ", ".join(text for text in (f"{pod.state} on {pod.host}", _cause(pod)) if text)
    if not pod.due_ns or not pod.failure_count:
        return f"instance {pod.instance_id} {how}; it runs again at once"
    due, why = rfc3339_seconds(pod.due_ns), _wait_cause(pod, job_type)
    return f"instance {pod.instance_id} {how}; it runs again at {due}: {why} doubles the wait"


def _wait_cause(pod: PodRecord, job_type: JobType) -> str:
    times = format_count(pod.failure_count, "time")
    if not job_type.runs_to_end:
        return f"it has ended {times}, and each time"
    if fails_quickly(pod):
        return f"it has failed {times}, now within {QUICK_S:g} s of its start, and each time"
    return "no other host could take it, and each failure"


def _cause(pod: PodRecord) -> str:
    """Return the cause of a failure; it is not taken from the message alone, which during a backoff only names that."""
    ended = pod.termination
    if ended is None or not (ended.exit_code or ended.signal):
        message = " ".join(pod.message.removeprefix(THROTTLED_MESSAGE).lstrip("; ").split())[:WAIT_TEXT_MAX]
        return ", ".join(filter(None, (pod.reason, message)))
    return f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"


def disruption_lines(job: JobRecord, asked: Iterable[Disruption]) -> Iterator[str]:
    maximum = job.sla.maximum_unavailable_instances
    for number, one in enumerate(asked):
        if not number:
            yield f"the SLA, {f'at most {maximum} unavailable' if maximum else 'without a limit'}, was asked last:"
        answer = "granted" if one.granted else "refused"
        yield f"  {rfc3339_seconds(one.time_ns)} {answer} instance {one.instance_id}, {one.reason}: {one.message}"


def mark_lines(service: Marked | None, hosts: Collection[tuple[Hostname, int, Marked]]) -> Iterator[str]:
    """Yield lines on the host advisor's marks of a service, and of hosts that a job's instances are on: the worst
    first."""
    if service:
        yield f"the service is marked {service.mark}: {service.reason}"
    ordered = sorted(hosts, key=lambda one: (one[2].mark is not Mark.RED, -one[1], one[0]))
    for hostname, count, marked in ordered[:MARKED_MAX]:
        yield f"host {hostname}, with {_instances(count)} of it, is marked {marked.mark}: {marked.reason}"
    if len(ordered) > MARKED_MAX:
        yield f"{len(ordered) - MARKED_MAX} more of its hosts are marked orange or red"


def lock_lines(locked: Collection[str]) -> Iterator[str]:
    for component, effect in (("Launch", "no pod is started"), ("Kill", "no pod is ended")):
        if component in locked:
            yield f"an administrator has locked {component}: {effect} before peloton admin unlock {component}"


def _section(title: str, otherwise: str, lines: Sequence[str]) -> Iterator[str]:
    yield title if lines else otherwise
    yield from (f"  {line}" for line in lines[:LINES_MAX])
    if len(lines) > LINES_MAX:
        yield f"  and {len(lines) - LINES_MAX} more"


def _show(kind: str, amount: float) -> str:
    if math.isinf(amount):
        return "unlimited"
    return f"{amount:.0f} MiB" if kind in ("memory", "disk") else f"{amount:g}"


def recipe_text(strategy: Strategy) -> str:
    return f"of the hosts that take a pod {strategy} chooses {_RECIPES[strategy]}"


_RECIPES = {
    Strategy.PACK_HOST: "the one in use that it leaves with least free",
    Strategy.SPREAD_JOB: "the one with fewest pods of its placement",
    Strategy.EMPTIEST_HOST: "the one with the largest free share",
    Strategy.DEFRAGMENT: "the one with the least free gpu, cpu, memory and disk",
    Strategy.LEAST_LOADED: "the one with the least cpu or memory in use",
}
