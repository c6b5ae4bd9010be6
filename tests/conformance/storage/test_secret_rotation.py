"""Secrets under a keyring: encrypted rows, rotation while roles run, rows of other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from peloton.api import convert
from peloton.errors import Unavailable
from peloton.model.ids import JobId, new_job_id
from peloton.model.secret import Secret
from services.secrets.encrypted import EncryptedSecrets
from services.secrets.keyring import Keyring, KeyringFile, read_keyring, write_keyring
from services.storage.jobs import secrets
from services.storage.jobs.plain_secrets import PLAIN
from services.storage.storage import Storage
from services.storage.tables import JOB_SECRET
from tests.conformance.storage.builders import NOW, a_config

DATA = b"open sesame"


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    write_keyring(path, Keyring("", {}).add("first", is_active=True), is_new=True)
    return path


def open_storage(url: str, keyring: Path) -> Storage:
    return Storage(url, secrets=EncryptedSecrets(KeyringFile(str(keyring)), PLAIN))


def a_job(storage: Storage, data: bytes = DATA) -> tuple[JobId, Secret]:
    job_id, config = new_job_id(), a_config(2)
    secret = Secret(str(new_job_id()), "/run/key", data)
    storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW, [secret])
    return job_id, secret


def reveal(storage: Storage, job_id: JobId, secret: Secret) -> bytes:
    [found] = storage.secrets.reveal(job_id, [secret], storage.secrets.rows(job_id, [secret]))
    return found.data


def rotate(storage: Storage) -> list[int]:
    return [storage.secrets.hold_again(job_id) for job_id in storage.secrets.jobs_held_elsewhere()]


def test_rows_are_encrypted_and_compared_by_their_data(url: str, keyring: Path) -> None:
    """The same data in another request changes nothing; no row contains it."""
    storage = open_storage(url, keyring)
    job_id, secret = a_job(storage)

    changed = [storage.secrets.refresh(job_id, 1, [Secret("", "/run/key", data)]) for data in (DATA, b"new", b"new")]

    rows = storage.db.read(lambda conn: list(conn.execute(sa.select(JOB_SECRET))))
    assert ([0, 1, 0], b"new", {"key:first": 1}) == (
        changed,
        reveal(storage, job_id, secret),
        storage.secrets.count_holders(),
    )
    assert [False] == [b"new" in row.data for row in rows]
    storage.close()


def test_a_rotation_moves_all_rows_to_the_active_key(
    storage: Storage, url: str, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows from before the keyring are encrypted, too; an interrupted rotation continues, a repeated one does
    nothing. The old key is not needed any more."""
    monkeypatch.setattr(secrets, "BATCH_JOBS", 2)
    jobs = [a_job(storage, b"plain %d" % i) for i in range(3)]
    first = open_storage(url, keyring)
    jobs += [a_job(first, b"first %d" % i) for i in range(2)]
    first.close()
    write_keyring(keyring, read_keyring(keyring).add("second", is_active=True))
    rotated = open_storage(url, keyring)
    rotated.secrets.hold_again(next(rotated.secrets.jobs_held_elsewhere()))  # an interrupted one

    assert ([1, 1, 1, 1], []) == (rotate(rotated), rotate(rotated))

    assert {"key:second": 5} == rotated.secrets.count_holders()
    write_keyring(keyring, read_keyring(keyring).remove("first"))
    last = open_storage(url, keyring)
    assert [secret.data for _, secret in jobs] == [reveal(last, *job) for job in jobs]
    for one in (rotated, last):
        one.close()


def test_a_row_that_was_replaced_meanwhile_stays(url: str, keyring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotation writes only over what it has read."""
    storage = open_storage(url, keyring)
    job_id, secret = a_job(storage)
    write_keyring(keyring, read_keyring(keyring).add("second", is_active=True))
    rotating = open_storage(url, keyring)
    store = rotating.secrets._store
    hold = store.hold

    def hold_late(job: JobId, one: Secret) -> object:
        storage.secrets.refresh(job_id, 1, [Secret("", "/run/key", b"newer")])
        return hold(job, one)

    monkeypatch.setattr(store, "hold", hold_late)

    assert ([0], b"newer") == (rotate(rotating), reveal(storage, job_id, secret))
    for one in (storage, rotating):
        one.close()


def test_a_row_copied_to_another_job_does_not_decrypt(url: str, keyring: Path) -> None:
    """A user who can write the database cannot read a secret by another job."""
    storage = open_storage(url, keyring)
    (job_id, secret), (mine, my_secret) = a_job(storage), a_job(storage, b"mine")
    data = storage.secrets.rows(job_id, [secret])[0].data

    storage.db.write(
        lambda conn: conn.execute(sa.update(JOB_SECRET).where(JOB_SECRET.c.job_id == mine).values(data=data))
    )

    with pytest.raises(Unavailable, match=f"secret {my_secret.secret_id} of job {mine}: key first .* were changed"):
        reveal(storage, mine, my_secret)
    storage.close()
