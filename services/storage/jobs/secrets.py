"""Secrets of jobs: their data has a table of its own, to which configurations refer.

Only a host manager reads the data for use, at launch; a request with secrets is compared with the stored ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from peloton.api.job_secrets import check_mounts, join_secrets, refer_to, secrets_of
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, PelotonError
from peloton.model.ids import JobId
from peloton.model.secret import HeldSecret, Secret
from peloton.ports import SecretStore
from services.storage.codec import unpack
from services.storage.engine import Database, Repository, reading, writing
from services.storage.jobs.configs import read_config
from services.storage.jobs.plain_secrets import PLAIN
from services.storage.tables import JOB, JOB_CONFIG, JOB_SECRET

log = logging.getLogger(__name__)

BATCH_JOBS = 100
"""Jobs whose secrets one batch of a rotation reads."""


@dataclass(frozen=True)
class Sent:
    """Secrets in a request: ``kept`` by its configuration, and ``new`` ones with their data.

    A store outside of this process is not called in a transaction: ``held`` has the new secrets in it by their paths,
    ``revealed`` the data of the stored ones by their references.
    """

    kept: tuple[Secret, ...] = ()
    new: tuple[Secret, ...] = ()
    store: SecretStore = PLAIN
    held: Mapping[str, HeldSecret] = field(default_factory=dict)
    revealed: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of_config(cls, config: job_pb2.JobConfig | None) -> Sent:
        return cls(tuple(secrets_of(config.defaultConfig)) if config is not None else ())

    @classmethod
    def of(
        cls,
        db: Database,
        store: SecretStore,
        job_id: JobId,
        config: job_pb2.JobConfig | None,
        new: Sequence[Secret] = (),
    ) -> Sent:
        """Collect the secrets before a transaction, which may be repeated and changes the configuration.

        Raises Unavailable.
        """
        kept = cls.of_config(config).kept
        given = [one for one in new if one.data]
        if not given:
            return cls(kept, tuple(new), store)
        rows = db.read(lambda conn: _read(conn, job_id)).values()
        revealed = {row.data: store.reveal(job_id, row) for row in rows if store.is_remote(row.holder)}
        held = {one.path: store.hold(job_id, one) for one in given if store.is_remote(store.holder)}
        return cls(kept, tuple(new), store, held, revealed)

    def reveal(self, conn: sa.Connection, job_id: JobId) -> dict[str, Secret]:
        """Return the stored secrets by id, with their data where new ones are compared with them."""
        is_compared = any(one.data for one in self.new)
        return {
            row.secret_id: Secret(row.secret_id, "", self._data(job_id, row) if is_compared else b"", row.revision)
            for row in _read(conn, job_id).values()
        }

    def _data(self, job_id: JobId, row: HeldSecret) -> bytes:
        if not self.store.is_remote(row.holder):
            return self.store.reveal(job_id, row)
        if row.data not in self.revealed:
            raise Aborted(f"the secrets of job {job_id} have changed meanwhile: send the request again")
        return self.revealed[row.data]

    def write(self, conn: sa.Connection, job_id: JobId, secrets: Sequence[Secret]) -> None:
        for one in secrets:
            held = self.held.get(one.path) or self.store.hold(job_id, one)
            write_held(conn, job_id, HeldSecret(one.secret_id, one.revision, held.holder, held.data))


class Secrets(Repository):
    def __init__(self, db: Database, store: SecretStore) -> None:
        super().__init__(db)
        self._store = store

    def rows(self, job_id: JobId, wanted: Sequence[Secret]) -> list[HeldSecret]:
        """Return the rows of secrets. Raises Aborted when one is missing, since its job is being deleted."""
        stored = self._db.read(lambda conn: _read(conn, job_id)) if wanted else {}
        if missing := [one for one in wanted if one.secret_id not in stored]:
            raise Aborted(f"secret {missing[0].secret_id} of job {job_id} is not stored")
        return [stored[one.secret_id] for one in wanted]

    def reveal(self, job_id: JobId, wanted: Sequence[Secret], held: Sequence[HeldSecret]) -> tuple[Secret, ...]:
        """Return secrets with the data of their rows. Raises Unavailable."""
        return tuple(
            Secret(one.secret_id, one.path, self._store.reveal(job_id, row), row.revision)
            for one, row in zip(wanted, held, strict=True)
        )

    def refresh(self, job_id: JobId, version: int, new: Sequence[Secret]) -> int:
        """Replace the data of secrets that the job has, for all runs that begin from now on.

        Returns the number of changed secrets. Raises InvalidArgument, Aborted.
        """
        sent = Sent.of(self._db, self._store, job_id, None, new)

        def work(conn: sa.Connection) -> int:
            config = read_config(conn, job_id, version)
            assert config is not None, f"job {job_id} has no configuration {version}"
            kept = secrets_of(config.defaultConfig)
            refs, written = join_secrets(kept, new, sent.reveal(conn, job_id), in_place=True)
            if len(refs) > len(kept):
                raise Aborted(f"secret at {refs[-1].path}: the job has none there, and only new instances can have it")
            sent.write(conn, job_id, written)
            return len(written)

        return self._db.write(work)

    def count_holders(self) -> dict[str, int]:
        """Return the number of secrets by holder."""
        query = sa.select(JOB_SECRET.c.holder, sa.func.count()).group_by(JOB_SECRET.c.holder)
        return self._db.read(lambda conn: {row[0]: row[1] for row in conn.execute(query)})

    def jobs_held_elsewhere(self) -> Iterator[JobId]:
        """Yield jobs that have secrets with another holder, in batches of the order of their ids."""
        after: JobId | None = None
        while True:
            found = self._find_elsewhere(after)
            yield from found
            if len(found) < BATCH_JOBS:
                return
            after = found[-1]

    @reading
    def _find_elsewhere(self, conn: sa.Connection, after: JobId | None) -> list[JobId]:
        query = sa.select(JOB_SECRET.c.job_id).where(JOB_SECRET.c.holder != self._store.holder)
        if after is not None:
            query = query.where(JOB_SECRET.c.job_id > after)
        query = query.group_by(JOB_SECRET.c.job_id).order_by(JOB_SECRET.c.job_id).limit(BATCH_JOBS)
        return [JobId(job_id) for job_id in conn.execute(query).scalars()]

    def hold_again(self, job_id: JobId) -> int:
        """Give the secrets of a job that have another holder to the store; returns their number. What fails in between
        is done by the next call. Raises Unavailable."""
        holder = self._store.holder
        rows = [row for row in self._db.read(lambda conn: _read(conn, job_id)).values() if row.holder != holder]
        changes = [
            (row, self._store.hold(job_id, Secret(row.secret_id, "", self._store.reveal(job_id, row)))) for row in rows
        ]
        return self._replace(job_id, changes)

    @writing
    def _replace(self, conn: sa.Connection, job_id: JobId, changes: Sequence[tuple[HeldSecret, HeldSecret]]) -> int:
        """Replace rows that are still as they were read; returns their number."""
        stored = _read(conn, job_id)
        current = [(before, after) for before, after in changes if stored.get(before.secret_id) == before]
        for before, after in current:
            write_held(conn, job_id, HeldSecret(before.secret_id, before.revision, after.holder, after.data))
        return len(current)

    @reading
    def find_remote(self, conn: sa.Connection, job_ids: Sequence[JobId]) -> list[JobId]:
        """Return those of these jobs that have secrets in another system."""
        query = sa.select(JOB_SECRET.c.job_id, JOB_SECRET.c.holder).where(JOB_SECRET.c.job_id.in_(job_ids))
        found = conn.execute(query.distinct().order_by(JOB_SECRET.c.job_id))
        return list(dict.fromkeys(JobId(row.job_id) for row in found if self._store.is_remote(row.holder)))

    def forget_deleted(self, job_ids: Sequence[JobId]) -> None:
        """Delete what other systems hold of those of these jobs that are deleted, until one fails: a rotation finds
        what is left."""
        query = sa.select(JOB.c.job_id).where(JOB.c.job_id.in_(job_ids))
        there = set(self._db.read(lambda conn: conn.execute(query).scalars().all())) if job_ids else set()
        for job_id in job_ids:
            if job_id not in there and not forget_elsewhere(self._store, job_id):
                return

    def references(self, job_id: JobId) -> set[bytes]:
        return {row.data for row in self._db.read(lambda conn: _read(conn, job_id)).values()}


def carry_secrets(
    conn: sa.Connection,
    job_id: JobId,
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
        check_mounts(config, ())
        return
    refs, written = join_secrets(kept, sent.new, sent.reveal(conn, job_id) if before is not None else {}, in_place)
    check_mounts(config, refs)
    refer_to(config, refs)
    sent.write(conn, job_id, written)


def forget_elsewhere(store: SecretStore, job_id: JobId) -> bool:
    """Delete what a remote store holds of a deleted job; returns whether it did. A rotation finds what is left after a
    failure."""
    try:
        store.forget_job(job_id)
    except PelotonError as error:
        log.warning("secrets of the deleted job %s are left in their store: %s", job_id, error)
        return False
    return True


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


def _read(conn: sa.Connection, job_id: str) -> dict[str, HeldSecret]:
    rows = conn.execute(sa.select(JOB_SECRET).where(JOB_SECRET.c.job_id == job_id))
    return {row.secret_id: HeldSecret(row.secret_id, row.revision, row.holder, row.data) for row in rows}


def write_held(conn: sa.Connection, job_id: str, held: HeldSecret) -> None:
    """Write the row of a secret."""
    key = sa.and_(JOB_SECRET.c.job_id == job_id, JOB_SECRET.c.secret_id == held.secret_id)
    values = {"revision": held.revision, "holder": held.holder, "data": held.data}
    if not conn.execute(sa.update(JOB_SECRET).where(key).values(values)).rowcount:
        conn.execute(JOB_SECRET.insert().values(job_id=job_id, secret_id=held.secret_id, **values))
