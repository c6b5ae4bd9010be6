"""Adds the last lines of stderr to the message of a failed pod.

Best effort, separate from the path of statuses: when a host does not answer, only these lines are missing. When
thousands of pods fail in a minute the first few show why, so the number read per second is bounded.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from peloton.model.ids import PodId
from peloton.model.pod import PodState, PodStatus
from services.hostmgr.driver import PodOnHost
from services.ticks import ticking

log = logging.getLogger(__name__)

LINES_MAX = 5
CHARACTERS_MAX = 500
TAIL_BYTES = 4 * 1024
"""Bytes at the end of a file that are read for its last lines."""
QUEUE_MAX = 100
BATCH_MAX = 10
PERIOD_S = 0.5
"""Seconds between batches: at most 20 pods are read per second."""


class FailureOutput:
    """Reads the stderr of failed pods on one thread."""

    def __init__(
        self, read: Callable[[PodOnHost, int], bytes], store: Callable[[Sequence[tuple[PodId, str]]], None]
    ) -> None:
        """``read`` returns at most so many bytes of the end of a pod's stderr; raises OSError. ``store`` adds texts to
        messages."""
        self._read = read
        self._store = store
        self._failures: queue.Queue[PodOnHost] = queue.Queue(QUEUE_MAX)
        self._has_some, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="output of failed pods", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._has_some.set()
        self._thread.join()

    def take(self, statuses: Sequence[PodStatus]) -> None:
        """Queue failed pods of committed statuses; pods that find the queue full are omitted."""
        for status in statuses:
            if status.state is PodState.FAILED and status.agent_id:
                try:
                    self._failures.put_nowait(PodOnHost(status.pod_id, status.host, status.agent_id))
                except queue.Full:
                    return
                finally:
                    self._has_some.set()

    def _run(self) -> None:
        with ticking("output of failed pods", PERIOD_S) as loop:
            while True:
                loop.rest()
                self._has_some.wait()
                loop.tick()
                if self._stopping.wait(PERIOD_S):  # meanwhile more pods fail
                    return
                self._has_some.clear()
                try:
                    self.run_round()
                except Exception as error:  # storage is unavailable: these pods keep their message
                    log.info("output of failed pods not stored: %s", error)
                if not self._failures.empty():
                    self._has_some.set()

    def run_round(self) -> None:
        texts = []
        for _ in range(min(BATCH_MAX, self._failures.qsize())):
            if self._stopping.is_set():
                return
            pod = self._failures.get_nowait()
            try:
                text = last_lines(self._read(pod, TAIL_BYTES))
            except (OSError, ValueError, KeyError) as error:
                log.debug("stderr of %s not read: %s", pod.pod_id, error)
                continue
            if text:
                texts.append((pod.pod_id, text))
        if texts:
            self._store(texts)


def last_lines(tail: bytes) -> str:
    """Return the last lines that the command wrote, at most LINES_MAX and CHARACTERS_MAX; unprintable characters
    become ``?``."""
    lines = tail.decode("utf-8", "replace").splitlines()
    own = [line.rstrip() for line in lines if line.strip()][-LINES_MAX:]
    text = "\n".join("".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in own)
    return text if len(text) <= CHARACTERS_MAX else f"...{text[3 - CHARACTERS_MAX :]}"
