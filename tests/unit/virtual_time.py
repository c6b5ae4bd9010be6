"""Virtual time for asyncio code that works in threads: hours pass in milliseconds, the same way on a busy machine."""

from __future__ import annotations

import asyncio
import functools
import selectors
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

START_S = 1_000_000.0
POLL_EVERY_S = 0.001
"""Real seconds after which the loop polls again whether a thread has answered or waits at a gate."""


class Gate(threading.Event):
    """Holds threads while it is closed (not set). Virtual time passes by a thread that a gate holds."""

    _all: ClassVar[weakref.WeakSet[Gate]] = weakref.WeakSet()

    def __init__(self, is_open: bool = False) -> None:
        super().__init__()
        self._waiting = 0
        self._count_lock = threading.Lock()
        if is_open:
            self.set()
        Gate._all.add(self)

    def wait(self, timeout: float | None = None) -> bool:
        with self._count_lock:
            self._waiting += 1
        try:
            return super().wait(timeout)
        finally:
            with self._count_lock:
                self._waiting -= 1

    @classmethod
    def held(cls) -> int:
        """Number of threads that a gate holds."""
        return sum(gate._waiting for gate in list(cls._all) if not gate.is_set())


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves on when no callback is ready and every thread has answered or is held by a gate."""

    def __init__(self) -> None:
        self._now_s = START_S
        self._calls: list[tuple[ThreadPoolExecutor, Future[Any], asyncio.Future[Any]]] = []
        super().__init__(_Selector(self))
        self.set_default_executor(ThreadPoolExecutor())

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move the clock as if the whole process had been stopped."""
        self._now_s += seconds

    def set_default_executor(self, executor: Any) -> None:
        super().set_default_executor(executor)
        self._shared = executor

    async def shutdown_default_executor(self, *_: Any) -> None:
        self._shared.shutdown()

    def run_in_executor(  # type: ignore[override]  # whose parameters are bound to those of the function
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        executor = executor or self._shared
        call = executor.submit(func, *args)
        self._calls.append((executor, call, asyncio.wrap_future(call, loop=self)))
        return self._calls[-1][2]

    def waits_for_threads(self) -> bool:
        self._calls = [row for row in self._calls if not (row[1].done() and row[2].done())]
        begun = [(executor, call) for executor, call, _ in self._calls if call.running() or call.done()]
        busy = {executor: sum(one is executor for one, _ in begun) for executor, _, _ in self._calls}
        if len(begun) > Gate.held():
            return True
        return len(begun) < len(self._calls) and any(
            not (call.running() or call.done()) and busy[executor] < executor._max_workers
            for executor, call, _ in self._calls
        )


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while self._loop.waits_for_threads():
            if events := super().select(POLL_EVERY_S):
                return events
        if events := super().select(0):
            return events
        self._loop.advance(timeout)
        return []


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on such a loop."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()
