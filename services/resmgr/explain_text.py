"""The words of explanations and plans of pools, from their messages."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.model.job import JobRecord
from peloton.model.pod import PodRecord
from peloton.model.update import Disruption, UpdateRecord
from services.resmgr.settings import LoopSettings

LINES_MAX = 50
"""Lines of one sort."""


def pool_lines(answer: pb.PoolWhyResponse, heads: Sequence[Sequence[str]], rules: LoopSettings) -> Iterator[str]:
    """``heads``: the lines of each of ``answer.queues``."""
    pool = answer.pool
    yield f"Pool {pool.path}: {_count(pool.queuedInstances, 'instance')} in queues"
    for each in pool.amounts:
        if each.limit or each.allocation or each.demand:
            yield (
                f"  {each.kind}: holds {_shown(each.kind, each.allocation)} of its entitlement "
                f"{_shown(each.kind, each.entitlement)}, {_shown(each.kind, each.demand)} more wanted; "
                f"reservation {_shown(each.kind, each.reservation)}, limit {_shown(each.kind, each.limit)}"
            )
    for queue, lines in zip(answer.queues, heads, strict=True):
        name = pb.Queue.Name(queue.queue).removeprefix("QUEUE_").lower().replace("_", "-")
        where = f" of {queue.poolPath}" if queue.poolPath != pool.path else ""
        waiting = f"{_count(queue.gangCount, 'gang')} of {_count(queue.instanceCount, 'instance')}"
        yield f"  {name} queue{where}: {waiting}, first job {queue.head.jobId.value}"
        yield from (f"    {line}" for line in lines)
    if not answer.queues:
        yield "  its queues are empty"
    yield from _loans("borrows", answer.borrowed, "left unused by", answer.lenders)
    yield from _wanted_back(answer, rules)
    yield from _loans("lends", answer.lent, "held above their reservations by", answer.borrowers)


def _loans(verb: str, mine: Iterable[pb.Loan], words: str, theirs: Sequence[pb.Loan]) -> Iterator[str]:
    for loan in mine:
        others = ", ".join(
            f"{other.poolPath} ({_shown(other.kind, other.amount)})" for other in theirs if other.kind == loan.kind
        )
        yield f"  {verb} {loan.kind} {_shown(loan.kind, loan.amount)}, {words} {others}"


def _wanted_back(answer: pb.PoolWhyResponse, rules: LoopSettings) -> Iterator[str]:
    """Which lenders wait for what they lent, and when they get it."""
    how = f"it comes back as instances in {answer.pool.path} end, for preemption is off"
    if rules.preempts:
        rounds, within_s = rules.sustained_over_count, rules.sustained_over_count * rules.preemption_period_s
        how = f"instances in {answer.pool.path} may be evicted within {rounds} rounds of preemption ({within_s:g} s)"
    for lender in answer.lenders:
        if lender.wantedBack:
            wanted = _shown(lender.kind, lender.wantedBack)
            yield f"  {lender.poolPath} wants {lender.kind} {wanted} of that back: {how}"


def plan_lines(answer: pb.PoolPlanResponse) -> Iterator[str]:
    yield f"Pool {answer.poolPath} would be {'created' if answer.isNew else 'changed'}."
    yield from _section(
        "Entitlements that would change:",
        "No entitlement would change.",
        [
            f"{e.poolPath} {e.kind}: {_shown(e.kind, e.before)} -> {_shown(e.kind, e.after)}"
            for e in answer.entitlements
        ],
    )
    yield from _section(
        "Pools that would hold more than their entitlement:",
        "No pool would hold more than its entitlement.",
        [
            f"{e.poolPath} {e.kind}: holds {_shown(e.kind, e.allocation)}, entitlement {_shown(e.kind, e.entitlement)}"
            for e in answer.aboveEntitlement
        ],
    )
    yield from _section(
        "Gangs that would be admitted now:",
        "No waiting gang would be admitted now.",
        [
            f"{_count(a.gangCount, 'gang')} of {a.gangSize} of job {a.jobId.value} in {a.poolPath}"
            f" ({a.gangCountBefore} without the change)"
            for a in answer.admitted
        ],
    )
    yield from _section(
        "Instances that would be evicted:", "No instance would be evicted.", list(eviction_lines(answer.evictions))
    )


def eviction_lines(evictions: Iterable[pb.PlannedEviction]) -> Iterator[str]:
    """When, which instances, and on what grounds."""
    for one in evictions:
        last = one.firstInstance + one.instanceCount - 1
        which = f"instances {one.firstInstance}-{last}" if one.instanceCount > 1 else f"instance {last}"
        when = "the next round" if one.rounds == 1 else f"{one.rounds} rounds"
        yield f"after {when} of preemption ({one.withinS:g} s), {which} of job {one.jobId.value}: {one.text}"


def update_lines(update: UpdateRecord | None) -> Iterator[str]:
    """How far the rollout of a service is, while it is under way."""
    if update is None or not update.is_active:
        return
    failed = f", {len(update.failed)} failed" if update.failed else ""
    waits = f", waits for {update.waiting_for}" if update.waiting_for else ""
    yield f"{update.type} {update.state}: {len(update.done)} of {update.total_count} done{failed}{waits}"


def failure_line(pod: PodRecord) -> str:
    """Of an instance that has ended and waits for its next run."""
    how = ", ".join(text for text in (f"{pod.state} on {pod.host}", _cause(pod)) if text)
    if not pod.due_ns or not pod.failure_count:
        return f"instance {pod.instance_id} {how}; it runs again at once"
    why = f"it has ended {_count(pod.failure_count, 'time')}, and each time doubles the wait"
    return f"instance {pod.instance_id} {how}; it runs again at {rfc3339_seconds(pod.due_ns)}: {why}"


def _cause(pod: PodRecord) -> str:
    """Its message says by then that it waits."""
    ended = pod.termination
    if ended is None or not (ended.exit_code or ended.signal):
        return pod.reason or ("" if pod.message == THROTTLED_MESSAGE else pod.message)
    return f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"


def disruption_lines(job: JobRecord, asked: Iterable[Disruption]) -> Iterator[str]:
    """What the SLA of a service granted and refused last."""
    maximum = job.sla.maximum_unavailable_instances
    for number, one in enumerate(asked):
        if not number:
            yield f"the SLA, {f'at most {maximum} unavailable' if maximum else 'without a limit'}, was asked last:"
        answer = "granted" if one.granted else "refused"
        yield f"  {rfc3339_seconds(one.time_ns)} {answer} instance {one.instance_id}, {one.reason}: {one.message}"


def lock_lines(locked: Collection[str]) -> Iterator[str]:
    for component, effect in (("Launch", "no pod is started"), ("Kill", "no pod is ended")):
        if component in locked:
            yield f"an administrator has locked {component}: {effect} before peloton admin unlock {component}"


def _section(title: str, otherwise: str, lines: Sequence[str]) -> Iterator[str]:
    yield title if lines else otherwise
    yield from (f"  {line}" for line in lines[:LINES_MAX])
    if len(lines) > LINES_MAX:
        yield f"  and {len(lines) - LINES_MAX} more"


def _shown(kind: str, amount: float) -> str:
    if math.isinf(amount):
        return "unlimited"
    return f"{amount:g}" if kind in ("cpu", "gpu") else f"{amount:.0f} MiB"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
