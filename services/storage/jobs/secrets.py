"""Secrets of jobs: their data has a table of its own, to which configurations refer.

Only a host manager reads the data for use, at launch; a request with secrets is compared with the stored ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from peloton.api.job_secrets import check_mounts, join_secrets, refer_to, secrets_of
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted
from peloton.model.ids import JobId
from peloton.model.secret import Secret
from services.storage.codec import unpack
from services.storage.engine import Repository, writing
from services.storage.jobs.configs import read_config
from services.storage.tables import JOB_CONFIG, JOB_SECRET


@dataclass(frozen=True)
class Sent:
    """Secrets in a request: ``kept`` by its configuration, and ``new`` ones with their data."""

    kept: tuple[Secret, ...] = ()
    new: tuple[Secret, ...] = ()

    @classmethod
    def of(cls, config: job_pb2.JobConfig | None, new: Sequence[Secret]) -> Sent:
        """Collect the secrets before a transaction, which may be repeated and changes the configuration."""
        return cls(tuple(secrets_of(config.defaultConfig)) if config is not None else (), tuple(new))


class Secrets(Repository):
    def with_data(self, job_id: JobId, wanted: Sequence[Secret]) -> tuple[Secret, ...]:
        """Return secrets with their data. Raises Aborted when one is missing, since its job is being deleted."""
        stored = self._db.read(lambda conn: _read(conn, job_id)) if wanted else {}
        if missing := [one for one in wanted if one.secret_id not in stored]:
            raise Aborted(f"secret {missing[0].secret_id} of job {job_id} is not stored")
        return tuple(
            Secret(one.secret_id, one.path, stored[one.secret_id].data, stored[one.secret_id].revision)
            for one in wanted
        )

    @writing
    def refresh(self, conn: sa.Connection, job_id: JobId, version: int, new: Sequence[Secret]) -> int:
        """Replace the data of secrets that the job has, for all runs that begin from now on.

        Returns the number of changed secrets. Raises InvalidArgument, Aborted.
        """
        config = read_config(conn, job_id, version)
        assert config is not None, f"job {job_id} has no configuration {version}"
        kept = secrets_of(config.defaultConfig)
        refs, written = join_secrets(kept, new, _read(conn, job_id), in_place=True)
        if len(refs) > len(kept):
            raise Aborted(f"secret at {refs[-1].path}: the job has none there, and only new instances can have it")
        _write(conn, job_id, written)
        return len(written)


def carry_secrets(
    conn: sa.Connection,
    job_id: str,
    before_version: int,
    config: job_pb2.JobConfig,
    sent: Sent,
    in_place: bool = False,
) -> None:
    """Make ``config``, the job's next version, refer to the job's secrets, and store the data that was sent.

    The secrets are the ones that it keeps, or else the ones of the version before (0: none), and the new ones. Raises
    InvalidArgument.
    """
    before = read_config(conn, job_id, before_version) if before_version else None
    kept = sent.kept or (tuple(secrets_of(before.defaultConfig)) if before is not None else ())
    if not kept and not sent.new:
        return
    refs, written = join_secrets(kept, sent.new, _read(conn, job_id) if before is not None else {}, in_place)
    check_mounts(config, refs)
    refer_to(config, refs)
    _write(conn, job_id, written)


def forget_unused(conn: sa.Connection, job_id: str) -> None:
    """Delete secrets to which none of the job's configurations refers."""
    mine = JOB_SECRET.c.job_id == job_id
    stored = set(conn.execute(sa.select(JOB_SECRET.c.secret_id).where(mine)).scalars())
    if not stored:
        return
    for blob in conn.execute(sa.select(JOB_CONFIG.c.config).where(JOB_CONFIG.c.job_id == job_id)).scalars():
        config = job_pb2.JobConfig.FromString(unpack(blob))
        stored -= {one.secret_id for one in secrets_of(config.defaultConfig)}
    if stored:
        conn.execute(sa.delete(JOB_SECRET).where(mine, JOB_SECRET.c.secret_id.in_(sorted(stored))))


def _read(conn: sa.Connection, job_id: str) -> dict[str, Secret]:
    rows = conn.execute(sa.select(JOB_SECRET).where(JOB_SECRET.c.job_id == job_id))
    return {row.secret_id: Secret(row.secret_id, "", row.data, row.revision) for row in rows}


def _write(conn: sa.Connection, job_id: str, secrets: Sequence[Secret]) -> None:
    for one in secrets:
        key = sa.and_(JOB_SECRET.c.job_id == job_id, JOB_SECRET.c.secret_id == one.secret_id)
        values = {"revision": one.revision, "data": one.data}
        if not conn.execute(sa.update(JOB_SECRET).where(key).values(values)).rowcount:
            conn.execute(JOB_SECRET.insert().values(job_id=job_id, secret_id=one.secret_id, **values))
