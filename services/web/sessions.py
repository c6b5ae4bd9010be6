"""Sessions of viewers in encrypted cookies. A process remembers the sessions that were ended before their time."""

from __future__ import annotations

import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from typing import Any

from peloton.errors import InvalidSettings
from peloton.extras import require_extra
from services.access.files import describe, read_bounded

KEY_CHARS_MIN, KEY_BYTES_MAX = 32, 4_096
COOKIE_CHARS_MAX = 3_900
"""Characters of a cookie: browsers refuse larger ones."""
ENDED_MAX = 10_000
"""Sessions that are remembered as ended."""


class Sessions:
    """Seals values in texts that viewers keep. Without a key file it makes a key, and sessions end with the process."""

    def __init__(self, key_file: str = "") -> None:
        require_extra("secure", "cryptography", "sign-in to the pages")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        secret = read_key(key_file).encode() if key_file else secrets.token_bytes(32)
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=b"peloton sessions").derive(secret))
        self._ended: OrderedDict[str, float] = OrderedDict()

    def seal(self, purpose: str, value: dict[str, Any], expires_s: float) -> str:
        """Return a text that ``unseal`` opens for the same purpose until ``expires_s`` (Unix)."""
        nonce, content = secrets.token_bytes(12), json.dumps({**value, "expires": expires_s}).encode()
        return urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, content, purpose.encode())).decode()

    def unseal(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return the value; None for a text of another purpose, key or time."""
        from cryptography.exceptions import InvalidTag

        if len(text) > COOKIE_CHARS_MAX:
            return None
        try:
            raw = urlsafe_b64decode(text.encode())
            value: dict[str, Any] = json.loads(self._cipher.decrypt(raw[:12], raw[12:], purpose.encode()))
        except (ValueError, InvalidTag):
            return None
        return value if value["expires"] > time.time() else None

    def end(self, session: str, expires_s: float) -> None:
        """Refuse a session from now on."""
        self._ended[session] = expires_s
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def has_ended(self, session: str) -> bool:
        return session in self._ended


def read_key(path: str) -> str:
    """Return the secret of a key file. Raises InvalidSettings."""
    secret = read_secret(path)
    if len(secret) < KEY_CHARS_MIN:
        raise InvalidSettings(f"{path}: the secret has {len(secret)} characters; want at least {KEY_CHARS_MIN}")
    return secret


def read_secret(path: str) -> str:
    """Return the text of a file with a secret. Raises InvalidSettings."""
    try:
        return read_bounded(path, KEY_BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{path}: {describe(error)}") from error
