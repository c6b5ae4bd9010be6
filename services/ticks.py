"""Registry of the periodic loops of this process, with the last tick of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from peloton.lifecycle.liveness import ROUND_BOUND_S, Loop

_lock = threading.Lock()
_loops: dict[int, Loop] = {}


class Ticks:
    """Ticks of one loop: ``tick`` begins a round, ``rest`` begins a wait for work of any length."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def tick(self) -> None:
        self._loop.ticked_s = time.monotonic()
        self._loop.is_resting = False

    def rest(self) -> None:
        self._loop.is_resting = True


@contextmanager
def ticking(
    name: str, period_s: float = 0.0, bound_s: float = ROUND_BOUND_S, has_dependencies: bool = True
) -> Iterator[Ticks]:
    """Register a loop for the duration of the block. ``period_s``: its wait between two rounds. A loop that ends with
    an error stays registered with it.
    """
    loop = Loop(name, period_s + bound_s, time.monotonic(), has_dependencies)
    with _lock:
        _loops[id(loop)] = loop
    try:
        yield Ticks(loop)
    except Exception as error:
        loop.error = repr(error)
        raise
    except BaseException:  # cancelled
        _forget(loop)
        raise
    else:
        _forget(loop)


def list_loops() -> list[Loop]:
    with _lock:
        return list(_loops.values())


def _forget(loop: Loop) -> None:
    with _lock:
        del _loops[id(loop)]
