"""Bounded reads of files that users and administrators name, and writes of files for their owner alone.

A name may be that of a device, a pipe without an end, or a file of any size: each read has a limit in bytes, and one in
seconds where the file is a pipe or a device.
"""

from __future__ import annotations

import os
import select
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from peloton.errors import InvalidArgument
from peloton.model.text import shorten

PIPE_S = 30.0
"""Seconds in which a pipe or a device has to be read to its end."""
TEXT_BYTES_MAX = 2**20
"""Limit of files of settings, credentials and certificates."""
CHECK_S = 1.0
"""Seconds between two looks at files that are read again when they change."""
_CHUNK_BYTES = 2**20
Stamp = tuple[int, int, int]
"""Inode, time of modification in ns, and size: they change with the content of a file, or with the file itself."""
Note = Callable[[Exception | None], None]
"""Takes the fault of files that have changed, or None when their new content is in use."""
T = TypeVar("T")


class FileTooLarge(InvalidArgument):
    """The file has more bytes than the limit, possibly without an end."""


def read_file(path: Path | str, what: str, bytes_max: int = TEXT_BYTES_MAX, pipe_s: float = 0) -> bytes:
    """Read a whole file; ``what`` says in errors what it is. 0 seconds are ``PIPE_S``.

    Raises OSError, and InvalidArgument beyond a limit.
    """
    descriptor = _open(path)
    try:
        return _read(descriptor, path, what, bytes_max, pipe_s or PIPE_S)
    finally:
        os.close(descriptor)


def read_text_file(path: Path | str, what: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Read a file of UTF-8. Raises OSError and InvalidArgument."""
    try:
        return read_file(path, what, bytes_max).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{_name(path, what)} is not UTF-8 text: byte {error.start} is no part of it") from None


def read_authorities(path: Path | str) -> str:
    """Read the certificates of authorities in PEM for ``cadata``, which takes ASCII: comments may have more.

    Raises OSError and InvalidArgument. An empty file is no certificate, and not the default authorities.
    """
    return read_file(path, "authorities").decode("ascii", "ignore") or "\n"


def read_private_file(path: Path | str, what: str, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Read a file that only this user may read. Raises OSError and InvalidArgument.

    A group may read a file of root: Kubernetes mounts secrets so for users other than root.
    """
    descriptor = _open(path)
    try:
        found = os.fstat(descriptor)
        shared = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP
        if found.st_uid != 0 or os.geteuid() == 0:
            shared |= stat.S_IRGRP
        if stat.S_ISREG(found.st_mode) and found.st_mode & shared:
            raise InvalidArgument(
                f"{_name(path, what)} has the mode {stat.S_IMODE(found.st_mode):04o}, by which others read or write it:"
                f" want 0600 (chmod 600)"
            )
        return _read(descriptor, path, what, bytes_max, PIPE_S)
    finally:
        os.close(descriptor)


def read_stamp(path: Path | str) -> Stamp:
    """Return what changes when a file, or the target of its link, is replaced or written. Raises OSError."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


class ReloadedFiles(Generic[T]):
    """The content of files that belong together, read again when one of them changes. Any thread may call.

    A content that cannot be read is not used: the one before it stays, and ``fault`` says why. ``generation`` grows
    with each other content.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        read: Callable[[], T],
        note: Note = lambda fault: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``read`` reads and checks the files; it raises OSError, ValueError or InvalidArgument, as this does.

        ``note`` hears of a fault when a second look has found it: files that belong together are seldom replaced in
        the same instant.
        """
        self._paths, self._read, self._note, self._clock_s = paths, read, note, clock_s
        self._lock = threading.Lock()
        self._checked_s = clock_s()
        self._faults = 0  # looks in a row that found one
        self.fault: Exception | None = None
        self.generation = 1
        self._stamps, self._content = self._read_whole()

    def get(self) -> T:
        """Return the content, at most CHECK_S old."""
        with self._lock:
            if self._clock_s() - self._checked_s >= CHECK_S:
                self._check()
            return self._content

    def refresh(self) -> T:
        """Return the content as it is now."""
        with self._lock:
            self._check()
            return self._content

    def _check(self) -> None:
        self._checked_s = self._clock_s()
        if self.fault is None and self._read_stamps() == self._stamps:
            return
        try:
            stamps, content = self._read_whole()
        except (InvalidArgument, OSError, ValueError) as error:
            self.fault, self._faults = error, self._faults + 1
            if self._faults == 2:
                self._note(error)
            return
        self.fault, self._faults, self._stamps = None, 0, stamps
        if content != self._content:
            self._content = content
            self.generation += 1
            self._note(None)

    def _read_whole(self) -> tuple[list[Stamp | None], T]:
        stamps = self._read_stamps()
        content = self._read()
        if self._read_stamps() != stamps:
            raise InvalidArgument(f"{', '.join(map(str, self._paths))}: changes while it is read")
        return stamps, content

    def _read_stamps(self) -> list[Stamp | None]:
        return [_find_stamp(path) for path in self._paths]


def _find_stamp(path: Path | str) -> Stamp | None:
    try:
        return read_stamp(path)
    except OSError:
        return None


def write_private_file(path: Path, content: bytes, *, is_new: bool = False, mode: int = 0o600) -> None:
    """Write a file that only this user may access, at once or not at all. Raises OSError.

    ``is_new``: raises FileExistsError where the file exists, which is replaced otherwise.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            os.link(part, path)
        else:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_stream(stream: BinaryIO, what: str, bytes_max: int) -> bytes:
    """Read an open stream to its end, such as standard input. Raises InvalidArgument beyond the limit."""
    content = stream.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise _too_large(what, bytes_max)
    return content


def _open(path: Path | str) -> int:
    # A pipe without a writer would block the opening.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(descriptor: int, path: Path | str, what: str, bytes_max: int, pipe_s: float) -> bytes:
    found = os.fstat(descriptor)
    is_regular = stat.S_ISREG(found.st_mode)
    if is_regular and found.st_size > bytes_max:
        raise _too_large(_name(path, what), bytes_max)
    deadline_s = time.monotonic() + pipe_s
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    chunks: list[bytes] = []
    size_bytes = 0
    while size_bytes <= bytes_max:
        left_s = deadline_s - time.monotonic()
        if not is_regular and (left_s <= 0 or not poll.poll(left_s * 1000)):
            raise InvalidArgument(f"{_name(path, what)} has not ended within {pipe_s:g} s")
        try:
            chunk = os.read(descriptor, min(_CHUNK_BYTES, bytes_max + 1 - size_bytes))
        except BlockingIOError:  # another process has read what there was
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size_bytes += len(chunk)
    raise _too_large(_name(path, what), bytes_max)


def _too_large(name: str, bytes_max: int) -> FileTooLarge:
    return FileTooLarge(f"{name} has more than {bytes_max:,} bytes, its limit")


def _name(path: Path | str, what: str) -> str:
    return f"{what} {shorten(str(path), 1_000)}"
