"""Files that ``peloton login`` writes for a cluster: the token, and the sign-in by which it is renewed.

They are ``HOST_PORT.token`` and ``HOST_PORT.sign-in.json`` in ``peloton/credentials`` of the user's folder of
configurations. A token without the second one is not renewed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from peloton.client.tls import cluster_file
from peloton.errors import InvalidArgument
from peloton.files import read_private_file, write_private_file

TOKEN_CHARS_MAX = 16 * 1024
FILE_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class SignIn:
    """The issuer, the client there, the refresh token, and when (Unix) the token is due and expires."""

    issuer: str
    client_id: str
    refresh_token: str
    renew_at_s: float
    expires_s: float
    ca_file: str = ""  # of the authorities of the issuer's certificate

    def __repr__(self) -> str:
        return f"SignIn(issuer={self.issuer!r}, client_id={self.client_id!r})"


def sign_in_file(token_file: Path) -> Path:
    return token_file.with_suffix(".sign-in.json")


def read_sign_in(token_file: Path) -> SignIn | None:
    """Return the sign-in of a token; None: there is none. Raises InvalidArgument for a bad file."""
    path = sign_in_file(token_file)
    try:
        found = json.loads(read_private_file(path, "sign-in", FILE_BYTES_MAX))
        issuer, client_id, renewing = (str(found[name]) for name in ("issuer", "client_id", "refresh_token"))
        times_s = float(found["renew_at_s"]), float(found["expires_s"])
        return SignIn(issuer, client_id, renewing, *times_s, str(found["ca_file"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArgument(f"sign-in {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidArgument(f"sign-in {path} is damaged: peloton login writes it again") from None


def write_sign_in(token_file: Path, sign_in: SignIn) -> None:
    """Write the file, readable by the user alone. Raises OSError."""
    write_private_file(sign_in_file(token_file), json.dumps(asdict(sign_in)).encode())


def check_token(token: str, where: str) -> str:
    """Return the token. Raises InvalidArgument for one that no header can have."""
    if not token or len(token) > TOKEN_CHARS_MAX or not all("!" <= letter <= "~" for letter in token):
        raise InvalidArgument(f"{where}: want one token of at most {TOKEN_CHARS_MAX:,} printable characters, no blanks")
    return token


def credentials_file(address: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file with the token for the API at an address."""
    cluster = cluster_file(address.partition(",")[0].strip(), environment)
    return cluster.parent.parent / "credentials" / f"{cluster.stem}.token"


def store_token(address: str, token: str) -> Path:
    """Write the file with a token that is not renewed, readable by the user alone, and return its path.

    Raises OSError.
    """
    path = credentials_file(address)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sign_in_file(path).unlink(missing_ok=True)
    write_token(path, token)
    return path


def write_token(path: Path, token: str) -> None:
    write_private_file(path, f"{token}\n".encode("ascii"))
