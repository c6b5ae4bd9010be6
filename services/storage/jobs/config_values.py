"""Secret values in stored configurations, where versions before 0.2 left them: they become secrets of their jobs."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from peloton.api.job_secrets import refer_to, secrets_of
from peloton.api.secret_values import Pod, has_values, take_values
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.errors import Aborted, InvalidArgument
from peloton.model.ids import JobId
from peloton.model.secret import SECRETS_BYTES_MAX, SECRETS_MAX, HeldSecret, Secret
from peloton.ports import SecretStore
from services.storage.codec import pack, unpack
from services.storage.engine import Database, Repository, lock_job, reading, writing
from services.storage.jobs.configs import search_text
from services.storage.jobs.secrets import write_held
from services.storage.tables import JOB, JOB_CONFIG, OVERRIDE

BATCH_JOBS = 100
"""Jobs whose configurations one transaction searches."""
ROWS_PER_FETCH = 1_000
_CONFIG: tuple[Any, ...] = (JOB_CONFIG.c.job_id, JOB_CONFIG.c.version, JOB_CONFIG.c.config, JOB_CONFIG.c.spec)
_OVERRIDE: tuple[Any, ...] = (OVERRIDE.c.job_id, OVERRIDE.c.instance_id, OVERRIDE.c.version, OVERRIDE.c.config)


@dataclass(frozen=True, slots=True)
class Rows:
    """All configurations of a job, as they are stored."""

    configs: Sequence[Any]
    overrides: Sequence[Any]


class Version:
    """A stored configuration, and the spec of v1alpha from which it was made."""

    def __init__(self, row: Any) -> None:
        self.version = int(row.version)
        self.config = job_pb2.JobConfig.FromString(unpack(row.config))
        self.spec = stateless_pb2.JobSpec.FromString(unpack(row.spec)) if row.spec else None

    def defaults(self) -> list[Pod]:
        return [self.config.defaultConfig, *([self.spec.default_spec] if self.spec is not None else ())]

    def overrides(self) -> list[Pod]:
        return list(self.spec.instance_spec.values()) if self.spec is not None else []

    @property
    def has_values(self) -> bool:
        return any(map(has_values, (*self.defaults(), *self.overrides())))


class ConfigValues(Repository):
    def __init__(self, db: Database, store: SecretStore) -> None:
        super().__init__(db)
        self._store = store

    def jobs_with_values(self) -> Iterator[JobId]:
        """Yield jobs that have secret values in a configuration, in the order of their ids. It reads all of them."""
        after: JobId | None = None
        while batch := self._list_jobs(after):
            yield from sorted(self._find_values(batch))
            after = batch[-1]

    @reading
    def _list_jobs(self, conn: sa.Connection, after: JobId | None) -> list[JobId]:
        query = sa.select(JOB.c.job_id).order_by(JOB.c.job_id).limit(BATCH_JOBS)
        if after is not None:
            query = query.where(JOB.c.job_id > after)
        return [JobId(job_id) for job_id in conn.execute(query).scalars()]

    @reading
    def _find_values(self, conn: sa.Connection, job_ids: Sequence[JobId]) -> set[JobId]:
        configs = conn.execute(sa.select(*_CONFIG).where(JOB_CONFIG.c.job_id.in_(job_ids)))
        found = {JobId(row.job_id) for row in configs.yield_per(ROWS_PER_FETCH) if Version(row).has_values}
        overrides = conn.execute(sa.select(*_OVERRIDE).where(OVERRIDE.c.job_id.in_(job_ids)))
        found.update(JobId(row.job_id) for row in overrides.yield_per(ROWS_PER_FETCH) if has_values(_override(row)))
        return found

    def take_out(self, job_id: JobId) -> int:
        """Make the values of a job's configurations its secrets; returns their number.

        Raises InvalidArgument for values that no secret can have, Unavailable, and Aborted when a configuration was
        stored meanwhile: the next call takes them out.
        """
        before = self._db.read(lambda conn: _read(conn, job_id))
        versions, overrides = list(map(Version, before.configs)), list(map(_override, before.overrides))
        shared = _take_all(overrides + [pod for one in versions for pod in one.overrides()], job_id)
        ids: dict[tuple[str, bytes], str] = {}
        for one in versions:
            values = _take_all(one.defaults(), job_id)
            if conflicts := [path for path in values.keys() & shared.keys() if values[path] != shared[path]]:
                raise _refusal(job_id, f"at {conflicts[0]} an instance has another value than the other instances")
            values |= shared
            kept = [secret for secret in secrets_of(one.config.defaultConfig) if secret.path not in values]
            if len(kept) + len(values) > SECRETS_MAX or sum(map(len, values.values())) > SECRETS_BYTES_MAX:
                raise _refusal(
                    job_id, f"it would have {len(kept) + len(values)} secrets: want {SECRETS_MAX} and 64 KiB at most"
                )
            new = [Secret(ids.setdefault(item, str(uuid.uuid4())), item[0]) for item in sorted(values.items())]
            refer_to(one.config, (*kept, *new))
        held = [self._store.hold(job_id, Secret(secret_id, path, data)) for (path, data), secret_id in ids.items()]
        self._replace(job_id, before, versions, overrides, held=held)
        return len(held)

    @writing
    def _replace(
        self,
        conn: sa.Connection,
        job_id: JobId,
        before: Rows,
        versions: Sequence[Version],
        overrides: Sequence[task_pb2.TaskConfig],
        *,
        held: Iterable[HeldSecret],
    ) -> None:
        job = lock_job(conn, job_id)
        if job is None or _read(conn, job_id) != before:
            raise Aborted(f"the configurations of job {job_id} have changed meanwhile")
        for one in held:
            write_held(conn, job_id, one)
        for version in versions:
            key = sa.and_(JOB_CONFIG.c.job_id == job_id, JOB_CONFIG.c.version == version.version)
            spec = pack(version.spec.SerializeToString()) if version.spec is not None else b""
            config = pack(version.config.SerializeToString())
            conn.execute(sa.update(JOB_CONFIG).where(key).values(config=config, spec=spec))
            if version.version == job.config_version:
                text = search_text(version.config)
                conn.execute(sa.update(JOB).where(JOB.c.job_id == job_id).values(search=text))
        for row, override in zip(before.overrides, overrides, strict=True):
            key = sa.and_(OVERRIDE.c.job_id == job_id, OVERRIDE.c.instance_id == row.instance_id)
            blob = pack(override.SerializeToString())
            conn.execute(sa.update(OVERRIDE).where(key, OVERRIDE.c.version == row.version).values(config=blob))


def _read(conn: sa.Connection, job_id: JobId) -> Rows:
    configs = sa.select(*_CONFIG).where(JOB_CONFIG.c.job_id == job_id).order_by(JOB_CONFIG.c.version)
    overrides = sa.select(*_OVERRIDE).where(OVERRIDE.c.job_id == job_id)
    ordered = overrides.order_by(OVERRIDE.c.instance_id, OVERRIDE.c.version)
    return Rows(conn.execute(configs).all(), conn.execute(ordered).all())


def _override(row: Any) -> task_pb2.TaskConfig:
    return task_pb2.TaskConfig.FromString(unpack(row.config))


def _take_all(pods: Iterable[Pod], job_id: JobId) -> dict[str, bytes]:
    """Replace the values in pods by references; returns them by path. Raises InvalidArgument where two differ."""
    found: dict[str, set[bytes]] = defaultdict(set)
    for pod in pods:
        if not has_values(pod):
            continue
        try:
            for path, data in take_values(pod):
                found[path].add(data)
        except InvalidArgument as error:
            raise _refusal(job_id, str(error)) from None
    if several := [path for path, values in found.items() if len(values) > 1]:
        raise _refusal(job_id, f"at {several[0]} instances have different values")
    return {path: next(iter(values)) for path, values in found.items()}


def _refusal(job_id: JobId, text: str) -> InvalidArgument:
    return InvalidArgument(f"job {job_id} keeps secret values in its configuration: {text}")
