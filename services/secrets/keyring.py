"""The keyring: a file with the keys that encrypt, each with an id; one of them, the active one, encrypts what is new.

{"active": "2026-11", "keys": {"2026-05": "<32 bytes in base64>", "2026-11": "..."}}
"""

from __future__ import annotations

import binascii
import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peloton.errors import InvalidArgument, Unavailable
from peloton.extras import require_extra
from peloton.files import ReloadedFiles, read_private_file, write_private_file
from peloton.model.text import quote

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FILE_BYTES_MAX = 64 * 1024
KEYS_MAX = 100
KEY_BYTES = 32
NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


@dataclass(frozen=True)
class Keyring:
    """Keys by id. AES-256-GCM with a random nonce for each encryption, which comes first in its result."""

    active: str
    keys: Mapping[str, bytes] = field(repr=False)
    source: str = ""

    def encrypt(self, data: bytes, bound_to: bytes) -> tuple[str, bytes]:
        """Encrypt with the active key, whose id comes first. ``bound_to`` has to be the same for the decryption."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return self.active, nonce + self._ciphers[self.active].encrypt(nonce, data, bound_to)

    def decrypt(self, key_id: str, data: bytes, bound_to: bytes) -> bytes:
        """Raises Unavailable for a key that is missing or another one, and for data that was changed or moved."""
        from cryptography.exceptions import InvalidTag

        self.require(key_id)
        try:
            return self._ciphers[key_id].decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError):
            raise self.mismatch(key_id) from None

    def require(self, key_id: str) -> None:
        """Raise Unavailable unless there is the key."""
        if key_id not in self.keys:
            raise Unavailable(
                f"key {quote(key_id)} is not in the keyring {self.source}, which has {', '.join(sorted(self.keys))}: "
                f"add it again from where it was kept"
            )

    def mismatch(self, key_id: str) -> Unavailable:
        return Unavailable(
            f"key {key_id} of the keyring {self.source} does not decrypt this: it is not the key of this id that "
            f"encrypted it, or the stored bytes were changed or moved"
        )

    @cached_property
    def _ciphers(self) -> dict[str, AESGCM]:
        require_extra("secure", "cryptography", f"the keyring {self.source}")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return {key_id: AESGCM(key) for key_id, key in self.keys.items()}

    def add(self, key_id: str, is_active: bool) -> Keyring:
        """Return the keyring with a new random key. Raises InvalidArgument."""
        if not _KEY_ID.fullmatch(key_id):
            raise InvalidArgument(f"key id {quote(key_id)}: want 1 to 63 letters, digits, dots, dashes and underscores")
        if key_id in self.keys:
            raise InvalidArgument(f"the keyring has a key {key_id} already: a key is never replaced, choose another id")
        if len(self.keys) >= KEYS_MAX:
            raise InvalidArgument(f"the keyring has {len(self.keys)} keys, at most {KEYS_MAX} are allowed")
        keys = {**self.keys, key_id: secrets.token_bytes(KEY_BYTES)}
        return Keyring(key_id if is_active or not self.active else self.active, keys, self.source)

    def use(self, key_id: str) -> Keyring:
        """Return the keyring with another active key. Raises InvalidArgument."""
        self._check_named(key_id)
        return Keyring(key_id, self.keys, self.source)

    def remove(self, key_id: str) -> Keyring:
        """Return the keyring without a key. Raises InvalidArgument."""
        self._check_named(key_id)
        if key_id == self.active:
            raise InvalidArgument(f"key {key_id} is the active one: use another one first")
        return Keyring(self.active, {name: key for name, key in self.keys.items() if name != key_id}, self.source)

    def _check_named(self, key_id: str) -> None:
        if key_id not in self.keys:
            raise InvalidArgument(f"no key {quote(key_id)} in the keyring, only {', '.join(sorted(self.keys))}")


def read_keyring(path: Path | str) -> Keyring:
    """Read a keyring. Raises InvalidArgument, which never shows a key."""
    try:
        content = read_private_file(path, "keyring", FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"keyring {path} cannot be read: {error.strerror}") from None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"keyring {path} is not JSON") from None
    return _parse(found, str(path))


def _parse(found: Any, path: str) -> Keyring:
    given = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(given, dict) or not isinstance(found.get("active"), str):
        raise InvalidArgument(f'keyring {path}: want {{"active": ID, "keys": {{ID: KEY, ...}}}}')
    if len(given) > KEYS_MAX:
        raise InvalidArgument(f"keyring {path} has {len(given)} keys, at most {KEYS_MAX} are allowed")
    keys = {}
    for key_id, text in given.items():
        if not _KEY_ID.fullmatch(key_id):
            raise InvalidArgument(f"keyring {path}: key id {quote(key_id)} is none")
        try:
            keys[key_id] = b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            keys[key_id] = b""
        if len(keys[key_id]) != KEY_BYTES:
            raise InvalidArgument(f"keyring {path}: key {key_id} is not {KEY_BYTES} bytes in base64")
    if found["active"] not in keys:
        raise InvalidArgument(f"keyring {path}: the active key {quote(found['active'])} is not among its keys")
    return Keyring(found["active"], keys, path)


def write_keyring(path: Path, keyring: Keyring, is_new: bool = False) -> None:
    """Write a keyring that only this user may read, at once or not at all. Raises OSError."""
    keys = {key_id: b64encode(key).decode() for key_id, key in keyring.keys.items()}
    content = json.dumps({"active": keyring.active, "keys": keys}, indent=2) + "\n"
    write_private_file(path, content.encode(), is_new=is_new)


class KeyringFile:
    """The keyring of a file, read again when the file has changed. Any thread may call."""

    def __init__(self, path: str) -> None:
        """Raises InvalidArgument."""
        self._file = ReloadedFiles([path], lambda: read_keyring(path))

    @property
    def keyring(self) -> Keyring:
        """Raises InvalidArgument: a keyring that was damaged encrypts nothing more."""
        keyring = self._file.get()
        self._check()
        return keyring

    def holding(self, key_id: str) -> Keyring:
        """Return the keyring, read again when it lacks the key, which another process may have added just now.

        Raises InvalidArgument for a keyring that lacks it and was damaged.
        """
        keyring = self._file.get()
        if key_id not in keyring.keys:
            keyring = self._file.refresh()
            self._check()
        return keyring

    def _check(self) -> None:
        if (fault := self._file.fault) is not None:
            raise fault.with_traceback(None)
