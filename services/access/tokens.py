"""Authenticator of bearer tokens by the hashes of a file."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping

from peloton.access.caller import Caller
from peloton.access.tokens import PREFIX, TokenRow, hash_secret, parse_rows
from peloton.errors import Unauthenticated
from peloton.files import ReloadedFiles
from services.access.files import read_parsed_file

TOKEN_CHARS_MAX = 200
_NO_HASH = b"\0" * 32


class Tokens:
    """Authenticator of the tokens of a file."""

    def __init__(self, path: str, clock_s: Callable[[], float] = time.time) -> None:
        self._file: ReloadedFiles[Mapping[str, TokenRow]] = read_parsed_file(path, "tokens file", parse_rows)
        self._clock_s = clock_s

    def read_version(self) -> int:
        """Return the version of the file, after reading it if it has changed."""
        self._file.get()
        return self._file.generation

    def authenticate(self, token: str) -> tuple[Caller, float]:
        """Return the caller, and the Unix time at which the token expires, 0 for never. Raises Unauthenticated."""
        token_id, _, secret = token.removeprefix(PREFIX).partition("_")
        row = self._file.get().get(token_id)
        salt, wanted = (row.salt, row.hash) if row else (_NO_HASH, _NO_HASH)
        is_right = hmac.compare_digest(hash_secret(secret[:TOKEN_CHARS_MAX], salt), wanted)
        if row is None or not is_right:
            raise Unauthenticated("the token is unknown: it is wrong, or was revoked")
        if row.expires_s and row.expires_s <= self._clock_s():
            raise Unauthenticated(f"token {row.id} of {row.name} has expired at {row.expires}")
        return Caller(row.name, row.kind, row.groups, issuer="tokens file", token_id=row.id), row.expires_s
