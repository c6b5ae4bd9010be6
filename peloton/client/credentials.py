"""Credentials of clients: from arguments, the environment, or the file that ``peloton login`` writes for a cluster.

The file is ``peloton/credentials/HOST_PORT.token`` in the user's folder of configurations, readable by the user alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peloton.client.tls import cluster_file
from peloton.errors import InvalidArgument
from peloton.files import Stamp, read_file, read_stamp, write_private_file

TOKEN_CHARS_MAX = 16 * 1024
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
            return TokenFile(Path(self.token_file)).headers
        fixed: Headers = ()
        if self.token:
            fixed = _bearer(self.token)
        elif self.username or self.password:
            fixed = (("username", self.username), ("password", self.password))
        return lambda: fixed


class TokenFile:
    """The token of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[Stamp, Headers] | None = None

    def headers(self) -> Headers:
        """Return the headers of a call. Raises InvalidArgument for a file that cannot be read or has no token."""
        try:
            stamp = read_stamp(self._path)
            if self._read is None or self._read[0] != stamp:
                content = read_file(self._path, "token file", TOKEN_CHARS_MAX + 2)
                self._read = stamp, _bearer(check_token(content.decode("ascii", "replace").strip(), str(self._path)))
        except OSError as error:
            raise InvalidArgument(f"token file {self._path} cannot be read: {error.strerror}") from None
        return self._read[1]


def _bearer(token: str) -> Headers:
    return (("authorization", f"Bearer {token}"),)


def check_token(token: str, where: str) -> str:
    """Return the token. Raises InvalidArgument for one that no header can have."""
    if not token or len(token) > TOKEN_CHARS_MAX or not all("!" <= letter <= "~" for letter in token):
        raise InvalidArgument(f"{where}: want one token of at most {TOKEN_CHARS_MAX:,} printable characters, no blanks")
    return token


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


def credentials_file(address: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file with the token for the API at an address."""
    cluster = cluster_file(address.partition(",")[0].strip(), environment)
    return cluster.parent.parent / "credentials" / f"{cluster.stem}.token"


def store_token(address: str, token: str) -> Path:
    """Write the file with the token, readable by the user alone, and return its path. Raises OSError."""
    path = credentials_file(address)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(path, f"{token}\n".encode("ascii"))
    return path
