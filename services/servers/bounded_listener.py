"""A listening socket whose connections are bounded: those that have sent no request give way to new ones.

It is given to an event loop instead of a plain socket. The protocol of a connection says when it waits for its client,
and when it is busy with a request. So a flood of connections that send nothing, or too slowly, keeps no one out: the
address with the most of them loses its oldest.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

WAITING_MAX = 500
"""Connections that have sent no complete request, or do not read their answer. With TLS each takes 300 KiB."""
CONNECTIONS_MAX = 2_000
"""Connections in all; beyond it new ones are closed at once, which happens only when so many requests are answered."""
ENDED_MAX = 64
"""Connections that were ended and whose event loop has not closed them yet; meanwhile none is accepted."""
COLLECT_PERIOD = 256
"""Ended connections between two collections of garbage: each leaves 256 KiB of buffers in a cycle of references."""
HANDSHAKE_S = 10.0
"""Time for the TLS handshake of a connection, in seconds."""


class Place:
    """The place of a connection among those of its listener."""

    __slots__ = ("_listener", "_socket", "abort", "accepted_s", "is_connected", "is_over", "peer")

    def __init__(self, listener: BoundedListener, connection: Accepted, peer: str) -> None:
        self._listener, self._socket, self.peer = listener, connection, peer
        self.accepted_s, self.is_connected, self.is_over = time.monotonic(), False, False
        self.abort: Callable[[], None] | None = None

    def wait(self) -> None:
        """Note that the connection waits for its client."""
        self._listener.note_waiting(self)

    def work(self) -> None:
        """Note that the server works for the connection."""
        self._listener.note_busy(self)

    def end(self) -> None:
        """End the connection: before its handshake is done, by the end of its stream, which the event loop reads."""
        if self.abort is not None:
            self.abort()
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class Accepted(socket.socket):
    """A connection, which leaves its listener when it is closed."""

    left: Callable[[], None] | None = None

    def close(self) -> None:
        if self.left is not None:
            self.left()
            self.left = None
        super().close()


class BoundedListener(socket.socket):
    """Bind and listen as with any socket."""

    def __init__(self, family: int, waiting_max: int = WAITING_MAX, connections_max: int = CONNECTIONS_MAX) -> None:
        # With the protocol asyncio disables Nagle's algorithm, which would hold each answer back for 40 ms.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._waiting_max, self._connections_max = waiting_max, connections_max
        self._places: dict[int, Place] = {}
        self._waiting: dict[str, dict[Place, None]] = {}  # by peer, the oldest first
        self._waiting_count = 0
        self._ended_in_all = 0
        self._ended_count = 0  # connections that this listener has ended, and their loop has not closed yet

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ConnectionAbortedError for one beyond the bound, and BlockingIOError while the
        event loop has to close ended ones.
        """
        if self._ended_count >= ENDED_MAX:
            raise BlockingIOError
        plain, address = super().accept()
        connection = Accepted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        place = Place(self, connection, str(address[0]))
        if self._waiting_count >= self._waiting_max or self._count() >= self._connections_max:
            self._end_oldest()
        if self._count() >= self._connections_max:
            connection.close()
            raise ConnectionAbortedError
        number = connection.fileno()
        self._places[number] = place
        connection.left = lambda: self._forget(number)
        self.note_waiting(place)
        return connection, address

    def place_of(self, number: int, abort: Callable[[], None]) -> Place | None:
        """Return the place of the connection with a file descriptor, whose handshake is done. ``abort`` ends it."""
        place = self._places.get(number)
        if place is not None:
            place.is_connected, place.abort = True, abort
        return place

    def end_overdue(self) -> None:
        """End connections whose handshake has not come."""
        since_s = time.monotonic() - HANDSHAKE_S
        for place in [one for one in self._all_waiting() if not one.is_connected and one.accepted_s <= since_s]:
            self._end(place)

    @property
    def waiting_count(self) -> int:
        return self._waiting_count

    def note_waiting(self, place: Place) -> None:
        if place.is_over:
            return
        waiting = self._waiting.setdefault(place.peer, {})
        if place not in waiting:
            waiting[place] = None
            self._waiting_count += 1

    def note_busy(self, place: Place) -> None:
        waiting = self._waiting.get(place.peer, {})
        if place in waiting:
            del waiting[place]
            self._waiting_count -= 1
            if not waiting:
                del self._waiting[place.peer]

    def _all_waiting(self) -> Iterator[Place]:
        for waiting in self._waiting.values():
            yield from waiting

    def _end_oldest(self) -> None:
        if self._waiting:
            peer = max(self._waiting, key=lambda one: len(self._waiting[one]))
            self._end(next(iter(self._waiting[peer])))

    def _end(self, place: Place) -> None:
        self.note_busy(place)
        place.is_over = True
        self._ended_count += 1
        self._ended_in_all += 1
        place.end()
        if self._ended_in_all % COLLECT_PERIOD == 0:
            gc.collect()

    def _count(self) -> int:
        return len(self._places) - self._ended_count

    def _forget(self, number: int) -> None:
        place = self._places.pop(number)
        self.note_busy(place)
        self._ended_count -= place.is_over
        place.is_over = True
