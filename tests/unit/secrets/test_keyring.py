"""The keyring: its file, its keys, and what they encrypt."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton import files
from peloton.errors import InvalidArgument, Unavailable
from peloton.model.ids import new_job_id
from peloton.model.secret import HeldSecret, Secret
from services.secrets.encrypted import EncryptedSecrets
from services.secrets.keyring import KEYS_MAX, Keyring, KeyringFile, read_keyring, write_keyring
from services.storage.jobs.plain_secrets import PLAIN

SECRET_ID, OTHER_ID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
DATA = b"open sesame \x00\xff"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    write_keyring(path, Keyring("", {}).add("first", is_active=True), is_new=True)
    return path


def test_a_new_keyring_is_for_its_user_alone(path: Path) -> None:
    """The file has 32 random bytes, the mode 0600, and is never written over."""
    found = read_keyring(path)

    assert (0o600, "first", [32]) == (
        path.stat().st_mode & 0o777,
        found.active,
        [len(key) for key in found.keys.values()],
    )
    with pytest.raises(FileExistsError):
        write_keyring(path, found, is_new=True)
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620] + ([0o640] if os.geteuid() == 0 else []))
def test_a_file_that_others_read_or_write_is_refused(path: Path, mode: int) -> None:
    """The error says the mode and the command that mends it."""
    path.chmod(mode)

    with pytest.raises(InvalidArgument, match=f"has the mode {mode:04o}.*chmod 600"):
        read_keyring(path)


KEY = b64encode(b"k" * 32).decode()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is not JSON"),
        ("[" * 20_000, "is not JSON"),
        ({"keys": {}}, 'want {"active": ID'),
        ({"active": "a", "keys": {"b": KEY}}, "the active key 'a' is not among its keys"),
        ({"active": "a", "keys": {"a": KEY[:-4]}}, "key a is not 32 bytes in base64"),
        ({"active": "a", "keys": {"a": 7}}, "key a is not 32 bytes in base64"),
        ({"active": "a/b", "keys": {"a/b": KEY}}, "key id 'a/b' is none"),
        ({"active": "k0", "keys": {f"k{i}": KEY for i in range(KEYS_MAX + 1)}}, "101 keys, at most 100"),
    ],
)
def test_a_keyring_that_is_none_is_refused(path: Path, content: Any, fault: str) -> None:
    """No error shows a key."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    with pytest.raises(InvalidArgument) as refused:
        read_keyring(path)

    assert (True, False) == (fault in refused.value.message, KEY[:20] in refused.value.message)


def test_keys_come_and_go(path: Path) -> None:
    """A new key encrypts at once, or after ``use``; the active one stays."""
    ring = read_keyring(path).add("second", is_active=False)
    assert ("first", "second", "third") == (ring.active, ring.use("second").active, ring.add("third", True).active)
    assert ["second"] == list(ring.use("second").remove("first").keys)
    refused: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: ring.add("second", True), "never replaced"),
        (lambda: ring.add("no/id", True), "want 1 to 63"),
        (lambda: ring.use("third"), "no key 'third' in the keyring, only first, second"),
        (lambda: ring.remove("first"), "is the active one"),
    )
    for act, fault in refused:
        with pytest.raises(InvalidArgument, match=fault):
            act()


def test_a_running_process_adopts_a_changed_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is missing is looked for at once; a new active one is adopted within a second."""
    file = KeyringFile(str(path))
    assert "first" == file.keyring.active

    write_keyring(path, read_keyring(path).add("second", is_active=True))

    assert "second" in file.holding("second").keys
    monkeypatch.setattr(files, "CHECK_S", 0.0)
    assert "second" == file.keyring.active
    path.write_text("{")
    with pytest.raises(InvalidArgument, match="is not JSON"):
        _ = file.keyring


def test_a_row_is_bound_to_its_job_and_id(path: Path) -> None:
    """The row of another job or secret does not decrypt, and no two encryptions are alike."""
    store, job_id = EncryptedSecrets(KeyringFile(str(path)), PLAIN), new_job_id()
    row = store.hold(job_id, Secret(SECRET_ID, "/run/key", DATA, 3))

    assert ("key:first", 3, DATA) == (row.holder, row.revision, store.reveal(job_id, row))
    assert DATA not in row.data
    assert row.data != store.hold(job_id, Secret(SECRET_ID, "/run/key", DATA, 3)).data
    changed = row.data[:-1] + bytes([row.data[-1] ^ 1])
    for job, secret_id, data in (
        (new_job_id(), SECRET_ID, row.data),
        (job_id, OTHER_ID, row.data),
        (job_id, SECRET_ID, changed),
        (job_id, SECRET_ID, b"short"),
    ):
        with pytest.raises(Unavailable, match=f"secret {secret_id} of job {job}: key first of the keyring .* does not"):
            store.reveal(job, HeldSecret(secret_id, 3, row.holder, data))


def test_a_missing_key_is_named(path: Path) -> None:
    """The error names secret, job, key and keyring, and the keys that there are."""
    store, job_id = EncryptedSecrets(KeyringFile(str(path)), PLAIN), new_job_id()

    with pytest.raises(Unavailable) as refused:
        store.reveal(job_id, HeldSecret(SECRET_ID, 0, "key:lost", b""))
    with pytest.raises(Unavailable, match=r"is held by key:lost.*set PELOTON_SECRETS_KEYRING_FILE"):
        PLAIN.reveal(job_id, HeldSecret(SECRET_ID, 0, "key:lost", b""))

    text = f"secret {SECRET_ID} of job {job_id}: key 'lost' is not in the keyring {path}, which has first: add it again"
    assert refused.value.message.startswith(text)


def test_rows_from_before_are_read_as_they_are(path: Path) -> None:
    """A row that was stored before there was a keyring is the secret itself."""
    store = EncryptedSecrets(KeyringFile(str(path)), PLAIN)

    assert DATA == store.reveal(new_job_id(), HeldSecret(SECRET_ID, 0, "", DATA))
