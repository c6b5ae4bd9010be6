"""Requests to an apiserver and its answers: many in parallel over keep-alive connections, or as a stream.

Requests that may be repeated are repeated here: when the apiserver delays them (429) or fails (5xx), when their
connection breaks, or when their credentials have just been replaced (401).
"""

from __future__ import annotations

import heapq
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.access import Access
from services.hostmgr.kubernetes.apiserver.connection import Connection, Stream

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

CONNECTIONS_MAX = 50
"""Limit of connections per call. More do not make an apiserver faster, and ordinary users are then delayed with 429."""
ANSWER_TIMEOUT_S = 30.0
IDLE_S = 45.0
"""Seconds after which an idle connection is not reused: apiservers and their proxies close idle ones."""
TRIES_MAX = 6
"""Limit of attempts of a request, whatever the failures."""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 10.0
"""Seconds before the second attempt, doubled before each further one; and the maximum that an answer may request."""
POLL_S = 0.5
"""Seconds between checks for overdue answers, and for ``close``."""
WATCH_SILENCE_S = 180.0
"""Timeout of a silent watch; an apiserver sends a bookmark every minute."""


class Request(NamedTuple):
    """A request, sent again when its connection breaks before the answer. So a POST names its object: the second one
    may be answered with 409, and a second DELETE with 404, which the caller treats as success."""

    method: str
    path: str  # with its query, which is escaped
    body: bytes = b""
    content_type: str = "application/json"


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    retry_after_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Json:
        """Return the JSON object. Raises ConnectionError for any other body: an apiserver does not send one."""
        try:
            value = orjson.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConnectionError(
                f"the apiserver's answer is no JSON object: {self.body[:200].decode(errors='replace')}"
            )
        return value

    @property
    def may_pass(self) -> bool:
        """Return whether the apiserver may answer the same request differently later."""
        return self.status >= 500 or self.status == HTTPStatus.TOO_MANY_REQUESTS

    @property
    def reason(self) -> str:
        """Return the reason of a Status, such as AlreadyExists; else empty."""
        return str(self._status_body().get("reason") or "")

    @property
    def message(self) -> str:
        """Return the message for users."""
        text = self._status_body().get("message") or self.body[:500].decode(errors="replace").strip()
        return f"HTTP {self.status}: {text}" if text else f"HTTP {self.status}"

    def _status_body(self) -> Json:
        try:
            value = self.json()
        except ConnectionError:
            return {}
        return value if value.get("kind") == "Status" else {}


class Refused(ConnectionError):
    """The apiserver answered with an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


def fault_of(answer: Answer | OSError, *fine: HTTPStatus) -> str:
    """Return why a request failed; empty if it succeeded, or its status is in ``fine``."""
    if isinstance(answer, OSError):
        return str(answer) or type(answer).__name__
    return "" if answer.is_ok or answer.status in fine else answer.message


GONE_OR_CHANGED = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Answers about an object of which the next event brings what is to be done."""


def check_answers(answers: Iterable[Answer | OSError], *fine: HTTPStatus) -> None:
    """Raise OSError for the first request that failed; one whose status is in ``fine`` has not."""
    for answer in answers:
        if isinstance(answer, OSError):
            raise answer
        if not answer.is_ok and answer.status not in fine:
            raise OSError(answer.message)


def pause_before_repeat_s(answer: Answer, tries: int) -> float | None:
    """Return the seconds until the next attempt; None when the answer is final. An eviction that a PodDisruptionBudget
    forbids is final, though it is a 429."""
    if tries >= TRIES_MAX:
        return None
    is_of_budget = answer.status == HTTPStatus.TOO_MANY_REQUESTS and b'"DisruptionBudget"' in answer.body
    if is_of_budget or not answer.may_pass:
        return None
    return min(max(answer.retry_after_s, BACKOFF_S * 2.0 ** (tries - 1)), BACKOFF_MAX_S)


class ApiServer:
    """Client of an apiserver. Thread-safe: calls share only idle connections."""

    def __init__(self, access: Access, connections: int = CONNECTIONS_MAX, refusal: Callable[[], str] = str) -> None:
        """``refusal`` returns why this process may change nothing now, or ""."""
        self.access = access
        self._refusal = refusal
        self.connections = connections
        self.is_closed = False
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []  # with the time of their last answer; last in, first out
        self._streams: set[Stream] = set()

    def ask(self, request: Request, timeout_s: float = ANSWER_TIMEOUT_S) -> Answer:
        """Send a request. Raises OSError."""
        [answer] = self.ask_all((request,), timeout_s)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def ask_all(self, requests: Sequence[Request], timeout_s: float = ANSWER_TIMEOUT_S) -> list[Answer | OSError]:
        """Send requests; return answers in their order. An OSError means that it is unknown whether that request was
        done."""
        return _Batch(self, requests, timeout_s).run() if requests else []

    def stream(self, path: str, silence_s: float | None = WATCH_SILENCE_S) -> Stream:
        """Return the answer to a GET as a stream. Raises OSError, including Refused."""
        authorization = self.access.authorization()
        stream = self._open(path, authorization, silence_s)
        if stream.status == HTTPStatus.UNAUTHORIZED and self.access.renew(authorization, stream.context):
            with stream:
                stream = self._open(path, self.access.authorization(), silence_s)
        if stream.status == 200:
            return stream
        with stream:
            raise Refused(Answer(stream.status, b"".join(stream.pieces()), stream.retry_after_s))

    def close(self) -> None:
        """Close the client, and end its calls and streams."""
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
            streams, self._streams = self._streams, set()
        for _, connection in idle:
            connection.close()
        for stream in streams:
            stream.close()

    def tail(self, authorization: str, accept: str = "application/json") -> str:
        """Return the text after the path in every request."""
        credentials = f"Authorization: {authorization}\r\n" if authorization else ""
        return (
            f" HTTP/1.1\r\nHost: {self.access.host_header}\r\n{credentials}Accept: {accept}\r\nUser-Agent: peloton\r\n"
        )

    def take(self) -> Connection | None:
        """Return an idle connection that appears to be open."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since_s, connection = self._idle.pop()
            if time.monotonic() - since_s < IDLE_S and connection.is_quiet:
                return connection
            connection.close()

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self.is_closed and len(self._idle) < self.connections:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def check(self, request: Request) -> None:
        """Raise ConnectionAbortedError if the request changes something and this process may not do so now."""
        if request.method != "GET" and (why := self._refusal()):
            raise ConnectionAbortedError(why)

    def encode(self, request: Request, tail: str) -> bytes:
        method, path, body, content_type = request
        if not (path.isascii() and path.isprintable()) or " " in path:
            raise ValueError(f"{path!r} is not escaped")
        head = f"{method} {self.access.path}{path}{tail}"
        if not body:
            return f"{head}\r\n".encode() if method == "GET" else f"{head}Content-Length: 0\r\n\r\n".encode()
        return f"{head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def _open(self, path: str, authorization: str, silence_s: float | None) -> Stream:
        stream = Stream(self.access, self.encode(Request("GET", path), self.tail(authorization)), silence_s)
        with self._lock:
            self._streams = {one for one in self._streams if not one.is_closed} | {stream}
            is_closed = self.is_closed
        if is_closed:
            stream.close()
        return stream


class _Flight:
    """A connection of a batch, and the request in flight on it."""

    __slots__ = ("authorization", "connection", "index", "until_s", "wants")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.index = -1  # none
        self.authorization = ""
        self.until_s = 0.0
        self.wants = 0  # events that the selector waits for


class _Batch:
    """One call of ``ask_all``, on the thread of its caller."""

    def __init__(self, server: ApiServer, requests: Sequence[Request], timeout_s: float) -> None:
        self._server = server
        self._requests = requests
        self._timeout_s = timeout_s
        self._answers: list[Answer | OSError | None] = [None] * len(requests)
        self._missing = len(requests)
        self._tries = [0] * len(requests)
        self._waiting = deque(range(len(requests)))
        self._later: list[tuple[float, int]] = []  # heap of times of the next attempts
        self._flights: dict[int, _Flight] = {}  # by descriptor
        self._free: list[_Flight] = []
        self._limit = min(server.connections, len(requests))
        self._selector = selectors.DefaultSelector()
        self._authorization = ""
        self._tail = ""

    def run(self) -> list[Answer | OSError]:
        try:
            self._authorize()
            poll_s = time.monotonic() + POLL_S
            while self._missing:
                pause_s = self._send(poll_s)
                for key, _ in self._selector.select(pause_s):
                    self._step(key.data)
                if time.monotonic() >= poll_s:
                    self._poll()
                    poll_s = time.monotonic() + POLL_S
        except OSError as error:
            self._give_up(error)
        finally:
            self._selector.close()
            for flight in self._flights.values():
                if flight.index < 0:
                    self._server.give_back(flight.connection)
                else:
                    flight.connection.close()
        return [answer for answer in self._answers if answer is not None]

    def _authorize(self) -> None:
        self._authorization = self._server.access.authorization()
        self._tail = self._server.tail(self._authorization)

    def _send(self, poll_s: float) -> float:
        """Assign waiting requests to connections, and open at most one more; return how long to wait for answers."""
        now_s = time.monotonic()
        while self._later and self._later[0][0] <= now_s:
            self._waiting.append(heapq.heappop(self._later)[1])
        while self._waiting and self._free:
            self._begin(self._free.pop(), now_s)
        if self._waiting and len(self._flights) < self._limit and (flight := self._add_connection()):
            self._begin(flight, now_s)
            if self._waiting and len(self._flights) < self._limit:
                return 0.0
        until_s = min(poll_s, self._later[0][0]) if self._later else poll_s
        return max(until_s - now_s, 0.0)

    def _add_connection(self) -> _Flight | None:
        """Add a connection. Raises OSError when there is none at all."""
        connection = self._server.take()
        if connection is None:
            try:
                connection = Connection(self._server.access)
            except OSError:
                if not self._flights:
                    raise
                self._limit = len(self._flights)
                return None
        flight = self._flights[connection.sock.fileno()] = _Flight(connection)
        return flight

    def _begin(self, flight: _Flight, now_s: float) -> None:
        self._server.check(self._requests[self._waiting[0]])
        index = flight.index = self._waiting.popleft()
        self._tries[index] += 1
        flight.authorization = self._authorization
        flight.until_s = now_s + self._timeout_s
        try:
            flight.connection.begin(self._server.encode(self._requests[index], self._tail))
        except OSError as error:
            self._retry_broken(flight, error)
            return
        self._wait_for(flight)

    def _wait_for(self, flight: _Flight) -> None:
        wants = selectors.EVENT_READ | (selectors.EVENT_WRITE if flight.connection.is_sending else 0)
        if wants == flight.wants:
            return
        if flight.wants:
            self._selector.modify(flight.connection.sock, wants, flight)
        else:
            self._selector.register(flight.connection.sock, wants, flight)
        flight.wants = wants

    def _step(self, flight: _Flight) -> None:
        if flight.index < 0:
            self._drop(flight)  # closed by the apiserver
            return
        try:
            if not flight.connection.step():
                self._wait_for(flight)
                return
        except OSError as error:
            self._retry_broken(flight, error)
            return
        self._complete(flight)

    def _complete(self, flight: _Flight) -> None:
        read = flight.connection.answer
        answer = Answer(read.status, b"".join(read.take()), read.retry_after_s)
        index, flight.index = flight.index, -1
        if read.is_last or flight.connection.is_sending or answer.status == HTTPStatus.UNAUTHORIZED:
            self._drop(flight)
        else:
            self._wait_for(flight)
            self._free.append(flight)
        tries = self._tries[index]
        if answer.status == HTTPStatus.UNAUTHORIZED and tries < TRIES_MAX and self._has_new_credentials(flight):
            self._waiting.append(index)
        elif (pause_s := pause_before_repeat_s(answer, tries)) is not None:
            heapq.heappush(self._later, (time.monotonic() + pause_s, index))
        else:
            self._finish(index, answer)

    def _has_new_credentials(self, flight: _Flight) -> bool:
        """Return whether there are credentials other than the rejected ones. Raises OSError."""
        if flight.authorization == self._authorization:
            if not self._server.access.renew(flight.authorization, flight.connection.context):
                return False
            self._authorize()
        return True

    def _retry_broken(self, flight: _Flight, error: OSError) -> None:
        index = flight.index
        self._drop(flight)
        if self._tries[index] < TRIES_MAX:
            self._waiting.appendleft(index)
        else:
            self._finish(index, error)

    def _drop(self, flight: _Flight) -> None:
        if flight in self._free:
            self._free.remove(flight)
        del self._flights[flight.connection.sock.fileno()]
        if flight.wants:
            self._selector.unregister(flight.connection.sock)
        flight.connection.close()

    def _finish(self, index: int, answer: Answer | OSError) -> None:
        self._answers[index] = answer
        self._missing -= 1

    def _poll(self) -> None:
        if self._server.is_closed:
            raise ConnectionError("the connection to the apiserver was closed here")
        now_s = time.monotonic()
        for flight in [one for one in self._flights.values() if one.index >= 0 and one.until_s <= now_s]:
            index = flight.index
            self._drop(flight)
            self._finish(index, TimeoutError(f"the apiserver did not answer within {self._timeout_s:g} s"))

    def _give_up(self, error: OSError) -> None:
        """Set the error as the answer of all unanswered requests."""
        for index, answer in enumerate(self._answers):
            if answer is None:
                self._finish(index, error)
