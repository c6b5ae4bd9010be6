"""Sessions with commands in containers, with one call for each exchange.

The connection to the command stays open between calls. Calls are numbered, so that a call whose answer was lost can be
repeated: it gets the same answer, and the command gets no input twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from peloton.errors import Aborted, InvalidArgument, NotFound, PelotonError, ResourceExhausted
from services.hostmgr.driver import Exchange, ExchangeAnswer
from services.hostmgr.kubernetes.apiserver.channels import Command, CommandFailed
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Refused
from services.hostmgr.kubernetes.output.logs import PodLogs

SESSIONS_MAX = 32
IDLE_S = 60.0
"""Seconds without a call after which a session ends."""
END_WAIT_S = 1.0
"""Seconds to wait for the current exchange of a session that is ended; a longer one ends with its connection."""
AT_ONCE_MAX = 4
"""Limit of concurrent calls; a node that does not answer blocks each call that starts a command."""
TURN_S = 1.0
WAIT_S = 0.05
"""Seconds to wait for output in an exchange with input: the answer then has the echo of typed text. Other exchanges do
not wait, so that many silent sessions occupy no threads."""
TYPED_BYTES_MAX = 1 << 10
"""Limit of typed input; longer input comes from a pipe, which an answer without output does not delay."""
INPUT_BYTES_MAX = 1 << 16
UNSENT_BYTES_MAX = 1 << 18
OUTPUT_BYTES_MAX = 1 << 18
"""Approximate limit of the output in one answer."""
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of an apiserver that may accept the same request later."""


@dataclass
class _Session:
    pod: str
    used_s: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    command: Command | None = None
    number: int = -1  # of the last exchange
    answer: ExchangeAnswer | None = None
    fault: PelotonError | OSError | None = None
    is_over: bool = False

    def end(self) -> None:
        self.is_over = True
        if self.command is not None:
            self.command.close()


class CommandSessions:
    """Sessions of all pods. Thread-safe."""

    def __init__(self, api: ApiServer, logs: PodLogs, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(AT_ONCE_MAX)
        self._sessions: dict[str, _Session] = {}

    def exchange(self, pod: str, exchange: Exchange) -> ExchangeAnswer:
        """Implement the driver port's ``exchange``."""
        _check(exchange)
        if not self._turns.acquire(timeout=TURN_S):
            raise OSError(f"{AT_ONCE_MAX} commands are being served at once: try again")
        try:
            session = self._session(pod, exchange)
            with session.lock:
                session.used_s = self._clock()
                return self._answer(session, exchange)
        finally:
            self._turns.release()

    def close_idle(self) -> None:
        """End sessions whose callers have disappeared."""
        now_s = self._clock()
        self._end([name for name, each in list(self._sessions.items()) if now_s - each.used_s > IDLE_S])

    def close(self) -> None:
        self._end(list(self._sessions))

    def _end(self, names: list[str]) -> None:
        for name in names:
            with self._lock:
                session = self._sessions.pop(name, None)
            if session is not None and session.lock.acquire(timeout=END_WAIT_S):
                session.end()
                session.lock.release()

    def _session(self, pod: str, exchange: Exchange) -> _Session:
        with self._lock:
            found = self._sessions.get(exchange.session)
            if found is not None and found.pod == pod:
                return found
            if found is not None or exchange.start is None:
                raise NotFound(
                    f"pod {pod} has no session {exchange.session}: sessions end with the process of the host manager, "
                    f"and after {IDLE_S:.0f} s without a call"
                )
            self._close_idlest()
            found = self._sessions[exchange.session] = _Session(pod, self._clock())
            return found

    def _close_idlest(self) -> None:
        """Remove ended sessions when there are too many; until then they answer repeated calls."""
        for name, each in list(self._sessions.items()):
            if len(self._sessions) < SESSIONS_MAX:
                return
            if each.is_over:
                del self._sessions[name]
        if len(self._sessions) >= SESSIONS_MAX:
            raise ResourceExhausted(f"{SESSIONS_MAX} commands run in pods of the cluster, as many as may: try later")

    def _answer(self, session: _Session, exchange: Exchange) -> ExchangeAnswer:
        if exchange.is_last:
            session.end()
            return session.answer or ExchangeAnswer(b"", b"", None, False)
        if exchange.number == session.number and session.fault is not None:
            raise session.fault
        if exchange.number == session.number and session.answer is not None:
            return session.answer
        if session.is_over:
            raise Aborted(f"session {exchange.session} is over")
        if exchange.number != session.number + 1:
            raise InvalidArgument(f"exchange {exchange.number} follows {session.number}: want {session.number + 1}")
        session.number = exchange.number
        try:
            session.answer = self._exchange(session, exchange)
        except (PelotonError, OSError) as error:
            session.fault = _fault(error)
            session.end()
            raise session.fault from error
        if session.answer.exit_code is not None:
            session.end()
        return session.answer

    def _exchange(self, session: _Session, exchange: Exchange) -> ExchangeAnswer:
        command = session.command
        if command is None:
            command = session.command = self._start(session.pod, exchange)
        if exchange.terminal is not None:
            command.resize(*exchange.terminal)
        if exchange.data:
            command.write(exchange.data)
        if exchange.ends_input:
            command.write(b"")
        is_news = exchange.start or exchange.data or exchange.ends_input or exchange.terminal
        wait_s = WAIT_S if is_news and len(exchange.data) <= TYPED_BYTES_MAX else 0.0
        stdout, stderr, exit_code = command.read(OUTPUT_BYTES_MAX, wait_s)
        return ExchangeAnswer(stdout, stderr, exit_code, command.unsent_bytes < UNSENT_BYTES_MAX)

    def _start(self, pod: str, exchange: Exchange) -> Command:
        """Start the command. Raises NotFound, OSError."""
        start = exchange.start
        assert start is not None  # _session found none
        container = start.container or self._logs.first_container(pod)
        return Command(self._api, self._logs.path_of(pod), container, start.argv, start.has_input, start.has_terminal)


def _check(exchange: Exchange) -> None:
    """Raise InvalidArgument for an invalid exchange."""
    if not exchange.session:
        raise InvalidArgument("an exchange with a command needs the name of its session")
    if len(exchange.data) > INPUT_BYTES_MAX:
        raise InvalidArgument(f"{len(exchange.data)} bytes for a command: at most {INPUT_BYTES_MAX} in one exchange")
    if (exchange.number == 0 and not exchange.is_last) != (exchange.start is not None):
        raise InvalidArgument("only the first exchange, number 0, names the command")
    if exchange.start is not None and not exchange.start.argv:
        raise InvalidArgument("a command needs at least one word")


def _fault(error: PelotonError | OSError) -> PelotonError | OSError:
    """Return the error in the class that names its cause."""
    if isinstance(error, Refused) and error.answer.status == HTTPStatus.NOT_FOUND:
        return NotFound(str(error))
    is_final = isinstance(error, Refused) and error.answer.status not in BUSY
    return Aborted(str(error)) if is_final or isinstance(error, CommandFailed) else error
