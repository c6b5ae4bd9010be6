"""The overview: capacity by kind, the leaders, and the present faults, the worst first. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from rich.text import Text

from cli.times import parse_time
from cli.top.grid import Column, Grid, rows_of, text
from cli.top.reading import Overview, Part
from cli.top.rows import KINDS, MARK_STYLES, UNIT_TEXTS, age_text, amount, counts_text, duration_text, pool_bar
from cli.wire import v0

FAULTS_MAX = 200
"""Limit of lines; the overview shows how many more there are."""
CAPACITY_TITLES = (
    ("", 11), ("capacity", 9), ("away", 8), ("allocated", 10), ("free", 8), ("queued", 8), ("used", 8), ("slack", 7)
)  # fmt: skip
"""The columns with their widths. Away: on hosts that take no pods. Slack: offered by hosts to revocable pods."""
BAR_WIDTH_MIN = 9
WIDTH_WITHOUT_CAPACITY_BAR = sum(size for _, size in CAPACITY_TITLES) + 2
FAILED_WITHIN_S = 3_600


class Weight(IntEnum):
    CRITICAL = 0
    WARNING = 1
    NOTE = 2


WEIGHT_TEXTS = {Weight.CRITICAL: "!! CRITICAL", Weight.WARNING: "! WARNING", Weight.NOTE: "note"}
WEIGHT_STYLES = {Weight.CRITICAL: MARK_STYLES["RED"], Weight.WARNING: MARK_STYLES["ORANGE"], Weight.NOTE: ""}
SUBJECTS = {"SUBJECT_KIND_HOST": "host", "SUBJECT_KIND_POOL": "pool", "SUBJECT_KIND_JOB": "job"}


class Fault(NamedTuple):
    """A fault. ``key`` is its subject, such as ``host:h1``; empty: there is no page for it. ``age`` is empty if
    unknown."""

    weight: Weight
    what: str
    key: str = ""
    age: str = ""


def faults(seen: Overview, now: datetime) -> list[Fault]:
    """Return the faults, the worst first; of one weight the API's problems lead, then failed jobs, then queues."""
    found = [*_problems(seen.whole, now), *_failures(seen.failed, now), *_queues(seen.tree)]
    return sorted(found, key=lambda fault: fault.weight)


def _problems(whole: v0.overview.GetOverviewResponse, now: datetime) -> Iterator[Fault]:
    for problem in whole.problems:
        weight = Weight[v0.overview.Severity.Name(problem.severity).removeprefix("SEVERITY_")]
        subject = SUBJECTS.get(v0.overview.SubjectKind.Name(problem.subject_kind), "")
        key = f"{subject}:{problem.subject_id}" if subject else ""
        yield Fault(weight, problem.text, key, age_text(problem.since, now))


def _queues(part: Part[v0.explain.PoolTreeResponse]) -> Iterator[Fault]:
    """Yield notes on queues of leaves: gangs there wait in the pools above, too."""
    for pool in part.answer.pools if part.answer is not None else ():
        if pool.isLeaf and pool.queuedInstances:
            wanted = [f"{each.kind} {amount(each.kind, each.demand)}" for each in pool.amounts if each.demand]
            many = f"{pool.queuedInstances} instance{'s wait' if pool.queuedInstances > 1 else ' waits'}"
            # Gangs in backoff are in the queue, but count for no demand.
            what = f" for {', '.join(wanted)}" if wanted else ", in backoff because no host was found"
            yield Fault(Weight.NOTE, f"Pool {pool.path}: {many}{what}", f"pool:{pool.path}")


def _failures(part: Part[v0.table.ListJobsResponse], now: datetime) -> Iterator[Fault]:
    """Yield the jobs that failed within FAILED_WITHIN_S."""
    for job in part.answer.jobs if part.answer is not None else ():
        ended = parse_time(job.completionTime)
        if ended is None or (since_s := (now - ended).total_seconds()) > FAILED_WITHIN_S:
            continue
        failed = job.taskStats.get("FAILED", 0)
        of = f"{failed} of {job.instanceCount} instances" if failed else f"{job.instanceCount} instances"
        what = f"Job {job.name or job.id.value} failed: {of}"
        yield Fault(Weight.WARNING, what, f"job:{job.id.value}", duration_text(since_s))


FAULT_COLUMNS: tuple[Column[Fault], ...] = (
    Column("Weight", cell=lambda fault: text(WEIGHT_TEXTS[fault.weight], WEIGHT_STYLES[fault.weight])),
    Column("Since", True, cell=lambda fault: text(fault.age)),
    Column("What", least=20, cell=lambda fault: text(fault.what)),
)


def fault_grid(found: list[Fault]) -> Grid:
    rows = rows_of(FAULT_COLUMNS, found[:FAULTS_MAX], lambda fault: fault.key or fault.what)
    return Grid(FAULT_COLUMNS, rows, "Nothing is wrong", len(found))


def head(seen: Overview, width: int) -> list[Text]:
    """Return the lines at the top: capacity by kind, then the leaders, then hosts, jobs and pods by state."""
    lines = [Text("".join(f"{title:>{size}}" for title, size in CAPACITY_TITLES), "bold")]
    bar = max(width - WIDTH_WITHOUT_CAPACITY_BAR, BAR_WIDTH_MIN)
    sums = [(kind, _sum_of(seen.whole, kind)) for kind in KINDS]
    lines += [_capacity_line(one, _sum_queued(seen.tree.answer, kind), bar) for kind, one in sums if one.capacity]
    return [*lines, _role_line(seen), _count_line(seen.whole)]


def _sum_of(whole: v0.overview.GetOverviewResponse, kind: str) -> v0.overview.KindAmounts:
    """Add up the amounts of one kind over all clusters."""
    total = v0.overview.KindAmounts(kind=kind)
    for one in (one for cluster in whole.clusters for one in cluster.amounts if one.kind == kind):
        total.capacity, total.away = total.capacity + one.capacity, total.away + one.away
        total.allocation, total.slack = total.allocation + one.allocation, total.slack + one.slack
        total.used, total.measured_capacity = total.used + one.used, total.measured_capacity + one.measured_capacity
    return total


def _sum_queued(tree: v0.explain.PoolTreeResponse | None, kind: str) -> float | None:
    """Return the queued demand of one kind; None while it is unknown."""
    if tree is None or not tree.pools:
        return None
    return sum(each.demand for each in tree.pools[0].amounts if each.kind == kind)


def _capacity_line(one: v0.overview.KindAmounts, queued: float | None, width: int) -> Text:
    kind, free = one.kind, max(one.capacity - one.away - one.allocation, 0.0)
    shown = [amount(kind, value) for value in (one.capacity, one.away, one.allocation, free)]
    shown.append("?" if queued is None else amount(kind, queued))
    shown.append(amount(kind, round(one.used, 1)) if one.measured_capacity else "")
    shown.append(amount(kind, one.slack) if kind == "cpu" else "")
    line = Text(no_wrap=True, end="")
    line.append(f"{UNIT_TEXTS.get(kind, kind):<{CAPACITY_TITLES[0][1]}}", "bold")
    for (_, size), value in zip(CAPACITY_TITLES[1:], shown, strict=True):
        line.append(f"{value:>{size}}")
    plain = v0.explain.PoolAmounts(limit=one.capacity, allocation=one.allocation, demand=queued or 0)
    return line.append("  ").append_text(pool_bar(plain, one.capacity, width))


def _role_line(seen: Overview) -> Text:
    line = Text(no_wrap=True, end="")
    for role in seen.whole.roles:
        line.append("  " if line else "")
        led = f"{role.role} led at {role.address}" if role.address else f"{role.role}: NO LEADER"
        line.append(led, "" if role.address else MARK_STYLES["RED"])
    for cluster in seen.whole.clusters:
        if cluster.is_silent:
            line.append(f"  cluster {cluster.cluster}: NO ANSWER", MARK_STYLES["RED"])
    if seen.tree.error:
        line.append(f"  pools: {seen.tree.error}", MARK_STYLES["RED"])
    return line


def _count_line(whole: v0.overview.GetOverviewResponse) -> Text:
    hosts: dict[str, int] = {}
    for cluster in whole.clusters:
        for state, count in cluster.hosts.states.items():
            hosts[state] = hosts.get(state, 0) + count
    line = Text("Hosts: ", no_wrap=True, end="")
    line.append(", ".join(f"{count} {state}" for state, count in sorted(hosts.items()) if count) or "none")
    if whole.counted_time:
        jobs = ", ".join(f"{count} {state}" for state, count in sorted(whole.jobs.items()) if count)
        line.append(f"  Jobs: {jobs or 'none'}  Pods: ").append_text(counts_text(whole.pods) or text("none"))
    return line
