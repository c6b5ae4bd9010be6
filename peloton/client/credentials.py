"""Credentials of clients: from arguments, the environment, or the file that ``peloton login`` writes for a cluster.

The file is ``peloton/credentials/HOST_PORT.token`` in the user's folder of configurations, readable by the user alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peloton.client.token_files import TOKEN_CHARS_MAX, check_token, credentials_file, read_sign_in
from peloton.errors import InvalidArgument, PelotonError
from peloton.files import Stamp, read_file, read_stamp

RETRY_S = 10.0
"""Pause after a failed renewal of a token that is still valid."""
TOKEN, TOKEN_FILE = "PELOTON_TOKEN", "PELOTON_TOKEN_FILE"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Credentials:
    """A token, a file with one, or a user name and password; at most one of the three. None: anonymous."""

    token: str = ""
    token_file: str = ""  # read again when it changes
    username: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        given = [bool(self.token), bool(self.token_file), bool(self.username or self.password)]
        if sum(given) > 1:
            raise InvalidArgument("want a token, a token file, or a user name and password, and not two of them")
        if self.token:
            check_token(self.token, "the token")

    def __repr__(self) -> str:
        return f"Credentials(token_file={self.token_file!r}, username={self.username!r})"

    def headers(self) -> Callable[[], Headers]:
        """Return what gives the headers of each call."""
        if self.token_file:
            return TokenFile(Path(self.token_file))
        fixed: Headers = ()
        if self.token:
            fixed = _bearer(self.token)
        elif self.username or self.password:
            fixed = (("username", self.username), ("password", self.password))
        return lambda: fixed


@dataclass(frozen=True)
class _Read:
    """The token of a file, and the times (Unix) at which it is due for renewal and expires; infinite: no renewal."""

    stamp: Stamp
    headers: Headers
    renew_at_s: float
    expires_s: float


class TokenFile:
    """The token of a file. One that ``peloton login`` stored after a sign-in is renewed before it expires."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._path, self._clock_s = path, clock_s
        self._read: _Read | None = None
        self._retry_at_s = 0.0

    def __call__(self) -> Headers:
        """Return the headers of a call; blocks while the token is renewed.

        Raises InvalidArgument for a file that cannot be read or has no token, and, where an expired token cannot be
        renewed, Unavailable or Unauthenticated.
        """
        found = self._load()
        if not self._is_due(found):
            return found.headers
        from peloton.client.sign_in import renew

        try:
            renew(self._path)
            self._read = None  # it may have been read between the two files
        except PelotonError:
            self._retry_at_s = self._clock_s() + RETRY_S
            if self._clock_s() >= found.expires_s:
                raise
        return self._load().headers

    def is_due(self) -> bool:
        """Return whether the next call will renew the token."""
        return self._is_due(self._load())

    def _is_due(self, found: _Read) -> bool:
        now_s = self._clock_s()
        return now_s >= found.renew_at_s and (now_s >= self._retry_at_s or now_s >= found.expires_s)

    def _load(self) -> _Read:
        try:
            stamp = read_stamp(self._path)
            if self._read is None or self._read.stamp != stamp:
                content = read_file(self._path, "token file", TOKEN_CHARS_MAX + 2)
                headers = _bearer(check_token(content.decode("ascii", "replace").strip(), str(self._path)))
                kept = read_sign_in(self._path)
                times_s = (kept.renew_at_s, kept.expires_s) if kept is not None else (float("inf"), float("inf"))
                self._read = _Read(stamp, headers, *times_s)
        except OSError as error:
            raise InvalidArgument(f"token file {self._path} cannot be read: {error.strerror}") from None
        return self._read


def _bearer(token: str) -> Headers:
    return (("authorization", f"Bearer {token}"),)


def find_credentials(address: str, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials for the API at an address, by the environment or the file of its cluster."""
    if token := environment.get(TOKEN, ""):
        return Credentials(token=check_token(token, TOKEN))
    if path := environment.get(TOKEN_FILE, ""):
        return Credentials(token_file=path)
    stored = credentials_file(address, environment)
    return Credentials(token_file=str(stored)) if stored.is_file() else Credentials()


def find_headers(address: str, given: Credentials) -> Callable[[], Headers]:
    """Return what gives the headers of each call, by the given credentials, or by those that are found."""
    return (given if given != Credentials() else find_credentials(address)).headers()
