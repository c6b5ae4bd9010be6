"""The table of metrics: every instrument with its kind, unit, labels, roles and help.

docs/metrics.md, the dashboards and the alerts are made of it, and no other module names an instrument that it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod

SERIES_MAX = 20_000
"""Limit of the label values of one instrument in one process; further ones are counted together by the SDK."""
SERIES_MIN = 10
SUFFIXES = {"s": "seconds", "By": "bytes"}
"""Endings of Prometheus' names by unit; other units are in the name."""


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


LABELS: dict[str, tuple[int, str]] = {
    "activity": (100, "type of a Temporal activity"),
    "call": (10, "kind of a call of Temporal"),
    "change": (2, "`won` or `lost`"),
    "class": (20, "class of records that age"),
    "code": (17, "status of gRPC, such as `OK`"),
    "end": (3, "state in which a job ended"),
    "database": (2, "`sqlite` or `postgresql`"),
    "error": (3, "`conflict`, `unavailable` or `other`"),
    "kind": (
        20,
        "kind of resource, such as `cpu`; of an eviction, `inside` a pool or `between` pools",
    ),
    "lease": (50, "lease of a leader: `resmgr` or `hostmgr/CLUSTER`"),
    "method": (400, "method of gRPC, as `SERVICE/METHOD`"),
    "of": (10, "what is counted"),
    "outcome": (5, "what became of it"),
    "peer": (4, "role that is called"),
    "pool": (2_000, "path of a resource pool"),
    "queue": (6, "queue of a pool"),
    "rank": (6, "rank of a signal"),
    "rule": (10, "bound that was reached"),
    "cause": (10, "rule that evicts a pod"),
    "state": (20, "state of pods or hosts"),
    "type": (6, "type of a job"),
    "waker": (20, "kind of workflows that are signalled"),
    "work": (2, "`read` or `write`"),
}
"""Labels, each with a bound on its values and their meaning."""

FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CALL_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0)
WAIT_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0)
LIFE_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
SIZES = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


@dataclass(frozen=True)
class Row:
    """An instrument. ``bounds`` are those of a histogram's buckets."""

    name: str
    kind: Kind
    unit: str  # as UCUM has it: s, By, or a noun in braces
    roles: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def series_max(self) -> int:
        """Return the limit of label values that are kept apart."""
        return min(max(prod(LABELS[label][0] for label in self.labels), SERIES_MIN), SERIES_MAX)

    @property
    def prometheus_name(self) -> str:
        """Return the name that Prometheus scrapes."""
        parts = [self.name.replace(".", "_")]
        if (suffix := SUFFIXES.get(self.unit)) and not self.name.endswith(suffix):
            parts.append(suffix)
        if self.kind is Kind.COUNTER:
            parts.append("total")
        return "_".join(parts)


def _counter(name: str, unit: str, roles: str, text: str, *labels: str) -> Row:
    return Row(name, Kind.COUNTER, unit, roles, text, labels)


def _gauge(name: str, unit: str, roles: str, text: str, *labels: str) -> Row:
    return Row(name, Kind.GAUGE, unit, roles, text, labels)


def _histogram(name: str, roles: str, text: str, bounds: tuple[float, ...], *labels: str, unit: str = "s") -> Row:
    return Row(name, Kind.HISTOGRAM, unit, roles, text, labels, bounds=bounds)


SERVERS = "api worker resmgr hostmgr"
LEADERS = "resmgr hostmgr"
WAKERS = "api resmgr hostmgr"
AMOUNT = "{amount}"
"""Unit of amounts of resources: cores, MiB and gpus, by the label ``kind``."""

ROWS: tuple[Row, ...] = (
    # Pools.
    _gauge("peloton.pool.allocation", AMOUNT, "resmgr", "resources that a pool holds", "pool", "kind"),
    _gauge("peloton.pool.demand", AMOUNT, "resmgr", "resources that waiting gangs request", "pool", "kind"),
    _gauge("peloton.pool.entitlement", AMOUNT, "resmgr", "resources that a pool may use now", "pool", "kind"),
    _gauge("peloton.pool.reservation", AMOUNT, "resmgr", "resources that a pool is guaranteed", "pool", "kind"),
    _gauge("peloton.pool.limit", AMOUNT, "resmgr", "resources that a pool never exceeds", "pool", "kind"),
    _gauge("peloton.pool.queue_length", "{pod}", "resmgr", "waiting pods of a leaf pool", "pool", "queue"),
    _counter("peloton.pool.admitted", "{pod}", "resmgr", "admitted pods", "pool"),
    _counter("peloton.pool.preempted", "{pod}", "resmgr", "pods evicted for a waiting gang", "pool", "kind"),
    _counter("peloton.pool.requeued", "{pod}", "resmgr", "pods queued again for want of a host", "pool"),
    _histogram("peloton.pool.wait_time", "resmgr", "time from the queue to admission", WAIT_S, "pool"),
    _histogram(
        "peloton.job.admission_time",
        "resmgr",
        "time from the submission of a job to the admission of its first pods",
        WAIT_S,
    ),
    _histogram("peloton.resmgr.cycle_time", "resmgr", "duration of a cycle of admission", FAST_S),
    _counter("peloton.resmgr.broken_invariants", "{fault}", "resmgr", "faults that the audit of a cycle found"),
    # Jobs and pods.
    _histogram("peloton.job.duration", "worker hostmgr", "time from submission to the end", LIFE_S, "type", "end"),
    _counter("peloton.pod.retries", "{pod}", "hostmgr", "further runs of pods that ended"),
    _counter("peloton.sla.refused", "{pod}", "worker hostmgr", "pods that the SLA of their service kept in place"),
    # Hosts.
    _histogram("peloton.placement.duration", "hostmgr", "duration of the placement of a batch", FAST_S),
    _counter("peloton.placement.pods", "{pod}", "hostmgr", "pods of placements, `placed` or `no_host`", "outcome"),
    _counter("peloton.launch.pods", "{pod}", "hostmgr", "launches: `launched`, `refused` or `failed`", "outcome"),
    _histogram(
        "peloton.pod.launch_time",
        "hostmgr",
        "time from a launch to reports RUNNING, once for each batch of reports",
        WAIT_S,
    ),
    _counter("peloton.status.reports", "{report}", "hostmgr", "reports of the cluster that were stored", "state"),
    _histogram("peloton.status.batch", "hostmgr", "reports stored in one transaction", COUNTS, unit="{report}"),
    _gauge("peloton.status.waiting", "{report}", "hostmgr", "reports that wait to be stored"),
    _counter("peloton.status.dropped", "{report}", "hostmgr", "reports dropped because the queue was full"),
    _counter("peloton.reconcile.rounds", "{round}", "hostmgr", "reconciliations with the cluster", "outcome"),
    _gauge("peloton.hosts.registered", "{host}", "hostmgr", "hosts by state", "state"),
    _gauge("peloton.hosts.capacity", AMOUNT, "hostmgr", "resources of hosts that are up", "kind"),
    _gauge("peloton.hosts.free", AMOUNT, "hostmgr", "free resources of the hosts", "kind"),
    _gauge("peloton.hosts.offers", "{offer}", "hostmgr", "offers that the host manager has"),
    _gauge("peloton.hosts.used", AMOUNT, "hostmgr", "measured usage of hosts with revocable pods", "kind"),
    _gauge("peloton.hosts.slack", "{core}", "hostmgr", "cores that revocable pods may use"),
    _gauge("peloton.hosts.slack_held", "{core}", "hostmgr", "cores that revocable pods hold"),
    _gauge("peloton.hosts.reserved", "{host}", "hostmgr", "hosts reserved for pods that fit on none"),
    _gauge("peloton.hosts.avoided", "{host}", "hostmgr", "hosts that pods avoid for a while"),
    _gauge("peloton.qos.hot_hosts", "{host}", "hostmgr", "hosts above the bound of usage"),
    _counter("peloton.qos.evicted", "{pod}", "hostmgr", "revocable pods evicted from hot hosts", "cause"),
    # Records that age.
    _counter("peloton.retention.deleted", "{row}", "resmgr", "jobs or rows deleted because of their age", "class"),
    _counter("peloton.retention.archived", "By", "resmgr", "bytes written to the archive", "class"),
    _histogram(
        "peloton.retention.transaction", "resmgr", "time in the database of one step of the deletion", CALL_S, "class"
    ),
    _counter("peloton.retention.failures", "{round}", "resmgr", "rounds of a class that failed", "class"),
    # Interfaces.
    _counter("peloton.audit.entries", "{entry}", "api", "entries of the audit log"),
    _counter("peloton.audit.lost", "{entry}", "api", "entries beyond the bounds of the audit log"),
    _counter("peloton.api.refused", "{call}", "api", "calls refused by a bound", "rule"),
    _gauge("peloton.api.backlog", "{item}", "api", "jobs and pods that the api counts before it admits calls", "of"),
    _gauge("peloton.watch.clients", "{watch}", "api", "open watches"),
    _counter("peloton.grpc.calls", "{call}", "api resmgr hostmgr", "calls that were served", "method", "code"),
    _histogram("peloton.grpc.duration", "api resmgr hostmgr", "duration of unary calls", CALL_S, "method"),
    _histogram("peloton.grpc.request_size", "api resmgr", "size of requests", SIZES, unit="By"),
    _counter("peloton.grpc.peer_calls", "{call}", "worker resmgr hostmgr", "calls of other roles", "peer", "code"),
    _histogram(
        "peloton.grpc.peer_duration", "worker resmgr hostmgr", "duration of calls of other roles", CALL_S, "peer"
    ),
    # Stores.
    _histogram("peloton.db.duration", SERVERS, "duration of transactions", FAST_S, "database", "work"),
    _counter("peloton.db.errors", "{transaction}", SERVERS, "transactions that failed", "database", "error"),
    _counter("peloton.db.retries", "{transaction}", SERVERS, "transactions repeated after a conflict", "database"),
    _gauge("peloton.db.connections", "{connection}", SERVERS, "connections of the pool in use", "database"),
    _histogram("peloton.temporal.duration", WAKERS, "duration of calls of Temporal", CALL_S, "call"),
    _counter("peloton.temporal.errors", "{call}", WAKERS, "calls of Temporal that failed", "call"),
    _histogram("peloton.activity.duration", "worker", "duration of activities", CALL_S, "activity", "outcome"),
    _gauge("peloton.wakeups.waiting", "{signal}", WAKERS, "signals that wait to be sent", "waker", "rank"),
    _counter("peloton.wakeups.failed", "{signal}", WAKERS, "signals that Temporal did not take, repeated later"),
    _counter("peloton.sweep.jobs", "{job}", WAKERS, "jobs whose workflows had missed changes"),
    # Leadership.
    _gauge("peloton.leader.leads", "{leader}", LEADERS, "1 while this process leads", "lease"),
    _counter("peloton.leader.changes", "{change}", LEADERS, "leases won and lost", "lease", "change"),
    _counter("peloton.leader.late_renewals", "{renewal}", LEADERS, "renewals that failed or came late", "lease"),
    # Processes.
    _gauge(
        "peloton.tls.certificate_expiry",
        "s",
        "api worker resmgr hostmgr web aurorabridge",
        "unix time at which the certificate of the process expires, where it has one",
    ),
    _gauge("peloton.process.started", "s", "api worker resmgr hostmgr web aurorabridge", "unix time of the start"),
)

TABLE = {row.name: row for row in ROWS}
