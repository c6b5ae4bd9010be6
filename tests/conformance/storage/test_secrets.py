"""Secrets of jobs: configurations refer to them, and their data are stored apart."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, InvalidArgument
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState
from peloton.model.secret import Secret
from services.storage.storage import Storage
from services.storage.tables import JOB_SECRET
from services.storage.updates.rows import UPDATES_KEPT
from tests.conformance.storage.builders import NOW, a_config
from tests.conformance.storage.services import ALL_AT_ONCE, roll, service_config, update

IDS = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in range(10)]
FIRST, SECOND = Secret(IDS[1], "/run/key", b"first \x00\xff"), Secret(IDS[2], "/run/key", b"second")


def list_references(storage: Storage, job_id: JobId, version: int | None = None) -> list[tuple[str, str]]:
    config = storage.configs.job_config(job_id, version)
    assert config is not None
    assert all(not one.HasField("value") for one in config.defaultConfig.secrets)
    return [(one.id.value, one.path) for one in config.defaultConfig.secrets]


def data(storage: Storage, job_id: JobId, *secret_ids: str) -> list[tuple[bytes, int]]:
    wanted = [Secret(secret_id, "/run/key") for secret_id in secret_ids]
    found = storage.secrets.reveal(job_id, wanted, storage.secrets.rows(job_id, wanted))
    return [(one.data, one.revision) for one in found]


def list_stored(storage: Storage, job_id: JobId) -> list[str]:
    query = sa.select(JOB_SECRET.c.secret_id).where(JOB_SECRET.c.job_id == job_id).order_by(JOB_SECRET.c.secret_id)
    return storage.db.read(lambda conn: list(conn.execute(query).scalars()))


def a_service(storage: Storage) -> JobId:
    job_id, config = new_job_id(), service_config(2)
    record = convert.new_job_record(job_id, config, NOW)
    storage.updates.create_service(record, config, b"", ALL_AT_ONCE, "", NOW, secrets=[FIRST])
    roll(storage, job_id)
    return job_id


def a_batch_job(storage: Storage) -> tuple[JobId, job_pb2.JobConfig]:
    job_id, config = new_job_id(), a_config(2)
    storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW, [FIRST])
    return job_id, config


def test_a_rotated_secret_is_rolled_out_and_back(storage: Storage) -> None:
    """New data change every instance, and the same data change none. A rollback refers to the old data."""
    job_id = a_service(storage)
    before = storage.configs.job_config(job_id, 1)
    assert before is not None

    job = update(storage, job_id, service_config(2), secrets=[SECOND])
    rotated = storage.updates.get(job.update_id)
    roll(storage, job_id)
    again = update(storage, job_id, service_config(2), secrets=[Secret(IDS[3], "/run/key", b"second")])
    repeated = storage.updates.get(again.update_id)
    roll(storage, job_id)
    back = update(storage, job_id, before)

    assert rotated is not None
    assert repeated is not None
    assert [frozenset({0, 1}), frozenset()] == [rotated.updated, repeated.updated]
    expected = [[(FIRST.secret_id, "/run/key")], [(SECOND.secret_id, "/run/key")], [(SECOND.secret_id, "/run/key")]]
    assert expected == [list_references(storage, job_id, version) for version in (1, 2, 3)]
    assert [(FIRST.secret_id, "/run/key")] == list_references(storage, job_id, back.config_version)
    assert [(FIRST.data, 0), (SECOND.data, 0)] == data(storage, job_id, FIRST.secret_id, SECOND.secret_id)


def test_an_update_without_secrets_keeps_them(storage: Storage) -> None:
    """An update without secrets keeps them, and so does a difference that is only computed."""
    job_id = a_service(storage)

    found = storage.updates.difference(job_id, None, service_config(2))
    update(storage, job_id, service_config(3))

    assert frozenset() == found.updated
    assert [(FIRST.secret_id, "/run/key")] == list_references(storage, job_id)


def test_data_that_no_configuration_needs_is_forgotten(storage: Storage) -> None:
    """Data are deleted with the oldest updates of a service."""
    job_id = a_service(storage)
    for number in range(UPDATES_KEPT + 1):
        update(storage, job_id, service_config(2, command=f"v{number}"), secrets=[SECOND])
        roll(storage, job_id)

    assert [SECOND.secret_id] == list_stored(storage, job_id)


def test_a_batch_job_gets_new_data_in_place(storage: Storage) -> None:
    """All runs that begin afterwards have the new data. A secret at another path belongs to the new instances."""
    job_id, config = a_batch_job(storage)

    changed = [storage.secrets.refresh(job_id, 1, [SECOND]) for _ in range(2)]
    assert [1, 0] == changed
    assert [(SECOND.data, 1)] == data(storage, job_id, FIRST.secret_id)
    with pytest.raises(Aborted, match="secret at /run/other: the job has none there, and only new instances"):
        storage.secrets.refresh(job_id, 1, [Secret(IDS[3], "/run/other", b"x")])

    for _ in range(2):  # a repeated call finds it done
        grown = job_pb2.JobConfig()
        grown.CopyFrom(config)
        grown.instanceCount = 3
        storage.jobs.add_instances(job_id, grown, 3, 1, NOW, [Secret(IDS[4], "/run/other", b"x")])
    assert [(FIRST.secret_id, "/run/key"), (IDS[4], "/run/other")] == list_references(storage, job_id, 2)


def test_a_refused_creation_stores_nothing(storage: Storage) -> None:
    """A configuration that refers to a secret of another job is refused."""
    job_id, config = new_job_id(), a_config(2)
    config.defaultConfig.secrets.add(path="/run/key").id.value = FIRST.secret_id

    with pytest.raises(InvalidArgument, match="is not one of this job: send its data"):
        storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW, [SECOND])

    assert ([], None) == (list_stored(storage, job_id), storage.jobs.get(job_id))


def test_secrets_go_with_their_job(storage: Storage) -> None:
    """A launch for a job that is being deleted is refused with that reason."""
    job_id, _ = a_batch_job(storage)
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    while not storage.jobs.settle(job_id, NOW).is_finished:
        pass

    storage.jobs.delete(job_id)

    assert [] == list_stored(storage, job_id)
    with pytest.raises(Aborted, match="is not stored"):
        data(storage, job_id, FIRST.secret_id)


def test_an_error_of_the_database_does_not_show_them(storage: Storage) -> None:
    """Errors are logged and sent to clients, so they contain no data of secrets."""
    row = {"job_id": new_job_id(), "secret_id": IDS[0], "revision": 0, "holder": "", "data": b"open sesame"}

    with pytest.raises(sa.exc.IntegrityError) as refused:
        storage.db.write(lambda conn: conn.execute(JOB_SECRET.insert(), [row, row]))

    assert ("hidden" in str(refused.value), "sesame" in str(refused.value)) == (True, False)
