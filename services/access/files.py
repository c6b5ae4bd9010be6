"""Files of identities and permissions: bounded in size, read again when they change, and kept when a change is bad."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from peloton.errors import InvalidArgument, InvalidSettings
from peloton.files import Stamp, read_file, read_stamp

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 4 * 2**20
"""Maximum size of a file: 10,000 tokens or bindings fit."""
CHECK_S = 1.0
"""Longest time in seconds until a changed file is read."""

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The parsed content of a file. ``parse`` raises ValueError for a bad one.

    ``version`` rises with each content. Raises InvalidSettings when the first content is bad; a later bad one is logged
    once and the content before it stays.
    """

    def __init__(
        self, path: str, what: str, parse: Callable[[str], T], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._what, self._parse, self._clock_s = path, what, parse, clock_s
        self._checked_s = clock_s()
        self._stamp = self._read_stamp()
        self.version = 1
        try:
            self._content = parse(read_bounded(path))
        except (OSError, ValueError) as error:
            raise InvalidSettings(f"{what} {path}: {describe(error)}") from error

    def get(self) -> T:
        """Return the content, at most CHECK_S old."""
        now_s = self._clock_s()
        if now_s - self._checked_s >= CHECK_S:
            self._checked_s = now_s
            stamp = self._read_stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._reload()
        return self._content

    def _read_stamp(self) -> Stamp | None:
        try:
            return read_stamp(self._path)
        except OSError:
            return None

    def _reload(self) -> None:
        try:
            self._content = self._parse(read_bounded(self._path))
        except (OSError, ValueError) as error:
            log.error("%s %s: the content before it stays: %s", self._what, self._path, describe(error))
            return
        self.version += 1
        log.info("%s %s: read again", self._what, self._path)


def read_bounded(path: str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return the text of a file. Raises OSError, and ValueError for one that is too large or not UTF-8."""
    try:
        return read_file(path, "the file", bytes_max).decode("utf-8")
    except InvalidArgument as error:
        raise ValueError(error.message) from None


def describe(error: Exception) -> str:
    """Return the fault of a file, without its content."""
    if isinstance(error, OSError):
        return f"the file cannot be read: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return str(error)
