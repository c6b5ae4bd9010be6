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
from cli.pools import number
from cli.respool.tree import bar_of
from cli.times import parse_time, seconds_text
from cli.top.asked import matches
from cli.top.grid import Column, Grid, rows_of, text, visible
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
WIDTH_WITHOUT_BAR = 64
"""The width of the other columns."""


class PoolLine(NamedTuple):
    path: str
    name: str
    amounts: v0.explain.PoolAmounts
    queued: int = 0


def kinds_of(answer: v0.explain.PoolTreeResponse) -> list[str]:
    """Return the kinds that the cluster has, in the order of KINDS."""
    capacity = {each.kind for pool in answer.pools[:1] for each in pool.amounts if each.limit > 0}
    return [kind for kind in KINDS if kind in capacity] or [KINDS[0]]


def pool_grid(answer: v0.explain.PoolTreeResponse, kind: str, order: PoolOrder, wanted: str, width: int) -> Grid:
    """Return the table of one kind of resource; its bars have one scale: the whole cluster."""
    capacity = next((each.limit for pool in answer.pools[:1] for each in pool.amounts if each.kind == kind), 0.0)
    bar = max(min(width - WIDTH_WITHOUT_BAR, BAR_WIDTH_MAX), BAR_WIDTH_MIN)
    found = [line for pool in answer.pools if matches(wanted, pool.path) for line in _pool_lines(pool, kind, order)]
    if order.key is not None:
        found.sort(key=lambda line: (-_sort_key(order, line.amounts), line.path))
    columns = pool_columns(capacity, bar)
    nothing = f"No pool matches: {wanted}" if wanted else "There are no pools"
    return Grid(columns, rows_of(columns, found[:ROWS_MAX], lambda line: line.path), nothing, len(found))


def _sort_key(order: PoolOrder, amounts: v0.explain.PoolAmounts) -> float:
    assert order.key is not None
    return order.key(amounts)


def _pool_lines(pool: v0.explain.PoolNode, kind: str, order: PoolOrder) -> Iterator[PoolLine]:
    """Yield the line of the pool, and in the tree those of its parts of the hosts."""
    is_tree = order.key is None
    name = "  " * pool.depth + (pool.path.rpartition("/")[2] or "/") if is_tree else pool.path
    yield PoolLine(pool.path, name, _amounts(pool.amounts, kind), pool.queuedInstances)
    for part in pool.onHosts if is_tree else ():
        yield PoolLine(pool.path, f"{'  ' * (pool.depth + 1)}in {part.hostPools}", _amounts(part.amounts, kind))


def _amounts(amounts: Iterable[v0.explain.PoolAmounts], kind: str) -> v0.explain.PoolAmounts:
    """Return the amounts of one kind; they have no kind when the pool has none of it."""
    return next((each for each in amounts if each.kind == kind), v0.explain.PoolAmounts())


def pool_columns(capacity: float, width: int) -> tuple[Column[PoolLine], ...]:
    def cell(of: Callable[[v0.explain.PoolAmounts], Text]) -> Callable[[PoolLine], Text]:
        """Return the cell of a pool's amounts; it is empty when the pool has none of the kind."""
        return lambda line: of(line.amounts) if line.amounts.kind else text("")

    def number_of(name: str, style: str = "") -> Callable[[PoolLine], Text]:
        """Return the cell of an amount; it is empty for nothing."""
        return cell(lambda each: text(amount(each.kind, value) if (value := getattr(each, name)) else "", style))

    return (
        Column("Pool", least=10, cell=lambda line: visible(Text(line.name, no_wrap=True, end=""))),
        Column("Queued", True, spare=3, cell=lambda line: text(line.queued or "", "yellow")),
        Column("", cell=cell(lambda each: pool_bar(each, capacity, width))),
        Column("Alloc", True, cell=cell(
            lambda each: text(amount(each.kind, each.allocation), "bold" if each.allocation > each.entitlement else "")
        )),
        Column("Entitled", True, cell=cell(lambda each: text(amount(each.kind, each.entitlement)))),
        Column("Demand", True, cell=number_of("demand", "yellow")),
        Column("Reserved", True, spare=2, cell=number_of("reservation")),
        Column("Limit", True, spare=1, cell=cell(
            lambda each: text("none" if math.isinf(each.limit) else amount(each.kind, each.limit))
        )),
    )  # fmt: skip


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


def job_grid(jobs: Iterable[v0.table.JobRow], now: datetime) -> Grid:
    columns: tuple[Column[v0.table.JobRow], ...] = (
        Column("Job", least=12, cell=lambda job: text(job.name or job.id.value)),
        Column("State", cell=lambda job: state_text(v0.job.JobState.Name(job.state))),
        Column("Instances", least=10, cell=lambda job: counts_text(job.taskStats) or text(job.instanceCount)),
        Column("Age", True, cell=lambda job: text(age_text(job.creationTime, now))),
        Column("Pool", least=8, spare=4, cell=lambda job: text(job.poolPath)),
        Column("Owner", least=6, spare=2, cell=lambda job: text(job.owner)),
        Column("Type", spare=1, cell=lambda job: text(v0.job.JobType.Name(job.type))),
        Column("Update", least=10, spare=5,
               cell=lambda job: text(update_text(job.update) if job.HasField("update") else "", "yellow")),
        Column("Id", spare=3, cell=lambda job: text(job.id.value[:ID_SHOWN])),
    )  # fmt: skip
    return Grid(columns, rows_of(columns, jobs, lambda job: job.id.value), "No jobs found")


def update_text(update: v0.table.JobUpdate) -> str:
    """Return the state of an update; empty once it has succeeded."""
    state = v0.update.State.Name(update.state)
    if state == "SUCCEEDED":
        return ""
    stalled = " stalled" if update.stalledTime else ""
    failed = update.failedRunCount
    runs = f", {failed} run{'' if failed == 1 else 's'} failed" if failed else ""
    return f"{state}{stalled} {update.doneCount}/{update.totalCount}{runs}"


def instance_grid(tasks: Iterable[v0.task.TaskInfo], now: datetime) -> Grid:
    columns: tuple[Column[v0.task.TaskInfo], ...] = (
        Column("Instance", True, cell=lambda task: text(task.instanceId)),
        Column("State", cell=lambda task: state_text(v0.task.TaskState.Name(task.runtime.state))),
        Column("Host", least=HOST_SHOWN, cell=lambda task: text(task.runtime.host)),
        Column("Runs", True, spare=2, cell=lambda task: text(task.runtime.mesosTaskId.value.rpartition("-")[2])),
        Column("Took", True, spare=4,
               cell=lambda task: text(took_text(task.runtime.startTime, task.runtime.completionTime, now))),
        Column("Health", spare=1, cell=lambda task: health_text(task.runtime)),
        Column("Message", least=12, spare=3,
               cell=lambda task: text(status_text(task.runtime.message, task.runtime.reason))),
    )  # fmt: skip
    return Grid(columns, rows_of(columns, tasks, lambda task: str(task.instanceId)), "No instances found")


def health_text(runtime: v0.task.RuntimeInfo) -> Text:
    health = v0.task.HealthState.Name(runtime.healthy)
    return text("" if health in ("INVALID", "DISABLED", "HEALTH_UNKNOWN") else health)


def took_text(start: str, stop: str, now: datetime) -> str:
    begin = parse_time(start)
    return "" if begin is None else duration_text(((parse_time(stop) or now) - begin).total_seconds())


EVENT_COLUMNS: tuple[Column[v0.task.PodEvent], ...] = (
    Column("Time", cell=lambda event: text(seconds_text(event.timestamp))),
    Column("Run", True, cell=lambda event: text(event.taskId.value.rpartition("-")[2])),
    Column("State", cell=lambda event: state_text(event.actualState)),
    Column("Goal", spare=1, cell=lambda event: text(event.goalState)),
    Column("Host", least=8, cell=lambda event: text(event.hostname)),
    Column("Message", least=12, spare=2,
           cell=lambda event: text("; ".join(filter(None, (event.reason, event.message))))),
)  # fmt: skip


def event_grid(response: v0.task.GetPodEventsResponse) -> Grid:
    """Return the events in the order of the answer: newest first."""
    rows = rows_of(EVENT_COLUMNS, response.result, lambda event: event.taskId.value)
    return Grid(EVENT_COLUMNS, rows, "Nothing has happened to it yet")


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
HOST_STATE_RANKS = {"DOWN": 0, "DRAINED": 1, "DRAINING": 2}
MARK_RANKS = {"RED": 0, "ORANGE": 1}


def mark_of(info: v0.host.HostInfo) -> str:
    """Return RED, ORANGE, or ""."""
    return info.marked.split(maxsplit=1)[0].strip(",:;") if info.marked else ""


def sum_taken(info: v0.host.HostInfo, kind: str) -> tuple[float, float]:
    """Return the amount of a kind that is not on offer to new pods, and the host's total."""
    name = f"{kind}_mib" if kind in ("memory", "disk") else kind
    whole: float = getattr(info.capacity, name)
    free: float = getattr(info.free, name)
    return max(whole - free, 0.0), whole


def host_grid(response: v0.host_svc.QueryHostsResponse, order: HostOrder, wanted: str) -> Grid:
    found = [info for info in response.host_infos if matches(wanted, *_texts_of(info))]
    found.sort(key=lambda info: (*_host_rank(info, order), info.hostname))
    nothing = f"No host matches: {wanted}" if wanted else "There are no hosts"
    rows = rows_of(HOST_COLUMNS, found[:ROWS_MAX], lambda info: info.hostname)
    return Grid(HOST_COLUMNS, rows, nothing, len(found))


def _texts_of(info: v0.host.HostInfo) -> Iterator[str]:
    yield from (info.hostname, state_of(info), info.current_pool, info.cluster, info.marked)
    yield from (f"{label.key}={label.value}" for label in info.labels)


def _host_rank(info: v0.host.HostInfo, order: HostOrder) -> tuple[float, ...]:
    if order.kind:
        taken, whole = sum_taken(info, order.kind)
        return (-(taken / whole) if whole else 1.0,)
    if order.title == "name":
        return ()
    rank = HOST_STATE_RANKS.get(state_of(info), 9), MARK_RANKS.get(mark_of(info), 9), not info.avoided
    return tuple(map(float, rank))


def load_text(info: v0.host.HostInfo) -> Text:
    mark = mark_of(info)
    word = UNSCHEDULABLE if is_unschedulable(info) else "avoided" if info.avoided else ""
    return text(mark or word, MARK_STYLES.get(mark, "yellow"))


def share_of(kind: str) -> Callable[[v0.host.HostInfo], Text]:
    """Return the cell of one kind: the taken amount and the total."""

    def cell(info: v0.host.HostInfo) -> Text:
        taken, whole = sum_taken(info, kind) if info.HasField("capacity") else (0, 0)
        return text(f"{amount(kind, taken)}/{amount(kind, whole)}" if whole else "")

    return cell


HOST_COLUMNS: tuple[Column[v0.host.HostInfo], ...] = (
    Column("Host", least=HOST_SHOWN, cell=lambda info: text(info.hostname)),
    Column("State", cell=lambda info: state_text(state_of(info))),
    Column("Load", spare=8, cell=load_text),
    Column("Cpu taken", True, cell=share_of("cpu")),
    Column("Memory taken", True, spare=7, cell=share_of("memory")),
    Column("Disk taken", True, spare=3, cell=share_of("disk")),
    Column("Gpu taken", True, spare=5, cell=share_of("gpu")),
    Column("Cpu used", True, spare=6,
           cell=lambda info: text(f"{info.used.cpu:.1f}" if info.HasField("used") else "")),
    Column("Host pool", least=8, spare=4, cell=lambda info: text(info.current_pool)),
    Column("Cluster", spare=2, cell=lambda info: text(info.cluster)),
)  # fmt: skip


def words_of(pod: v0.overview.HostPod) -> list[str]:
    return [pod.workload, *(["leaving"] if pod.is_leaving else []), *(["revocable"] if pod.is_revocable else [])]


def pod_grid(pods: Iterable[v0.overview.HostPod], wanted: str, now: datetime) -> Grid:
    """Return the pods of one host in the order of the answer: by pool, the highest priority first."""
    columns: tuple[Column[v0.overview.HostPod], ...] = (
        Column("Pod", cell=lambda pod: text(f"{pod.job_id[:ID_SHOWN]}-{pod.instance_id}")),
        Column("State", cell=lambda pod: state_text(v0.task.TaskState.Name(pod.state))),
        Column("Job", least=8, spare=6, cell=lambda pod: text(pod.job_name)),
        Column("Pool", least=8, spare=5, cell=lambda pod: text(pod.pool_path)),
        Column("Since", True, spare=2, cell=lambda pod: text(age_text(pod.since, now))),
        Column("Cpu", True, spare=4, cell=lambda pod: text(amount("cpu", pod.asked.cpu))),
        Column("Memory", True, spare=3, cell=lambda pod: text(amount("memory", pod.asked.memory_mib))),
        Column("Kind", least=6, spare=1, cell=lambda pod: text(" ".join(words_of(pod)))),
    )
    found = [
        pod
        for pod in pods
        if matches(wanted, pod.pod_id, pod.job_name, pod.pool_path, v0.task.TaskState.Name(pod.state), *words_of(pod))
    ]
    rows = rows_of(columns, found, lambda pod: f"{pod.job_id}-{pod.instance_id}")
    return Grid(columns, rows, "No pods are on this host")
