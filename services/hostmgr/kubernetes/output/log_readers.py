"""Readers of logs, with one call for each piece.

An apiserver cannot read a log from an offset. So the stream of a log stays open between two calls, at the offset at
which the first one stopped; without such a stream the log is opened again and read up to that offset.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from services.hostmgr.driver import FilePiece
from services.hostmgr.kubernetes.apiserver.connection import Stream
from services.hostmgr.kubernetes.output.logs import PodLogs

PIECE_BYTES = 1 << 18
READERS_MAX = 64
IDLE_S = 60.0
AT_ONCE_MAX = 8
"""Limit of concurrent calls that open or read logs; a node that does not answer blocks each of them."""
TURN_S = 5.0
FIRST_WAIT_S, NEXT_WAIT_S = 1.0, 0.05
"""Seconds to wait for data of a followed log: when it was just opened, and later."""
END_WAIT_S = 30.0
"""Seconds to wait for data of a log that is not followed: its end exists already."""
SKIP_S = 5.0
"""Seconds that one call spends to reach the requested offset."""


_Key = tuple[str, str, bool, int]
"""Pod, file, whether it is followed, and the next offset."""


@dataclass
class _Reader:
    stream: Stream
    position: int = 0
    used_s: float = 0.0


class LogReaders:
    """Open readers. Thread-safe."""

    def __init__(self, logs: PodLogs, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(AT_ONCE_MAX)
        self._readers: OrderedDict[_Key, _Reader] = OrderedDict()
        self._is_closed = False

    def read(self, pod: str, file: str, offset: int, follow: bool) -> FilePiece:
        """Implement the driver port's ``read_file``. Raises NotFound, OSError."""
        if not self._turns.acquire(timeout=TURN_S):
            raise OSError(f"{AT_ONCE_MAX} logs are being read at once: try again")
        try:
            return self._read(pod, file, offset, follow)
        finally:
            self._turns.release()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            readers, self._readers = list(self._readers.values()), OrderedDict()
        _close(readers)

    def _read(self, pod: str, file: str, offset: int, follow: bool) -> FilePiece:
        with self._lock:
            reader = self._readers.pop((pod, file, follow, offset), None)
        wait_s = NEXT_WAIT_S if follow else END_WAIT_S
        if reader is None:
            reader = _Reader(self._logs.open(pod, file, follow))
            wait_s = max(wait_s, FIRST_WAIT_S)
        data = b""
        try:
            if self._skip(reader, offset):
                data = reader.stream.read(PIECE_BYTES, wait_s)
                reader.position += len(data)
            is_end = reader.stream.is_over
        except BaseException:
            _close([reader])
            raise
        self._keep((pod, file, follow, offset + len(data)), reader, is_end)
        return FilePiece(data, is_end)

    def _skip(self, reader: _Reader, offset: int) -> bool:
        """Return whether the reader has reached this offset; in a shorter log it stops at the end."""
        until_s = self._clock() + SKIP_S
        while reader.position < offset and not reader.stream.is_over and self._clock() < until_s:
            reader.position += len(reader.stream.read(min(offset - reader.position, PIECE_BYTES), FIRST_WAIT_S))
        return reader.position >= offset

    def _keep(self, key: _Key, reader: _Reader, is_end: bool) -> None:
        """Keep the reader for the next call."""
        reader.used_s = self._clock()
        over = [reader] if is_end else []
        with self._lock:
            if not is_end:
                if replaced := self._readers.pop(key, None):
                    over.append(replaced)
                self._readers[key] = reader
            while self._readers:
                oldest = next(iter(self._readers.values()))
                is_too_old = reader.used_s - oldest.used_s > IDLE_S
                if not is_too_old and len(self._readers) <= READERS_MAX and not self._is_closed:
                    break
                over.append(self._readers.popitem(last=False)[1])
        _close(over)


def _close(readers: list[_Reader]) -> None:
    for reader in readers:
        with reader.stream:
            reader.stream.close()
