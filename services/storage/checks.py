"""Checks of the store: rules that hold between rows, since the schema has no foreign keys.

A rule is one row of CHECKS. A check reads the rows of its table by key, CHECK_ROWS keys at a time and each part in a
transaction of its own, so it may run next to a serving system; it writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS
from peloton.lifecycle.retention import PODS
from peloton.model.host_pool import DEFAULT_HOST_POOL
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.job import JobState, JobType
from services.storage.admission.snapshot import STATUS_SEQ
from services.storage.engine import Repository
from services.storage.hosts.host_events import HOST_EVENTS_SEQ
from services.storage.tables import FINISHED_STATES, METADATA
from services.storage.watch_log import WATCH_SEQ

CHECK_ROWS = 5_000
"""Maximum number of keys of a table that one query reads."""
IDS_SHOWN = 5
"""Number of ids that a finding has."""
LEASE_AHEAD_MAX_S = 86_400
"""Time by which a lease may outlast now."""

_UUID = "||'-'||".join(f"substr({{0}},{at},{size})" for at, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
_WORDS = {
    "sqlite": {
        "job_id": _UUID.format("job.job_id"),
        "update_id": _UUID.format("job_update.update_id"),
        "counts": "json_each(job.pod_counts)",
        "parent": "(respool.spec ->> 'parent_id')",
        "now_s": "unixepoch()",
    },
    "postgresql": {
        "job_id": "job.job_id::text",
        "update_id": "job_update.update_id::text",
        "counts": "json_each_text(job.pod_counts::json)",
        "parent": "(respool.spec::json ->> 'parent_id')",
        "now_s": "extract(epoch FROM now())",
    },
}
"""Expressions that the databases spell differently, by their names in conditions."""
_ENDED = f"job.state IN ({', '.join(map(str, FINISHED_STATES))})"
_IS_DELETED = f"job.state = {JOB_STATE_NUMBERS[JobState.DELETED]}"
_IS_BATCH = f"job.type = {JOB_TYPE_NUMBERS[JobType.BATCH]}"


@dataclass(frozen=True)
class Check:
    """Rule on the rows of a table: ``broken`` is the SQL condition of those that break it, ``id`` are the columns that
    name one. ``is_note`` marks rows on which a person decides; they are no fault."""

    name: str
    table: str
    rule: str
    broken: str
    id: str = "job_id"
    is_note: bool = False


@dataclass(frozen=True)
class Finding:
    check: Check
    count: int
    first_ids: tuple[str, ...]


def _no(other: str, condition: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {other} WHERE {condition})"  # noqa: S608 - of constants, as all SQL here


def _has(parent: str, table: str, key: str, id_: str = "") -> Check:
    missing = _no(parent, f"{parent}.{key} = {table}.{key}")
    return Check(f"{table} without {parent}", table, f"its {parent} exists", missing, id_ or key)


def _is_counted(table: str, counter: str) -> Check:
    passed = f"{table}.seq > (SELECT value FROM counter WHERE name = '{counter}')"  # noqa: S608
    return Check(f"{table} beyond its counter", table, f"the counter {counter} gave out its number", passed, "seq")


def _no_pod(table: str) -> str:
    return _no("pod", f"pod.job_id = {table}.job_id AND pod.instance_id = {table}.instance_id")


_POD = "job_id instance_id"
CHECKS: tuple[Check, ...] = (
    _has("job", "pod", "job_id", _POD),
    _has("job", "pod_event", "job_id", _POD),
    _has("job", "pod_containers", "job_id", _POD),
    _has("job", "job_config", "job_id", "job_id version"),
    _has("job", "job_label", "job_id", "job_id label"),
    _has("job", "job_secret", "job_id", "job_id secret_id"),
    _has("job", "job_wake", "job_id"),
    _has("job", "job_update", "job_id", "update_id"),
    _has("job", "disruption", "job_id", "job_id seq"),
    _has("job", "daemon_host", "job_id", _POD),
    _has("job", "external_pod", "job_id", "cluster uid"),
    _has("job_update", "job_update_event", "update_id", "update_id seq"),
    _has("migration", "migration_service", "migration_id", "migration_id job_id"),
    _has("migration", "migration_pool", "migration_id", "migration_id pool_id"),
    _has("rebalance", "rebalance_move", "cluster", "cluster seq"),
    Check(
        "job_config_override without job",
        "job_config_override",
        "its job exists, or a stream creates it",
        f"{_no('job', 'job.job_id = job_config_override.job_id')}"
        f" AND {_no('job_stream', 'job_stream.job_id = job_config_override.job_id')}",
        "job_id instance_id version",
    ),
    Check("pod_containers without pod", "pod_containers", "its pod exists", _no_pod("pod_containers"), _POD),
    Check("external_pod without pod", "external_pod", "its instance exists", _no_pod("external_pod"), "cluster uid"),
    Check(
        "job without pool",
        "job",
        "the resource pool of a job that has not ended exists",
        f"NOT {_ENDED} AND NOT {_IS_DELETED} AND job.respool_id <> ''"
        f" AND {_no('respool', 'respool.respool_id = job.respool_id')}",
    ),
    Check(
        "job without configuration",
        "job",
        "its current configuration exists",
        _no("job_config", "job_config.job_id = job.job_id AND job_config.version = job.config_version"),
    ),
    Check(
        "job without update",
        "job",
        "its latest update exists",
        "job.update_id <> '' AND "
        + _no("job_update", "job_update.job_id = job.job_id AND {update_id} = job.update_id"),
    ),
    Check(
        "job with other pod counts",
        "job",
        "the counts of a batch job that has ended equal its pods by state, until retention has deleted these",
        f"{_IS_BATCH} AND {_ENDED} AND {_no('job_wake', 'job_wake.job_id = job.job_id')}"  # noqa: S608
        f" AND job.completed_ns > coalesce((SELECT ended_ns FROM retention_progress WHERE name = '{PODS}'), -1)"
        " AND EXISTS (SELECT 1 FROM {counts} AS each WHERE CAST(each.value AS BIGINT) <>"
        " (SELECT count(*) FROM pod WHERE pod.job_id = job.job_id AND pod.state = CAST(each.key AS SMALLINT)))",
    ),
    Check(
        "cluster_binding without object",
        "cluster_binding",
        "its job or resource pool exists",
        f"{_no('respool', 'respool.respool_id = cluster_binding.object_id')}"
        f" AND {_no('job', '{job_id} = cluster_binding.object_id')}",
        "object_id",
    ),
    Check(
        "respool without parent",
        "respool",
        "its parent exists, or is the root",
        f"{{parent}} NOT IN ('', '{ROOT_POOL_ID}') AND {_no('respool AS above', 'above.respool_id = {parent}')}",
        "respool_id",
    ),
    Check(
        "host_in_pool without host pool",
        "host_in_pool",
        "its host pool exists",
        f"host_in_pool.pool <> '{DEFAULT_HOST_POOL}' AND {_no('host_pool', 'host_pool.name = host_in_pool.pool')}",
        "hostname",
    ),
    Check(
        "volume without host and job",
        "volume",
        "a volume without a host, which has no data, has a job that exists",
        f"volume.host = '' AND {_no('job', 'job.job_id = volume.job_id')}",
        "volume_id",
    ),
    Check(
        "volume of a deleted job",
        "volume",
        "it counts against its pool until `peloton volume delete` releases it",
        f"volume.host <> '' AND {_no('job', 'job.job_id = volume.job_id')}",
        "volume_id",
        is_note=True,
    ),
    Check(
        "lease of the future",
        "lease",
        f"it ends within {LEASE_AHEAD_MAX_S // 3_600} hours; no other process leads before its end",
        f"lease.expires_s > {{now_s}} + {LEASE_AHEAD_MAX_S}",
        "role",
    ),
    _is_counted("host_event", HOST_EVENTS_SEQ),
    _is_counted("status_log", STATUS_SEQ),
    _is_counted("watch_log", WATCH_SEQ),
)


class Checks(Repository):
    def findings(self) -> Iterator[Finding]:
        """Yield the rules that rows break, in the order of CHECKS."""
        for check in CHECKS:
            if (found := self._run(check)).count:
                yield found

    def _run(self, check: Check) -> Finding:
        count, ids, after = 0, list[str](), None
        while True:
            part = self._db.read(partial(_run_part, check=check, after=after))
            count += part.count
            ids += part.first_ids[: IDS_SHOWN - len(ids)]
            if part.last is None:
                return Finding(check, count, tuple(ids))
            after = part.last


@dataclass(frozen=True)
class _Part:
    count: int
    first_ids: tuple[str, ...]
    last: tuple[Any, ...] | None


def _run_part(conn: sa.Connection, check: Check, after: tuple[Any, ...] | None) -> _Part:
    """Check the next CHECK_ROWS rows after a key; ``last`` is the key of the last one, None at the end of the table."""
    table = METADATA.tables[check.table]
    columns = list(table.primary_key.columns)
    key = sa.tuple_(*columns)
    within = [] if after is None else [key > _key(columns, after)]
    query = sa.select(*columns).where(*within).order_by(*columns).offset(CHECK_ROWS - 1).limit(1)
    end = conn.execute(query).one_or_none()
    last = None if end is None else tuple(end)
    if last is not None:
        within.append(key <= _key(columns, last))
    broken = sa.text(check.broken.format(**_WORDS[conn.dialect.name]))
    rows = conn.execute(sa.select(*(table.c[name] for name in check.id.split())).where(*within, broken)).all()
    return _Part(len(rows), tuple("/".join(map(str, row)) for row in sorted(rows)[:IDS_SHOWN]), last)


def _key(columns: Sequence[sa.Column[Any]], values: tuple[Any, ...]) -> sa.Tuple:
    return sa.tuple_(*(sa.bindparam(None, value, column.type) for column, value in zip(columns, values, strict=True)))
