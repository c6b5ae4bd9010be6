"""Secrets of jobs: files mounted into all containers of a job, values of environment variables, credentials of
images."""

from __future__ import annotations

from dataclasses import dataclass, field

SECRETS_MAX = 20
"""Maximum secrets of one job."""
SECRETS_BYTES_MAX = 64 * 1024
"""Maximum bytes of all secrets of one job: they are sent with each launch."""
VARIABLE = "env/"
"""Beginning of the paths of secrets that are values of variables; the rest is the name of the variable."""
IMAGE = "image/"
"""Beginning of the paths of secrets that are credentials of images; the rest is the name of the image."""
NO_FILES = (VARIABLE, IMAGE)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret. ``revision`` rises when the data is replaced. A secret without data refers to a stored one."""

    secret_id: str
    path: str
    data: bytes = field(default=b"", repr=False)
    revision: int = 0

    @property
    def is_file(self) -> bool:
        return not self.path.startswith(NO_FILES)


@dataclass(frozen=True, slots=True)
class HeldSecret:
    """A secret as its row has it. ``holder`` says what ``data`` is: empty for the secret itself, ``key:ID`` for its
    encryption by that key, ``vault`` for a reference to it."""

    secret_id: str
    revision: int
    holder: str
    data: bytes = field(repr=False)
