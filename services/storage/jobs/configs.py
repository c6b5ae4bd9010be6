"""Configurations: one immutable row per version, and one per instance that differs from the default."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from peloton.api import convert
from peloton.api.convert_layout import layout
from peloton.api.merge import effective_task_config, merge_config
from peloton.api.pod_parts import is_checked
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId
from peloton.model.pod import HealthState, ShapeRange, Strategy
from services.storage.codec import (
    BLOB_HEAD,
    InstanceFacts,
    facts_from_text,
    facts_to_text,
    facts_without_name,
    name_facts,
    pack,
    read_unpacked_size,
    unpack,
)
from services.storage.engine import Repository, key_table, key_values, reading
from services.storage.tables import JOB, JOB_CONFIG, OVERRIDE

MAX_FAILURES_MAX = 100
VERSION_MAX = 2**31 - 1
_OVERRIDES_PER_INSERT = 1_000
_SHARED_FACTS_MAX = 1_000
MessageT = TypeVar("MessageT", bound=Message)
OverrideRow = dict[str, Any]
"""Columns of a row of ``job_config_override``."""
_SPANS_PER_QUERY = 500


class Configs(Repository):
    @reading
    def job_config(
        self, conn: sa.Connection, job_id: JobId, version: int | None = None, overrides: bool = False
    ) -> job_pb2.JobConfig | None:
        """Return the configuration at ``version`` (None: the current one); ``overrides`` fills instanceConfig."""
        wanted = _resolve_version(conn, job_id, version)
        return (read_config_with_instances if overrides else read_config)(conn, job_id, wanted)

    @reading
    def overrides_size(self, conn: sa.Connection, job_id: JobId, version: int) -> tuple[int, int]:
        """Return the size in bytes and the number of the overrides in force, without reading them whole."""
        rows = conn.execute(_overrides(job_id, version, sa.func.substr(OVERRIDE.c.config, 1, BLOB_HEAD)))
        sizes = {instance_id: read_unpacked_size(head) for instance_id, head in rows}
        return sum(sizes.values()), len(sizes)

    def job_configs(self, keys: Sequence[tuple[JobId, int]]) -> dict[tuple[JobId, int], job_pb2.JobConfig]:
        """Return the existing configurations by ``(job, version)``, without their instances."""
        found = self._blobs(keys, JOB_CONFIG.c.config)
        return {key: job_pb2.JobConfig.FromString(unpack(blob)) for key, blob in found.items()}

    def job_specs(self, keys: Sequence[tuple[JobId, int]]) -> dict[tuple[JobId, int], bytes]:
        """Return the ``job_spec`` of existing configurations by ``(job, version)``."""
        return {key: unpack(blob) if blob else b"" for key, blob in self._blobs(keys, JOB_CONFIG.c.spec).items()}

    def _blobs(
        self, keys: Sequence[tuple[JobId, int]], what: sa.ColumnElement[bytes]
    ) -> dict[tuple[JobId, int], bytes]:
        def work(conn: sa.Connection) -> dict[tuple[JobId, int], bytes]:
            wanted = key_table(conn.dialect.name)  # a version is a number like an instance
            same = sa.and_(JOB_CONFIG.c.job_id == wanted.c.job_id, JOB_CONFIG.c.version == wanted.c.instance_id)
            query = sa.select(JOB_CONFIG.c.job_id, JOB_CONFIG.c.version, what).join_from(wanted, JOB_CONFIG, same)
            rows = conn.execute(query, key_values(conn.dialect.name, keys))
            return {(JobId(job_id), version): blob for job_id, version, blob in rows}

        return self._db.read(work) if keys else {}

    @reading
    def task_configs(
        self, conn: sa.Connection, job_id: JobId, version: int, instance_ids: Sequence[int]
    ) -> dict[int, task_pb2.TaskConfig]:
        """Return the effective configuration per instance, {} for an unknown version; equal ones share one message."""
        config = read_config(conn, job_id, version)
        if config is None or not instance_ids:
            return {}
        wanted = set(instance_ids)
        named = {"of_job": job_id, "of_version": version, "first": min(wanted), "last": max(wanted)}
        for row in conn.execute(_READING_OWN_CONFIGS, named):
            if row.instance_id in wanted:
                config.instanceConfig[row.instance_id].ParseFromString(unpack(row.config))
        return {instance_id: effective_task_config(config, instance_id) for instance_id in instance_ids}

    def job_spec(self, job_id: JobId, version: int | None = None) -> bytes:
        """Return the spec sent by a client of v1alpha; empty for jobs created through v0 and unknown versions."""

        return self._db.read(lambda conn: read_spec(conn, job_id, _resolve_version(conn, job_id, version)))

    def shapes_of(self, spans: Sequence[tuple[JobId, int, int, int]]) -> list[list[ShapeRange]]:
        """Return, for each ``(job, version, start, count)``, its ranges of one shape; [] for an unknown version.

        Jobs without overrides, which are most, are read many at a time.
        """

        def work(conn: sa.Connection) -> list[list[ShapeRange]]:
            found: list[list[ShapeRange]] = []
            for at in range(0, len(spans), _SPANS_PER_QUERY):
                some = spans[at : at + _SPANS_PER_QUERY]
                ids = sorted({job_id for job_id, *_ in some})
                unlike = set(
                    conn.execute(sa.select(OVERRIDE.c.job_id).where(OVERRIDE.c.job_id.in_(ids)).distinct()).scalars()
                )
                keys = [(job_id, version) for job_id, version, *_ in some if job_id not in unlike]
                shapes = {key: facts_from_text(text).shape for key, text in _default_facts(conn, keys)}
                for job_id, version, start, count in some:
                    if job_id in unlike:
                        found.append(list(shape_runs(conn, job_id, version, start, count)))
                    else:
                        shape = shapes.get((job_id, version))
                        found.append([ShapeRange(start, count, shape)] if shape else [])
            return found

        return self._db.read(work) if spans else []


def _default_facts(conn: sa.Connection, keys: Sequence[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], str]]:
    wanted = key_table(conn.dialect.name)
    same = sa.and_(JOB_CONFIG.c.job_id == wanted.c.job_id, JOB_CONFIG.c.version == wanted.c.instance_id)
    query = sa.select(JOB_CONFIG.c.job_id, JOB_CONFIG.c.version, JOB_CONFIG.c.facts).join_from(wanted, JOB_CONFIG, same)
    for job_id, version, text in conn.execute(query, key_values(conn.dialect.name, keys)):
        yield (job_id, version), text


def shape_runs(conn: sa.Connection, job_id: str, version: int, start: int, count: int) -> Iterator[ShapeRange]:
    default, overridden = read_facts(conn, job_id, version, (start, start + count - 1))
    if default is None:
        return
    begin = start
    shape = overridden.get(start, default).shape
    # Between two overrides every instance has the default: only the edges can change the shape.
    for edge in sorted({i for o in overridden for i in (o, o + 1) if start < i < start + count}):
        here = overridden.get(edge, default).shape
        if here != shape:
            yield ShapeRange(begin, edge - begin, shape)
            begin, shape = edge, here
    yield ShapeRange(begin, start + count - begin, shape)


def _resolve_version(conn: sa.Connection, job_id: str, version: int | None) -> int:
    """Return the current version for None, and 0, which no job has, for a number out of range."""
    if version is None:
        return _current_version(conn, job_id)
    return version if version <= VERSION_MAX else 0


def _current_version(conn: sa.Connection, job_id: str) -> int:
    return conn.execute(sa.select(JOB.c.config_version).where(JOB.c.job_id == job_id)).scalar() or 0


def read_config(conn: sa.Connection, job_id: str, version: int) -> job_pb2.JobConfig | None:
    """Read a configuration without instanceConfig."""
    blob = conn.execute(_READING_CONFIG, {"of_job": job_id, "of_version": version}).scalar()
    return None if blob is None else job_pb2.JobConfig.FromString(unpack(blob))


def read_config_with_instances(conn: sa.Connection, job_id: str, version: int) -> job_pb2.JobConfig | None:
    config = read_config(conn, job_id, version)
    if config is not None:
        for row in conn.execute(_overrides(job_id, version, OVERRIDE.c.config)):
            config.instanceConfig[row.instance_id].ParseFromString(unpack(row.config))
    return config


def read_spec(conn: sa.Connection, job_id: str, version: int) -> bytes:
    query = sa.select(JOB_CONFIG.c.spec).where(JOB_CONFIG.c.job_id == job_id, JOB_CONFIG.c.version == version)
    blob = conn.execute(query).scalar()
    return unpack(blob) if blob else b""


def read_facts(
    conn: sa.Connection, job_id: str, version: int, span: tuple[int, int]
) -> tuple[InstanceFacts | None, dict[int, InstanceFacts]]:
    """Read the facts of the default, and of the overridden instances in the inclusive ``span``."""
    named = {"of_job": job_id, "of_version": version}
    text = conn.execute(_READING_FACTS, named).scalar()
    if text is None:
        return None, {}
    rows = conn.execute(_READING_OWN_FACTS, {**named, "first": span[0], "last": span[1]})
    return facts_from_text(text), {row.instance_id: facts_from_text(row.facts) for row in rows}


def facts_of(conn: sa.Connection, job_id: str, versions: Mapping[int, int]) -> dict[int, InstanceFacts]:
    """Read the facts of instances, each at its given version, which must exist."""
    if not versions:
        return {}
    span = (min(versions), max(versions))
    known = {version: read_facts(conn, job_id, version, span) for version in set(versions.values())}
    found: dict[int, InstanceFacts] = {}
    for instance, version in versions.items():
        default, overridden = known[version]
        own = overridden.get(instance, default)
        assert own is not None, f"job {job_id} has no configuration {version}"
        found[instance] = own
    return found


def _overrides(
    job_id: str | sa.BindParameter[str],
    version: int | sa.BindParameter[int],
    what: sa.ColumnElement[Any],
    span: tuple[int | sa.BindParameter[int], int | sa.BindParameter[int]] | None = None,
) -> sa.Select[Any]:
    """Select overrides in force at ``version``, by rising version: the last row of an instance applies."""
    of_version = sa.and_(JOB_CONFIG.c.job_id == job_id, JOB_CONFIG.c.version == version)
    oldest = sa.select(JOB_CONFIG.c.overrides_from).where(of_version).scalar_subquery()
    in_force = OVERRIDE.c.version.between(oldest, version)
    query = sa.select(OVERRIDE.c.instance_id, what).where(OVERRIDE.c.job_id == job_id, in_force)
    if span is not None:
        query = query.where(OVERRIDE.c.instance_id.between(*span))
    return query.order_by(OVERRIDE.c.instance_id, OVERRIDE.c.version)


# Built once: they are part of each creation, enqueue and launch of pods.
_OF_JOB, _OF_VERSION = sa.bindparam("of_job", type_=JOB.c.job_id.type), sa.bindparam("of_version", type_=sa.BigInteger)
_SPAN = sa.bindparam("first", type_=sa.BigInteger), sa.bindparam("last", type_=sa.BigInteger)
_READING_FACTS = sa.select(JOB_CONFIG.c.facts).where(
    JOB_CONFIG.c.job_id == _OF_JOB, JOB_CONFIG.c.version == _OF_VERSION
)
_READING_OWN_FACTS = _overrides(_OF_JOB, _OF_VERSION, OVERRIDE.c.facts, _SPAN)
_READING_OWN_CONFIGS = _overrides(_OF_JOB, _OF_VERSION, OVERRIDE.c.config, _SPAN)
_READING_CONFIG = sa.select(JOB_CONFIG.c.config).where(
    JOB_CONFIG.c.job_id == _OF_JOB, JOB_CONFIG.c.version == _OF_VERSION
)
_INSERTING = JOB_CONFIG.insert()


# -- writing -------------------------------------------------------------------------------------------------------


def insert_config(
    conn: sa.Connection,
    job_id: str,
    version: int,
    config: job_pb2.JobConfig,
    rows: Sequence[OverrideRow],
    now_ns: int,
    *,
    overrides_from: int = 0,
    spec: bytes = b"",
) -> None:
    """Store ``config`` as ``version`` with the overrides ``rows``.

    Overrides of versions from ``overrides_from`` on stay in force (0: none do). ``spec`` is the spec sent by a client
    of v1alpha.
    """
    bare = without_instances(config)
    values = {
        "job_id": job_id,
        "version": version,
        "created_ns": now_ns,
        "facts": facts_to_text(instance_facts(config, config.defaultConfig)),
        "config": pack(bare.SerializeToString()),
        "overrides_from": overrides_from or version,
        "spec": pack(spec) if spec else b"",
    }
    conn.execute(_INSERTING, values)
    insert_overrides(conn, rows)


def insert_overrides(conn: sa.Connection, rows: Sequence[OverrideRow]) -> None:
    for begin in range(0, len(rows), _OVERRIDES_PER_INSERT):
        conn.execute(OVERRIDE.insert(), rows[begin : begin + _OVERRIDES_PER_INSERT])


class OverrideRows:
    """Builder of override rows, used before the transaction that stores them: SQLite blocks all other writers
    meanwhile.

    Pods of a job mostly differ in their names and commands only. Their other facts are then the same, and computed
    once.
    """

    def __init__(self, job_id: str, version: int, config: job_pb2.JobConfig) -> None:
        self._key = {"job_id": job_id, "version": version}
        self._config = config
        self._known: dict[bytes, str] = {}

    def of(self, instance_ids: Iterable[int]) -> list[OverrideRow]:
        """Build rows from the configuration's own overrides."""
        return [self.row(instance_id, self._config.instanceConfig[instance_id]) for instance_id in sorted(instance_ids)]

    def row(self, instance_id: int, override: task_pb2.TaskConfig) -> OverrideRow:
        facts = name_facts(override.name or self._config.defaultConfig.name, self._rest(override))
        blob = pack(override.SerializeToString())
        return {**self._key, "instance_id": instance_id, "facts": facts, "config": blob}

    def _rest(self, override: task_pb2.TaskConfig) -> str:
        part = _copy_without(override, _NOT_IN_FACTS)
        key = part.SerializeToString()
        text = self._known.get(key)
        if text is None:
            has_default = self._config.HasField("defaultConfig")
            merged = (
                merge_config(_copy_without(self._config.defaultConfig, _NOT_IN_FACTS), part) if has_default else part
            )
            text = facts_without_name(instance_facts(self._config, merged))
            if len(self._known) < _SHARED_FACTS_MAX:
                self._known[key] = text
        return text


_NOT_IN_FACTS = frozenset({"name", "command"})
"""Large fields that the facts of an instance do not contain."""
_INSTANCES = frozenset({"instanceConfig"})


def _copy_without(message: MessageT, names: Container[str]) -> MessageT:
    """Copy a message without the fields ``names``; ``message`` has no map outside ``names``."""
    rest = type(message)()
    for field, value in message.ListFields():
        if field.name in names:
            continue
        if field.is_repeated:
            getattr(rest, field.name).extend(value)
        elif field.message_type is not None:
            getattr(rest, field.name).CopyFrom(value)
        else:
            setattr(rest, field.name, value)
    return rest


def copy_config(conn: sa.Connection, job_id: str, source: int, version: int, now_ns: int) -> None:
    """Store a copy of the configuration of version ``source`` as ``version``, the newest one."""
    columns = [c for c in JOB_CONFIG.columns if c.name not in ("version", "created_ns", "overrides_from")]
    names = ["version", "created_ns", "overrides_from", *(c.name for c in columns)]
    is_newest = source == version - 1
    first = JOB_CONFIG.c.overrides_from if is_newest else sa.literal(version)
    of_source = sa.and_(JOB_CONFIG.c.job_id == job_id, JOB_CONFIG.c.version == source)
    copy = sa.select(sa.literal(version), sa.literal(now_ns, sa.BigInteger), first, *columns).where(of_source)
    conn.execute(JOB_CONFIG.insert().from_select(names, copy))
    if not is_newest:  # else the overrides stay in force
        newest: dict[int, dict[str, Any]] = {}
        for row in conn.execute(_overrides(job_id, source, OVERRIDE.c.config).add_columns(OVERRIDE.c.facts)):
            newest[row.instance_id] = {
                "job_id": job_id,
                "instance_id": row.instance_id,
                "version": version,
                "facts": row.facts,
                "config": row.config,
            }
        insert_overrides(conn, list(newest.values()))


def instance_facts(config: job_pb2.JobConfig, task: task_pb2.TaskConfig) -> InstanceFacts:
    shape = convert.pod_shape(task, config.sla, config.placementStrategy, layout(config.placement))
    if config.type == job_pb2.SERVICE and config.placementStrategy == job_pb2.PLACEMENT_STRATEGY_INVALID:
        shape = replace(shape, strategy=Strategy.EMPTIEST_HOST)
    return InstanceFacts(
        name=task.name,
        shape=shape,
        max_failures=min(task.restartPolicy.maxFailures, MAX_FAILURES_MAX),
        health=HealthState.HEALTH_UNKNOWN if is_checked(task) else HealthState.DISABLED,
        grace_s=convert.kill_grace_s(task),
        kill_on_preempt=task.preemptionPolicy.killOnPreempt,
        labels=convert.collect_labels(task),
        image=convert.image_of(task),
    )


def without_instances(config: job_pb2.JobConfig) -> job_pb2.JobConfig:
    if not len(UnknownFieldSet(config)):
        return _copy_without(config, _INSTANCES)
    bare = job_pb2.JobConfig()
    bare.CopyFrom(config)  # the only way to keep unknown fields; copies the instances, too
    bare.ClearField("instanceConfig")
    return bare


def search_text(config: job_pb2.JobConfig) -> str:
    """Return the text in which keywords are searched."""
    return MessageToJson(without_instances(config), indent=None, ensure_ascii=False).lower()
