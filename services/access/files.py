"""Files of identities and permissions: bounded in size, read again when they change, and kept when a change is bad."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from peloton.errors import InvalidArgument, InvalidSettings
from peloton.files import ReloadedFiles, read_file

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 4 * 2**20
"""Maximum size of a file: 10,000 tokens or bindings fit."""

T = TypeVar("T")


def read_parsed_file(path: str, what: str, parse: Callable[[str], T]) -> ReloadedFiles[T]:
    """Return the parsed content of a file, which follows the file. ``parse`` raises ValueError for a bad one.

    Raises InvalidSettings when the first content is bad; a later bad one is logged once.
    """

    def note(fault: Exception | None) -> None:
        if fault is not None:
            log.error("%s %s: the content before it stays: %s", what, path, describe(fault))
        else:
            log.info("%s %s: read again", what, path)

    try:
        return ReloadedFiles([path], lambda: parse(read_bounded(path)), note)
    except (OSError, ValueError, InvalidArgument) as error:
        raise InvalidSettings(f"{what} {path}: {describe(error)}") from error


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
