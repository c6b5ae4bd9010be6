"""Tables made of answers of the API: pools, jobs, instances, events, hosts.

The functions are pure; ``now`` is the reader's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from cli.host.state import UNSCHEDULABLE, is_unschedulable, state_of
from cli.output import STATE_STYLES
from cli.respool.tree import bar_of, number
from cli.times import parse_time, seconds_text
from cli.top.asked import matches
from cli.top.grid import Column, Grid, Row, text, visible
from cli.wire import v0
from peloton.model.status_text import status_text

ROWS_MAX = 1_000
"""Limit of rows of pools and of hosts, whose answers have all of them: the filter finds the others."""
BAR_WIDTH_MIN, BAR_WIDTH_MAX = 12, 40
KINDS = ("cpu", "memory", "disk", "gpu")
UNIT_TEXTS = {"cpu": "cpu (cores)"}
"""Titles with units; amounts of memory and disk carry theirs."""
LETTERS: Mapping[str, Sequence[str]] = {
    "R": ("RUNNING",),
    "L": ("PLACING", "PLACED", "LAUNCHING", "LAUNCHED", "STARTING", "RESERVED"),
    "P": ("UNKNOWN", "INITIALIZED", "PENDING", "READY"),
    "S": ("SUCCEEDED",),
    "F": ("FAILED",),
    "X": ("LOST",),
    "K": ("PREEMPTING", "KILLING", "KILLED", "DELETED"),
}
LETTER_STYLES = {"R": "cyan", "L": "blue", "P": "yellow", "S": "green", "F": "red", "X": "red", "K": "magenta"}
LETTER_WORDS = "R run L launch P wait S succeed F fail X lost K kill"
MARK_STYLES = {"RED": "bold red", "ORANGE": "yellow"}
ID_SHOWN = 8
"""Number of shown characters of a job's id: commands take the first four or more."""
HOST_SHOWN = 32
"""Number of shown characters of a host's name: the names in a cluster begin alike."""
SECONDS = (("d", 86_400), ("h", 3_600), ("m", 60))


def state_text(state: str) -> Text:
    return text(state, STATE_STYLES.get(state, "yellow"))


def counts_text(counts: Mapping[str, int]) -> Text:
    """Return the count of instances in each kind of state, by its letter: `R3 P1`."""
    found = Text(no_wrap=True, end="")
    for letter, states in LETTERS.items():
        if count := sum(counts.get(state, 0) for state in states):
            found.append(f"{' ' if found else ''}{letter}{count}", LETTER_STYLES[letter])
    return found


def age_text(since: str, now: datetime) -> str:
    """Return the age in the largest unit of which it is two or more; empty when there is no time."""
    moment = parse_time(since)
    return "" if moment is None else duration_text((now - moment).total_seconds())


def duration_text(seconds: float) -> str:
    whole = max(int(seconds), 0)
    return next((f"{whole // size}{unit}" for unit, size in SECONDS if whole >= 2 * size), f"{whole}s")


# Pools.


class PoolOrder(NamedTuple):
    title: str
    key: Callable[[v0.explain.PoolAmounts], float] | None  # None: as a tree


POOL_ORDERS = (
    PoolOrder("tree", None),
    PoolOrder("demand", lambda each: each.demand),
    PoolOrder("allocation", lambda each: each.allocation),
    PoolOrder("above entitlement", lambda each: each.allocation - each.entitlement),
)
POOL_COLUMNS = (
    Column("Pool", least=10),
    Column("Queued", True, spare=3),
    Column(""),
    Column("Alloc", True),
    Column("Entitled", True),
    Column("Demand", True),
    Column("Reserved", True, spare=2),
    Column("Limit", True, spare=1),
)
BESIDE_BAR = 64
"""The width of the other columns."""


def kinds_of(answer: v0.explain.PoolTreeResponse) -> list[str]:
    """Return the kinds that the cluster has, in the order of KINDS."""
    capacity = {each.kind for pool in answer.pools[:1] for each in pool.amounts if each.limit > 0}
    return [kind for kind in KINDS if kind in capacity] or [KINDS[0]]


def pool_grid(answer: v0.explain.PoolTreeResponse, kind: str, order: PoolOrder, wanted: str, width: int) -> Grid:
    """Return the table of one kind of resource; its bars have one scale: the whole cluster."""
    capacity = next((each.limit for pool in answer.pools[:1] for each in pool.amounts if each.kind == kind), 0.0)
    bar = max(min(width - BESIDE_BAR, BAR_WIDTH_MAX), BAR_WIDTH_MIN)
    found = [line for pool in answer.pools if matches(wanted, pool.path) for line in _pool_lines(pool, kind, order)]
    if order.key is not None:
        found.sort(key=lambda line: (-_sort_key(order, line[2]), line[0]))
    rows = [Row(path, _pool_cells(name, queued, each, capacity, bar)) for path, name, each, queued in found]
    nothing = f"No pool is called so: {wanted}" if wanted else "There are no pools"
    return Grid(POOL_COLUMNS, tuple(rows[:ROWS_MAX]), nothing, len(rows))


def _sort_key(order: PoolOrder, amounts: v0.explain.PoolAmounts) -> float:
    assert order.key is not None
    return order.key(amounts)


def _pool_lines(
    pool: v0.explain.PoolNode, kind: str, order: PoolOrder
) -> Iterator[tuple[str, str, v0.explain.PoolAmounts, int]]:
    """Yield path, shown name, amounts and queued instances of the pool, and in the tree of its parts of the hosts."""
    is_tree = order.key is None
    name = "  " * pool.depth + (pool.path.rpartition("/")[2] or "/") if is_tree else pool.path
    yield pool.path, name, _amounts(pool.amounts, kind), pool.queuedInstances
    for part in pool.onHosts if is_tree else ():
        yield pool.path, f"{'  ' * (pool.depth + 1)}in {part.hostPools}", _amounts(part.amounts, kind), 0


def _amounts(amounts: Iterable[v0.explain.PoolAmounts], kind: str) -> v0.explain.PoolAmounts:
    """Return the amounts of one kind; they have no kind when the pool has none of it."""
    return next((each for each in amounts if each.kind == kind), v0.explain.PoolAmounts())


def _pool_cells(name: str, queued: int, each: v0.explain.PoolAmounts, capacity: float, width: int) -> tuple[Text, ...]:
    is_above = each.allocation > each.entitlement
    shown = visible(Text(name, no_wrap=True, end="")), text(queued or "", "yellow")
    if not each.kind:
        return (*shown, *[text("")] * (len(POOL_COLUMNS) - len(shown)))
    return (
        *shown,
        pool_bar(each, capacity, width),
        text(amount(each.kind, each.allocation), "bold" if is_above else ""),
        text(amount(each.kind, each.entitlement)),
        text(amount(each.kind, each.demand) if each.demand else "", "yellow"),
        text(amount(each.kind, each.reservation) if each.reservation else ""),
        text("none" if math.isinf(each.limit) else amount(each.kind, each.limit)),
    )


def pool_bar(each: v0.explain.PoolAmounts, capacity: float, width: int) -> Text:
    """Return the bar of a pool: ``width`` cells stand for ``capacity``.

    It ends at the limit, or at the allocation if that is more.
    """
    bar = Text.from_markup(bar_of(each, capacity, width))
    most = max(each.limit, each.allocation)
    if capacity > 0 and most < capacity:
        bar.right_crop(width - max(round(most / capacity * width), 1))
        bar.pad_right(width - bar.cell_len)
    return bar


def amount(kind: str, value: float) -> str:
    """Return memory and disk with their unit; cores and gpus as plain numbers."""
    if kind not in ("memory", "disk"):
        return number(value)
    for unit, size in (("Ti", 2**20), ("Gi", 2**10)):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{number(value)}Mi" if value else "0"


# Jobs and their instances.

JOB_COLUMNS = (
    Column("Job", least=12),
    Column("State"),
    Column("Instances", least=10),
    Column("Age", True),
    Column("Pool", least=8, spare=4),
    Column("Owner", least=6, spare=2),
    Column("Type", spare=1),
    Column("Update", least=10, spare=5),
    Column("Id", spare=3),
)


def job_grid(jobs: Iterable[v0.table.JobRow], now: datetime) -> Grid:
    rows = []
    for job in jobs:
        cells = (
            text(job.name or job.id.value),
            state_text(v0.job.JobState.Name(job.state)),
            counts_text(job.taskStats) or text(job.instanceCount),
            text(age_text(job.creationTime, now)),
            text(job.poolPath),
            text(job.owner),
            text(v0.job.JobType.Name(job.type)),
            text(update_text(job.update) if job.HasField("update") else "", "yellow"),
            text(job.id.value[:ID_SHOWN]),
        )
        rows.append(Row(job.id.value, cells))
    return Grid(JOB_COLUMNS, tuple(rows), "No jobs found")


def update_text(update: v0.table.JobUpdate) -> str:
    """Return the state of an update; empty once it has succeeded."""
    state = v0.update.State.Name(update.state)
    if state == "SUCCEEDED":
        return ""
    stalled = " stalled" if update.stalledTime else ""
    failed = update.failedRunCount
    runs = f", {failed} run{'' if failed == 1 else 's'} failed" if failed else ""
    return f"{state}{stalled} {update.doneCount}/{update.totalCount}{runs}"


INSTANCE_COLUMNS = (
    Column("Instance", True),
    Column("State"),
    Column("Host", least=HOST_SHOWN),
    Column("Runs", True, spare=2),
    Column("Took", True, spare=4),
    Column("Health", spare=1),
    Column("Message", least=12, spare=3),
)


def instance_grid(tasks: Iterable[v0.task.TaskInfo], now: datetime) -> Grid:
    rows = [Row(str(info.instanceId), (text(info.instanceId), *_run_cells(info.runtime, now))) for info in tasks]
    return Grid(INSTANCE_COLUMNS, tuple(rows), "No instances found")


def _run_cells(runtime: v0.task.RuntimeInfo, now: datetime) -> tuple[Text, ...]:
    """Return state, host, runs, time of the run, health, message."""
    health = v0.task.HealthState.Name(runtime.healthy)
    run = runtime.mesosTaskId.value.rpartition("-")[2]
    return (
        state_text(v0.task.TaskState.Name(runtime.state)),
        text(runtime.host),
        text(run),
        text(took_text(runtime.startTime, runtime.completionTime, now)),
        text("" if health in ("INVALID", "DISABLED", "HEALTH_UNKNOWN") else health),
        text(status_text(runtime.message, runtime.reason)),
    )


def took_text(start: str, stop: str, now: datetime) -> str:
    begin = parse_time(start)
    return "" if begin is None else duration_text(((parse_time(stop) or now) - begin).total_seconds())


EVENT_COLUMNS = (
    Column("Time"),
    Column("Run", True),
    Column("State"),
    Column("Goal", spare=1),
    Column("Host", least=8),
    Column("Message", least=12, spare=2),
)


def event_grid(response: v0.task.GetPodEventsResponse) -> Grid:
    """Return the events in the order of the answer: newest first."""
    rows = []
    for event in response.result:
        cells = (
            text(seconds_text(event.timestamp)),
            text(event.taskId.value.rpartition("-")[2]),
            state_text(event.actualState),
            text(event.goalState),
            text(event.hostname),
            text("; ".join(filter(None, (event.reason, event.message)))),
        )
        rows.append(Row(event.taskId.value, cells))
    return Grid(EVENT_COLUMNS, tuple(rows), "Nothing has happened to it yet")


# Hosts.


class HostOrder(NamedTuple):
    """An order of hosts. With a ``kind``, the host with the largest taken share comes first."""

    title: str
    kind: str = ""


HOST_ORDERS = (
    HostOrder("trouble"),
    HostOrder("name"),
    HostOrder("cpu taken", "cpu"),
    HostOrder("memory taken", "memory"),
)
HOST_COLUMNS = (
    Column("Host", least=HOST_SHOWN),
    Column("State"),
    Column("Load", spare=8),
    Column("Cpu taken", True),
    Column("Memory taken", True, spare=7),
    Column("Disk taken", True, spare=3),
    Column("Gpu taken", True, spare=5),
    Column("Cpu used", True, spare=6),
    Column("Host pool", least=8, spare=4),
    Column("Cluster", spare=2),
)
HOST_STATE_RANKS = {"DOWN": 0, "DRAINED": 1, "DRAINING": 2}
MARK_RANKS = {"RED": 0, "ORANGE": 1}


def mark_of(info: v0.host.HostInfo) -> str:
    """Return RED, ORANGE, or ""."""
    return info.marked.split(maxsplit=1)[0].strip(",:;") if info.marked else ""


def taken(info: v0.host.HostInfo, kind: str) -> tuple[float, float]:
    """Return the amount of a kind that is not on offer to new pods, and the host's total."""
    name = f"{kind}_mib" if kind in ("memory", "disk") else kind
    whole: float = getattr(info.capacity, name)
    free: float = getattr(info.free, name)
    return max(whole - free, 0.0), whole


def host_grid(response: v0.host_svc.QueryHostsResponse, order: HostOrder, wanted: str) -> Grid:
    found = [info for info in response.host_infos if matches(wanted, *_texts_of(info))]
    found.sort(key=lambda info: (*_host_rank(info, order), info.hostname))
    nothing = f"No host matches: {wanted}" if wanted else "There are no hosts"
    return Grid(
        HOST_COLUMNS, tuple(Row(info.hostname, _host_cells(info)) for info in found[:ROWS_MAX]), nothing, len(found)
    )


def _texts_of(info: v0.host.HostInfo) -> Iterator[str]:
    yield from (info.hostname, state_of(info), info.current_pool, info.cluster, info.marked)
    yield from (f"{label.key}={label.value}" for label in info.labels)


def _host_rank(info: v0.host.HostInfo, order: HostOrder) -> tuple[float, ...]:
    if order.kind:
        held, whole = taken(info, order.kind)
        return (-(held / whole) if whole else 1.0,)
    if order.title == "name":
        return ()
    rank = HOST_STATE_RANKS.get(state_of(info), 9), MARK_RANKS.get(mark_of(info), 9), not info.avoided
    return tuple(map(float, rank))


def load_word(info: v0.host.HostInfo) -> str:
    return UNSCHEDULABLE if is_unschedulable(info) else "avoided" if info.avoided else ""


def _host_cells(info: v0.host.HostInfo) -> tuple[Text, ...]:
    is_known, mark = info.HasField("capacity"), mark_of(info)
    amounts = [text(_share(info, kind) if is_known else "") for kind in KINDS]
    return (
        text(info.hostname),
        state_text(state_of(info)),
        text(mark or load_word(info), MARK_STYLES.get(mark, "yellow")),
        *amounts,
        text(f"{info.used.cpu:.1f}" if info.HasField("used") else ""),
        text(info.current_pool),
        text(info.cluster),
    )


def _share(info: v0.host.HostInfo, kind: str) -> str:
    held, whole = taken(info, kind)
    return f"{amount(kind, held)}/{amount(kind, whole)}" if whole else ""


POD_COLUMNS = (
    Column("Pod"),
    Column("State"),
    Column("Job", least=8, spare=6),
    Column("Pool", least=8, spare=5),
    Column("Since", True, spare=2),
    Column("Cpu", True, spare=4),
    Column("Memory", True, spare=3),
    Column("Kind", least=6, spare=1),
)


def pod_grid(pods: Iterable[v0.overview.HostPod], wanted: str, now: datetime) -> Grid:
    """Return the pods of one host in the order of the answer: by pool, the highest priority first."""
    rows = []
    for pod in pods:
        state, name = v0.task.TaskState.Name(pod.state), f"{pod.job_id[:ID_SHOWN]}-{pod.instance_id}"
        words = [pod.workload, *(["leaving"] if pod.is_leaving else []), *(["revocable"] if pod.is_revocable else [])]
        if not matches(wanted, pod.pod_id, pod.job_name, pod.pool_path, state, *words):
            continue
        cells = (
            text(name),
            state_text(state),
            text(pod.job_name),
            text(pod.pool_path),
            text(age_text(pod.since, now)),
            text(amount("cpu", pod.asked.cpu)),
            text(amount("memory", pod.asked.memory_mib)),
            text(" ".join(words)),
        )
        rows.append(Row(f"{pod.job_id}-{pod.instance_id}", cells))
    return Grid(POD_COLUMNS, tuple(rows), "No pods are on this host")
