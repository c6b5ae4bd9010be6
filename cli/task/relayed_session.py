"""A command in a pod on Kubernetes: the api passes its input and output on, in numbered exchanges."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.settings import Settings
from cli.wire import v1
from peloton.model.ids import PodName

if TYPE_CHECKING:
    from peloton.api.v1alpha.pod.svc.pod_svc_pb2 import ExchangeWithCommandRequest, ExchangeWithCommandResponse

PIECE_BYTES = 1 << 15
PIECES_MAX = 2
"""Limit of the pieces of local input that wait to be sent; beyond it reading waits."""
PAUSE_MIN_S, PAUSE_MAX_S, PAUSE_GROWTH = 0.02, 0.25, 1.5
"""Seconds between two exchanges without news; typed input ends a pause at once."""
TRIES_MAX, RETRY_PAUSE_S = 5, 0.5
"""Limit of the tries of one exchange, and the seconds between them."""
AWAY_CODES = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})


@dataclass
class RelayedSession:
    """One command in a container."""

    settings: Settings
    pod: PodName
    container: str
    argv: Sequence[str]
    with_input: bool = False
    with_terminal: bool = False
    source: int = 0  # descriptor of the local input
    sleep: Callable[[float], None] = time.sleep
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _number: int = -1  # of the last exchange
    _typed: queue.Queue[bytes] = field(default_factory=lambda: queue.Queue(PIECES_MAX))
    _size: tuple[int, int] | None = None  # of the terminal, if the command does not have it yet
    _input_ended: bool = False

    def run(self) -> int:
        """Exchange input and output until the command has ended; return its exit code."""
        if self.with_terminal:
            self.window_changed()
            signal.signal(signal.SIGWINCH, lambda number, frame: self.window_changed())
        start = v1.pod_svc.CommandStart(
            container=self.container, argv=self.argv, has_input=self.with_input, has_terminal=self.with_terminal
        )
        pause_s = 0.0
        has_ended = False
        try:
            answer = self.exchange(v1.pod_svc.ExchangeWithCommandRequest(start=start))
            if self.with_input:
                threading.Thread(target=self.pump_input, daemon=True, name="input of the session").start()
            while True:
                show(answer)
                if answer.HasField("exit_code"):
                    has_ended = True
                    return answer.exit_code
                has_news = bool(answer.stdout or answer.stderr)
                pause_s = 0.0 if has_news else min(max(pause_s * PAUSE_GROWTH, PAUSE_MIN_S), PAUSE_MAX_S)
                data = self.wait(pause_s, answer.wants_input)
                pause_s = pause_s if data is None else 0.0
                answer = self.exchange(v1.pod_svc.ExchangeWithCommandRequest(data=data or b"", ends_input=data == b""))
        finally:
            if not has_ended and self._number >= 0:
                self.leave()

    def wait(self, pause_s: float, wants_input: bool) -> bytes | None:
        """Return typed input, empty at its end; None: nothing yet."""
        if not wants_input or not self.with_input or self._input_ended:
            self.sleep(pause_s)
            return None
        try:
            data = self._typed.get(timeout=pause_s) if pause_s else self._typed.get_nowait()
        except queue.Empty:
            return None
        self._input_ended = not data
        return data

    def pump_input(self) -> None:
        data = b"."
        while data:
            try:
                data = os.read(self.source, PIECE_BYTES)
            except OSError:
                data = b""
            self._typed.put(data)

    def window_changed(self) -> None:
        columns, rows = shutil.get_terminal_size()
        self._size = columns, rows

    def exchange(self, request: ExchangeWithCommandRequest) -> ExchangeWithCommandResponse:
        """Make the next exchange.

        It is repeated while Peloton is unreachable, except the first: another host manager that took over would run the
        command once more.
        """
        self._number += 1
        size, self._size = self._size, None
        if size is not None:
            request.columns, request.rows = size
        tries = 1
        while True:
            try:
                return self.send(request)
            except Exception as error:
                code = getattr(error, "code", None)
                is_unavailable = callable(code) and code().name in AWAY_CODES
                if request.number == 0 or not is_unavailable or tries >= TRIES_MAX:
                    raise
            tries += 1
            self.sleep(RETRY_PAUSE_S)

    def leave(self) -> None:
        """End the command's input and output, if the API is reachable."""
        with suppress(Exception):
            self.send(v1.pod_svc.ExchangeWithCommandRequest(is_last=True))

    def send(self, request: ExchangeWithCommandRequest) -> ExchangeWithCommandResponse:
        request.pod_name.value = str(self.pod)
        request.session, request.number = self.id, self._number
        return self.settings.client.pods.ExchangeWithCommand(request)


def show(answer: ExchangeWithCommandResponse) -> None:
    for stream, data in ((sys.stdout, answer.stdout), (sys.stderr, answer.stderr)):
        if data:
            stream.buffer.write(data)
            stream.flush()
