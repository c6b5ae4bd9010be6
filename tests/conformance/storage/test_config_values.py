"""Secret values that version 0.1 left in configurations become secrets of their jobs, encrypted by the keyring."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.api import convert
from peloton.api.job_secrets import secrets_of
from peloton.api.secret_values import has_values
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.errors import Aborted, InvalidArgument
from peloton.model.ids import JobId, new_job_id
from peloton.model.secret import SECRETS_MAX
from services.secret_rotation import rotate_secrets
from services.secrets.keyring import Keyring, write_keyring
from services.storage.codec import pack, unpack
from services.storage.jobs.config_values import ConfigValues
from services.storage.jobs.configs import insert_config
from services.storage.jobs.plain_secrets import PLAIN
from services.storage.storage import Storage
from services.storage.tables import JOB, JOB_CONFIG, JOB_SECRET, OVERRIDE
from tests.conformance.storage.builders import NOW, a_config
from tests.present import require
from tests.unit.api_service.test_secret_values import IMAGE, add, add_config, is_there

CANARY = b'{"auths": {"registry.example.com": {"auth": "c4n4ry"}}}'
VARIABLE = b"c4n4ry-of-a-variable"


def store(storage: Storage, config: job_pb2.JobConfig, spec: stateless_pb2.JobSpec | None = None) -> JobId:
    """Store a job as version 0.1 did, with all values in its configuration."""
    job_id = new_job_id()
    storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW, ())
    if spec is not None:
        blob = pack(spec.SerializeToString())
        storage.db.write(
            lambda conn: conn.execute(sa.update(JOB_CONFIG).where(JOB_CONFIG.c.job_id == job_id).values(spec=blob))
        )
    return job_id


def with_values(data: bytes = CANARY) -> job_pb2.JobConfig:
    config = a_config(3)
    add_config(config.defaultConfig.container, data)
    add(config.defaultConfig.command, VARIABLE)
    return config


def read_rows(storage: Storage) -> list[bytes]:
    """Return all that the database has of configurations."""

    def work(conn: sa.Connection) -> list[bytes]:
        rows = conn.execute(sa.select(JOB_CONFIG.c.config, JOB_CONFIG.c.spec)).all()
        blobs = [unpack(blob) for row in rows for blob in row if blob]
        blobs += [unpack(blob) for blob in conn.execute(sa.select(OVERRIDE.c.config)).scalars()]
        texts = [str(text).encode() for text in conn.execute(sa.select(JOB.c.search)).scalars()]
        return blobs + texts + [bytes(data) for data in conn.execute(sa.select(JOB_SECRET.c.data)).scalars()]

    return storage.db.read(work)


def reveal(storage: Storage, job_id: JobId, config: job_pb2.JobConfig) -> dict[str, bytes]:
    wanted = secrets_of(config.defaultConfig)
    return {one.path: one.data for one in storage.secrets.reveal(job_id, wanted, storage.secrets.rows(job_id, wanted))}


def test_values_of_an_old_row_are_encrypted(
    storage: Storage, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotation moves those of configuration, spec and equal overrides; nothing is left of them, and a second one does
    nothing."""
    write_keyring(tmp_path / "keyring.json", Keyring("", {}).add("first", is_active=True), is_new=True)
    config = with_values()
    config.instanceConfig[1].container.CopyFrom(config.defaultConfig.container)
    spec = stateless_pb2.JobSpec(name="of v1alpha")
    add(spec.default_spec.containers.add().command, VARIABLE)
    store(storage, config, spec)
    other = store(storage, a_config(1))
    assert is_there(CANARY, *read_rows(storage))
    assert is_there(VARIABLE, *read_rows(storage))
    assert b64encode(VARIABLE).lower() in b"".join(read_rows(storage))
    monkeypatch.setenv("PELOTON_DATABASE", url)
    monkeypatch.setenv("PELOTON_SECRETS_KEYRING_FILE", str(tmp_path / "keyring.json"))

    first, second = (rotate_secrets("", lambda *_: None) for _ in range(2))

    assert (2, 0, {"key:first": 2}, ()) == (first.taken_count, second.taken_count, second.holders, first.left)
    stored = b"".join(read_rows(storage))
    assert not is_there(CANARY, stored)
    assert not is_there(VARIABLE, stored)
    assert b64encode(VARIABLE).lower() not in stored
    assert a_config(1) == storage.configs.job_config(other, 1)


def test_pods_get_the_values_that_they_had(storage: Storage) -> None:
    """The configuration refers to a secret for each value, those of an earlier version to secrets of their own."""
    job_id = store(storage, with_values())
    newer = with_values(CANARY + b" ")
    storage.db.write(lambda conn: insert_config(conn, job_id, 2, newer, (), NOW))
    values = ConfigValues(storage.db, PLAIN)
    assert [job_id] == list(values.jobs_with_values())

    assert 3 == values.take_out(job_id)

    assert [] == list(values.jobs_with_values())
    configs = [require(storage.configs.job_config(job_id, version)) for version in (1, 2)]
    assert not any(has_values(config.defaultConfig) for config in configs)
    image, variable = f"image/{IMAGE}", "env/TOKEN"
    assert [{image: data, variable: VARIABLE} for data in (CANARY, CANARY + b" ")] == [
        reveal(storage, job_id, config) for config in configs
    ]


def unlike_instances(config: job_pb2.JobConfig) -> None:
    add(config.instanceConfig[1].command, b"another")


def many(config: job_pb2.JobConfig) -> None:
    for number in range(SECRETS_MAX):
        add(config.defaultConfig.command, VARIABLE, f"V{number}")


def empty(config: job_pb2.JobConfig) -> None:
    add(config.defaultConfig.command, b"", "EMPTY")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unlike_instances, "at env/TOKEN an instance has another value than the other instances"),
        (many, "it would have 22 secrets: want 20 and 64 KiB at most"),
        (empty, "environment variable 'EMPTY' has an empty secret value"),
    ],
)
def test_values_that_are_left_are_named(
    storage: Storage, change: Callable[[job_pb2.JobConfig], None], reason: str
) -> None:
    """The job stays as it was, so that its pods run on."""
    config = with_values()
    change(config)
    job_id = store(storage, config)
    before = read_rows(storage)

    with pytest.raises(
        InvalidArgument, match=re.escape(f"job {job_id} keeps secret values in its configuration: ")
    ) as caught:
        ConfigValues(storage.db, PLAIN).take_out(job_id)

    assert (True, before) == (reason in str(caught.value), read_rows(storage))


def test_a_version_that_is_stored_meanwhile_is_left_to_the_next_call(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are written only if they are as they were read."""
    job_id = store(storage, with_values())
    values, replace = ConfigValues(storage.db, PLAIN), ConfigValues._replace

    def replace_late(*args: Any, **kwargs: Any) -> None:
        storage.db.write(lambda conn: insert_config(conn, job_id, 2, with_values(b"{}"), (), NOW))
        replace(*args, **kwargs)

    monkeypatch.setattr(ConfigValues, "_replace", replace_late)
    with pytest.raises(Aborted, match="have changed meanwhile"):
        values.take_out(job_id)
    monkeypatch.undo()

    assert 3 == values.take_out(job_id)
