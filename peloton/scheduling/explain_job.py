"""A job's situation in words: what stands in queues, what is not even there, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from peloton.lifecycle.gang import Stage
from peloton.lifecycle.job import scheduled_count
from peloton.model.job import GangProgress, JobRecord, JobState, JobType
from peloton.model.pod import TERMINAL, PodRecord, PodShape, PodState, ShapeRange
from peloton.scheduling.explain import Holder, Wait
from peloton.scheduling.placement import refusing_hosts
from peloton.scheduling.reason import Rule, shown_amount

_NOT_STARTED = (PodState.INITIALIZED, PodState.PENDING, PodState.READY)
NO_GANG = GangProgress(0)
UNFIT_MAX = 5
"""Sorts of pods that fit no host and are told."""


class Obstacle(StrEnum):
    """Why pods stand in no queue and do not run either."""

    MAXIMUM_RUNNING = "maximum of running instances"
    NO_HOST = "no host"
    FITS_NO_HOST = "no host could take it"
    GATHERS = "the other members of the gang"
    SOON = "nothing"


@dataclass(frozen=True, slots=True)
class Apart:
    """``pod_count`` pods outside the queues. ``left`` and ``bound`` are pods, of the maximum of running instances;
    of a gang that gathers ``bound`` is its size."""

    obstacle: Obstacle
    pod_count: int
    text: str
    left: int = 0
    bound: int = 0
    hosts: tuple[tuple[int, str], ...] = ()  # (how many, the rule that they fail)


def apart(
    job: JobRecord, counts: Mapping[PodState, int], unplaced: tuple[int, str], gang: GangProgress = NO_GANG
) -> Iterator[Apart]:
    """``counts`` are of now; ``unplaced`` is how many pods placement last left over, and its reason."""
    fresh = counts.get(PodState.INITIALIZED, 0)
    if job.type is not JobType.SERVICE:  # whose update adds the instances that are not there
        fresh += max(job.instance_count - sum(counts.values()), 0)
    gathered = gang.stages.get(Stage.QUEUED, 0)
    if 0 < gathered < gang.size and sum(gang.stages.values()) == gang.size:
        who = f"{_instances(gathered)} of the gang of {gang.size}"
        text = f"{who} not queued before the others have ended: it starts whole"
        yield Apart(Obstacle.GATHERS, gathered, text, bound=gang.size)
        fresh = max(fresh - gathered, 0)
    if fresh and job.goal is not JobState.KILLED and job.is_active:
        yield _not_queued(job, fresh, scheduled_count(counts))
    ready = counts.get(PodState.READY, 0)
    if ready:
        _, reason = unplaced
        is_gang = gang.size > 0 and gang.stages.get(Stage.READY) == gang.size
        who = f"gang of {gang.size} waits for hosts for all of it; " if is_gang else ""
        if reason:
            yield Apart(Obstacle.NO_HOST, ready, f"{who}admitted, but {reason}", hosts=refusing_hosts(reason))
        else:
            yield Apart(Obstacle.SOON, ready, f"{who}{_instances(ready)} admitted; a host is being looked for")


def _not_queued(job: JobRecord, fresh: int, scheduled: int) -> Apart:
    maximum = job.sla.maximum_running_instances
    left = max(maximum - scheduled, 0)
    wanted = job.gang_size if job.gang_size > 1 and fresh >= job.gang_size else 1
    if maximum == 0 or left >= wanted:
        return Apart(Obstacle.SOON, fresh, f"{_instances(fresh)} about to be queued")
    text = f"{_instances(fresh)} held back: at most {maximum} may run at a time, {scheduled} are queued or running"
    return Apart(Obstacle.MAXIMUM_RUNNING, fresh, text, left, maximum)


def unfit(shapes: Sequence[ShapeRange], why: Mapping[PodShape, str]) -> Iterator[Apart]:
    """Pods that no host could take even if it were empty, at most UNFIT_MAX sorts of them, by their first instance."""
    alike: dict[str, list[ShapeRange]] = {}
    for one in shapes:
        if one.shape in why:
            alike.setdefault(why[one.shape], []).append(one)
    for text, spans in islice(alike.items(), UNFIT_MAX):
        count, first = sum(one.count for one in spans), spans[0]
        who = f"{_instances(count)}, the first {first.start}," if len(spans) > 1 else _span(first.start, count)
        verb = "fits" if count == 1 else "fit"
        waits = "it waits" if count == 1 else "they wait"
        yield Apart(
            Obstacle.FITS_NO_HOST, count, f"{who} {verb} no host, even an empty one: {text}; {waits} for one to join"
        )


def headline(job: JobRecord, pool_path: str, counts: Mapping[PodState, int]) -> str:
    """Who it is, where (no path: its pool is gone), and how many of its pods are in which state."""
    public = Counter[PodState]()
    for state, count in counts.items():
        public[state.public] += count
    shown = ", ".join(f"{public[state]} {state}" for state in PodState if public[state]) or "no instances yet"
    verb = "is" if job.is_active else "ended"
    where = f"pool {pool_path}" if pool_path else "a pool that is gone"
    return f"Job {job.job_id} ({job.name}) {verb} {job.state} in {where}: {shown}"


def story(
    job: JobRecord,
    counts: Mapping[PodState, int],
    waiting: Sequence[tuple[Wait, tuple[Holder, ...]]],
    besides: Sequence[Apart],
    failures: Sequence[PodRecord],
) -> Iterator[str]:
    """The lines below the headline. ``failures``: of an active job they are told elsewhere."""
    if not job.is_active:
        yield from (_ended_line(pod) for pod in failures)
        return
    if job.goal is JobState.KILLED:
        yield "it is being stopped"
    for wait, who in waiting:
        yield from wait_lines(wait, who)
    yield from (one.text for one in besides)
    if not waiting and not besides and not failures and job.goal is not JobState.KILLED:
        started = sum(n for state, n in counts.items() if state not in TERMINAL and state not in _NOT_STARTED)
        yield (
            f"nothing waits: {_instances(started)} on hosts" if started else "no instance waits, and none is on a host"
        )


def slack_line(waiting: Sequence[tuple[Wait, tuple[Holder, ...]]], slack_cpu: int, held_cpu: int) -> Iterator[str]:
    """For those who wait for slack: how much the hosts have, in thousandths of a cpu, and how much is taken."""
    if any(wait.cause.rule is Rule.SLACK_ENTITLEMENT for wait, _ in waiting):
        slack, held = shown_amount("cpu", slack_cpu), shown_amount("cpu", held_cpu)
        yield (
            f"revocable instances run on slack, what others hold and do not use: the hosts have cpu {slack} of it, "
            f"admitted revocable instances hold {held}"
        )


def wait_lines(wait: Wait, who: Sequence[Holder]) -> Iterator[str]:
    yield f"{_whom(wait)}: {reason_text(wait)}"
    if who:
        yield f"  held by {'; '.join(holder.text(wait.cause.kind) for holder in who)}"


def reason_text(wait: Wait) -> str:
    if wait.blocking and wait.reason.job_id == wait.run.job_id:
        return f"waits behind other instances of the job; for them: {wait.blocking}"
    return f"{wait.reason}; that one: {wait.blocking}" if wait.blocking else str(wait.reason)


def _whom(wait: Wait) -> str:
    size, end = wait.run.gang_size, wait.start + wait.gang_count * wait.run.gang_size - 1
    instances = _span(wait.start, end - wait.start + 1)
    gangs = f" ({wait.gang_count} gang{'s' if wait.gang_count > 1 else ''} of {size})" if size > 1 else ""
    ahead = f"{wait.gangs_ahead} gang{'' if wait.gangs_ahead == 1 else 's'} ahead"
    queue = wait.run.queue.name.lower().replace("_", "-")
    return f"{instances}{gangs} in the {queue} queue of {wait.pool_path}, {ahead}"


def _ended_line(pod: PodRecord) -> str:
    words = " ".join(f"{pod.message} {pod.reason}".split())
    return f"instance {pod.instance_id}: {pod.state}{f', {words}' if words else ''}"


def _span(start: int, count: int) -> str:
    return f"instance {start}" if count == 1 else f"instances {start}-{start + count - 1}"


def _instances(count: int) -> str:
    return f"{count} instance{'' if count == 1 else 's'}"
