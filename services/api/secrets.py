"""Secrets in requests and answers: validation, and references without data."""

from __future__ import annotations

import binascii
import posixpath
import uuid
from base64 import b64decode
from collections.abc import Iterable, Sequence

from peloton.api.secret_values import Pod, take_values
from peloton.api.v0 import peloton_pb2 as v0
from peloton.api.v1alpha import peloton_pb2 as v1
from peloton.errors import InvalidArgument
from peloton.model.secret import NO_FILES, SECRETS_MAX, Secret
from peloton.model.text import quote, shorten

PATH_MAX = 1_000


def parse_secrets(wire: Iterable[v0.Secret | v1.Secret]) -> list[Secret]:
    """Parse secrets and give them new ids; without data, in base64, the job's secret at the path is kept.

    Raises InvalidArgument.
    """
    found = [Secret(str(uuid.uuid4()), _path(one.path), _data(one)) for one in wire]
    paths = [one.path for one in found]
    if twice := sorted({path for path in paths if paths.count(path) > 1} if len(paths) <= SECRETS_MAX else ()):
        raise InvalidArgument(f"two secrets at {shorten(twice[0])}")
    if len(paths) > SECRETS_MAX:
        raise InvalidArgument(f"{len(paths)} secrets in the request, at most {SECRETS_MAX} are allowed")
    return found


def take_secrets(pod: Pod) -> list[Secret]:
    """Take the secret values out of a pod, which then refers to them.

    Raises InvalidArgument.
    """
    return [Secret(str(uuid.uuid4()), _path(path), data) for path, data in take_values(pod)]


def join_sent(files: Sequence[Secret], values: Sequence[Secret]) -> list[Secret]:
    """Return the secrets that a request has; a value in the configuration replaces a reference to it."""
    own = {one.path for one in values}
    found = [*(one for one in files if one.path not in own), *values]
    if len(found) > SECRETS_MAX:
        raise InvalidArgument(f"{len(found)} secrets in the request, at most {SECRETS_MAX} are allowed")
    return found


def _path(path: str) -> str:
    if path.startswith(NO_FILES) and len(path) <= PATH_MAX and not set(path) & {"\0", "="}:
        return path  # of a value; answers name it
    if not path:
        raise InvalidArgument("secret does not have a path")
    if len(path) > PATH_MAX:
        raise InvalidArgument(f"the path of a secret has {len(path)} characters, at most {PATH_MAX} are allowed")
    if not path.startswith("/") or path != posixpath.normpath(path) or path in ("/", "//") or set(path) & {"\0", ":"}:
        raise InvalidArgument(f"secret at {quote(path)}: want the absolute path of a file, without '..' and ':'")
    return path


def _data(one: v0.Secret | v1.Secret) -> bytes:
    try:
        return b64decode(one.value.data, validate=True)
    except binascii.Error as error:
        raise InvalidArgument(f"secret at {shorten(one.path)}: failed to decode secret with error: {error}") from None


def v0_secrets(secrets: Iterable[Secret]) -> list[v0.Secret]:
    return [v0.Secret(id=v0.SecretID(value=one.secret_id), path=one.path) for one in secrets]


def v1_secrets(secrets: Iterable[Secret]) -> list[v1.Secret]:
    return [v1.Secret(secret_id=v1.SecretID(value=one.secret_id), path=one.path) for one in secrets]
