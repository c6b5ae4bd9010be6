"""The codec that encrypts Temporal's payloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from peloton.errors import Unavailable
from services.secrets import payload_codec
from services.secrets.keyring import Keyring, KeyringFile, read_keyring, write_keyring
from services.secrets.payload_codec import ENCODING, EncryptingCodec
from services.secrets.stores import make_converter
from services.settings import Settings
from services.temporal.payloads import CONVERTER

VALUES = ["open sesame", {"pods": [1, 2]}, None, b"\x00bytes"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    write_keyring(path, Keyring("", {}).add("first", is_active=True), is_new=True)
    return path


def converter_of(path: Path, encrypts: bool = True) -> DataConverter:
    return make_converter(
        Settings(temporal_encryption=encrypts, secrets_keyring_file=str(path)), KeyringFile(str(path))
    )


async def test_payloads_are_encrypted_and_read_by_other_processes(path: Path) -> None:
    """A process reads what another one wrote, also where it does not encrypt itself; no two payloads are alike."""
    encoded = await converter_of(path).encode(VALUES * 2)

    assert {ENCODING} == {one.metadata["encoding"] for one in encoded}
    assert not any(b"sesame" in one.SerializeToString() for one in encoded)
    assert len(encoded) == len({one.data for one in encoded})
    for reader in (converter_of(path), converter_of(path, encrypts=False)):
        assert VALUES * 2 == await reader.decode(encoded)


async def test_payloads_from_before_are_read_as_they_are(path: Path) -> None:
    """Histories may be half encrypted. Without a keyring nothing is."""
    plain = await CONVERTER.encode(VALUES)

    assert VALUES == await converter_of(path).decode(plain)
    assert plain == await converter_of(path, encrypts=False).encode(VALUES)
    assert make_converter(Settings(), None) is CONVERTER


async def test_a_rotated_key_is_used_at_once_and_the_old_one_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are derived again after a number of payloads, and when the active key changes."""
    monkeypatch.setattr(payload_codec, "SALT_PAYLOADS_MAX", 2)
    monkeypatch.setattr("peloton.files.CHECK_S", 0.0)
    codec, payload = EncryptingCodec(KeyringFile(str(path))), Payload(data=b"x")
    encoded = [(await codec.encode([payload]))[0] for _ in range(3)]
    write_keyring(path, read_keyring(path).add("second", is_active=True))
    encoded += await codec.encode([payload])

    assert [b"first"] * 3 + [b"second"] == [one.metadata["encryption-key-id"] for one in encoded]
    assert 3 == len({one.data[:16] for one in encoded})
    assert [payload] * 4 == await EncryptingCodec(KeyringFile(str(path))).decode(encoded)


async def test_a_payload_that_does_not_decrypt_is_unavailable(path: Path, tmp_path: Path) -> None:
    """The error names the key; the workflow task is repeated until it is there."""
    [payload] = await EncryptingCodec(KeyringFile(str(path))).encode([Payload(data=b"x")])
    other = tmp_path / "other.json"
    write_keyring(other, Keyring("", {}).add("second", is_active=True), is_new=True)

    with pytest.raises(Unavailable, match=r"key 'first' is not in the keyring .* which has second"):
        await EncryptingCodec(KeyringFile(str(other))).decode([payload])
    payload.data = payload.data[:-1]
    with pytest.raises(Unavailable, match=r"key first of the keyring .* does not decrypt this"):
        await EncryptingCodec(KeyringFile(str(path))).decode([payload])


async def test_failures_are_encrypted(path: Path) -> None:
    """Messages of failures may have names of users' jobs."""
    failure = Failure()
    await converter_of(path).encode_failure(ApplicationError("no such pool /secret"), failure)

    assert b"/secret" not in failure.SerializeToString()
    assert "no such pool /secret" == getattr(await converter_of(path).decode_failure(failure), "message", "")
