"""The overview: capacity by kind, who answers, and what is wrong now, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from rich.text import Text

from cli.admin import EFFECTS
from cli.times import parse_time
from cli.top.grid import Column, Grid, Row, text
from cli.top.reading import Overview, Part
from cli.top.rows import KINDS, MARK_STYLES, UNIT_TEXTS, amount, duration_text, host_state, mark_of, pool_bar
from cli.wire import v0, v1

FAULTS_MAX = 200
"""Lines about hosts, pools and jobs; the overview says how many more there are."""
CAPACITY_TITLES = (
    ("", 11), ("capacity", 9), ("allocated", 10), ("free", 9), ("queued", 9), ("used", 9), ("slack", 8)
)  # fmt: skip
"""Each with its width. Slack: what hosts offer to revocable pods."""
BAR_WIDTH_MIN = 10
BESIDE_CAPACITY_BAR = 68


FAILED_WITHIN_S = 3_600


class Weight(IntEnum):
    RED = 0
    ORANGE = 1
    NOTE = 2


WEIGHT_TEXTS = {Weight.RED: "!! RED", Weight.ORANGE: "! ORANGE", Weight.NOTE: "note"}
WEIGHT_STYLES = {Weight.RED: MARK_STYLES["RED"], Weight.ORANGE: MARK_STYLES["ORANGE"], Weight.NOTE: ""}
HOST_WEIGHTS = {"DOWN": Weight.RED, "DRAINING": Weight.NOTE, "DRAINED": Weight.NOTE}


class Fault(NamedTuple):
    """``key``: what it is about, such as ``host:h1``; empty: there is nothing more to see."""

    weight: Weight
    what: str
    why: str
    key: str = ""


def faults(seen: Overview, now: datetime) -> list[Fault]:
    """The worst first, then by name."""
    found = [*_silence(seen), *_locks(seen.lockdown), *_hosts(seen.hosts), *_services(seen.advice)]
    found += [*_queues(seen.tree), *_failures(seen.failed, now)]
    return sorted(found, key=lambda fault: (fault.weight, fault.key.partition(":")[0], fault.what))


def _silence(seen: Overview) -> Iterator[Fault]:
    for name, part in roles(seen):
        if part.error:
            yield Fault(Weight.RED, name, part.error)
    if seen.hosts.answer is not None:
        for cluster in seen.hosts.answer.silent_clusters:
            yield Fault(Weight.RED, f"cluster {cluster}", "its host manager does not answer")


def roles(seen: Overview) -> list[tuple[str, Part[object]]]:
    """Who answered what was asked: each by one of the calls."""
    return [("api", seen.failed), ("resource manager", seen.tree), ("host manager", seen.hosts)]


def _locks(part: Part[v1.admin_svc.GetLockdownResponse]) -> Iterator[Fault]:
    for component in part.answer.components if part.answer is not None else ():
        name = v1.admin_svc.Component.Name(component)
        yield Fault(Weight.RED, f"{name} is locked", EFFECTS[name])


def _hosts(part: Part[v0.host_svc.QueryHostsResponse]) -> Iterator[Fault]:
    for info in part.answer.host_infos if part.answer is not None else ():
        name, key, state = f"host {info.hostname}", f"host:{info.hostname}", host_state(info)
        if state != "UP":
            yield Fault(HOST_WEIGHTS.get(state, Weight.NOTE), name, f"is {state}: it takes no pods", key)
        if mark := mark_of(info):
            yield Fault(Weight[mark], name, f"is marked {info.marked}", key)
        if info.avoided:
            yield Fault(Weight.ORANGE, name, f"is avoided {info.avoided}", key)


def _services(part: Part[v0.advice.AdviceResponse]) -> Iterator[Fault]:
    for service in part.answer.services if part.answer is not None else ():
        mark = v0.advice.Mark.Name(service.mark).removeprefix("MARK_")
        if mark in Weight.__members__:
            yield Fault(Weight[mark], f"service {service.job_id}", service.reason, f"job:{service.job_id}")


def _queues(part: Part[v0.explain.PoolTreeResponse]) -> Iterator[Fault]:
    """Of leaves: what waits in them waits in the pools above, too."""
    for pool in part.answer.pools if part.answer is not None else ():
        if pool.isLeaf and pool.queuedInstances:
            wanted = [f"{each.kind} {amount(each.kind, each.demand)}" for each in pool.amounts if each.demand]
            many = f"{pool.queuedInstances} instance{'s wait' if pool.queuedInstances > 1 else ' waits'}"
            yield Fault(Weight.NOTE, f"pool {pool.path}", f"{many} for {', '.join(wanted)}", f"pool:{pool.path}")


def _failures(part: Part[v0.table.ListJobsResponse], now: datetime) -> Iterator[Fault]:
    """Within FAILED_WITHIN_S."""
    for job in part.answer.jobs if part.answer is not None else ():
        ended = parse_time(job.completionTime)
        if ended is None or (since_s := (now - ended).total_seconds()) > FAILED_WITHIN_S:
            continue
        failed = job.taskStats.get("FAILED", 0)
        of = f"{failed} of {job.instanceCount} instances" if failed else f"{job.instanceCount} instances"
        why = f"failed {duration_text(since_s)} ago, {of}"
        yield Fault(Weight.ORANGE, f"job {job.name or job.id.value}", why, f"job:{job.id.value}")


FAULT_COLUMNS = (Column("Weight"), Column("What", least=14), Column("Why", least=20))


def fault_grid(found: list[Fault]) -> Grid:
    rows = [
        Row(fault.key or fault.what, (text(WEIGHT_TEXTS[fault.weight], WEIGHT_STYLES[fault.weight]), text(fault.what),
                                      text(fault.why)))
        for fault in found[:FAULTS_MAX]
    ]  # fmt: skip
    return Grid(FAULT_COLUMNS, tuple(rows), "Nothing is wrong", len(found))


def head(seen: Overview, width: int) -> list[Text]:
    """Capacity by kind on one line each, and a line about who answers."""
    lines = [Text("".join(f"{title:>{size}}" for title, size in CAPACITY_TITLES), "bold")]
    bar = max(width - BESIDE_CAPACITY_BAR, BAR_WIDTH_MIN)
    root = next(iter(seen.tree.answer.pools), None) if seen.tree.answer is not None else None
    amounts = root.amounts if root is not None else ()
    lines += [_capacity_line(each, seen.hosts.answer, bar) for each in amounts if each.limit]
    lines.append(_role_line(seen))
    return lines


def _capacity_line(each: v0.explain.PoolAmounts, hosts: v0.host_svc.QueryHostsResponse | None, width: int) -> Text:
    numbers = [each.limit, each.allocation, max(each.limit - each.allocation, 0.0), each.demand]
    shown = [amount(each.kind, value) for value in numbers]
    shown.append(_used(each.kind, hosts))
    shown.append(f"{sum(info.slack_cpu for info in hosts.host_infos):g}" if hosts and each.kind == "cpu" else "")
    line = Text(no_wrap=True, end="")
    line.append(f"{UNIT_TEXTS.get(each.kind, each.kind):<{CAPACITY_TITLES[0][1]}}", "bold")
    for (_, size), value in zip(CAPACITY_TITLES[1:], shown, strict=True):
        line.append(f"{value:>{size}}")
    plain = v0.explain.PoolAmounts(limit=each.limit, allocation=each.allocation, demand=each.demand)
    return line.append("  ").append_text(pool_bar(plain, each.limit, width))


def _used(kind: str, hosts: v0.host_svc.QueryHostsResponse | None) -> str:
    """As hosts measured it last; empty when none does."""
    measured = [info.used for info in hosts.host_infos if info.HasField("used")] if hosts else []
    if not measured or kind not in KINDS:
        return ""
    name = f"{kind}_mib" if kind in ("memory", "disk") else kind
    return amount(kind, round(sum(getattr(used, name) for used in measured), 1))


def _role_line(seen: Overview) -> Text:
    line = Text(no_wrap=True, end="")
    for name, part in roles(seen):
        line.append("  " if line else "")
        if part.error:
            line.append(f"{name}: NO ANSWER", MARK_STYLES["RED"])
        else:
            line.append(f"{name}: {part.took_s * 1000:.0f} ms", "green")
    for state, count in _host_counts(seen.hosts.answer):
        line.append(f"  {count} host{'s' if count > 1 else ''} {state}")
    return line


def _host_counts(hosts: v0.host_svc.QueryHostsResponse | None) -> Iterable[tuple[str, int]]:
    counts: dict[str, int] = {}
    for info in hosts.host_infos if hosts is not None else ():
        counts[host_state(info)] = counts.get(host_state(info), 0) + 1
    return sorted(counts.items())
