"""Rounds that are repeated for ever, whatever fails in one of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from peloton.errors import Unavailable
from services.ticks import ticking

log = logging.getLogger(__name__)

LOG_AFTER_S = 10.0
"""Seconds before an outage is logged: a shorter one is part of every start and change of leaders."""
LOG_EVERY_S = 60.0


class Outage:
    """The log of an outage: a line once it lasts, more lines now and then, and one when it is over."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._since_s: float | None = None
        self._logged_s: float | None = None

    def log_failure(self, error: Unavailable) -> None:
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        due_s = self._since_s + LOG_AFTER_S if self._logged_s is None else self._logged_s + LOG_EVERY_S
        if now_s >= due_s:
            self._logged_s = now_s
            log.warning("%s failing for %.0f s: %s", self._what, now_s - self._since_s, error)

    def is_over(self) -> None:
        if self._since_s is not None and self._logged_s is not None:
            log.info("%s recovered after %.0f s", self._what, self._clock() - self._since_s)
        self._since_s = self._logged_s = None


async def repeat(
    one_round: Callable[[], Coroutine[Any, Any, None]], retry_period_s: float, period_s: float = 0.0
) -> NoReturn:
    """Repeat ``one_round``, which keeps the pace by waiting for ``period_s`` at most; after a failed one there is a
    pause.
    """
    name = one_round.__name__.strip("_").replace("_", " ")
    outage = Outage(name)
    with ticking(name, max(period_s, retry_period_s)) as loop:
        while True:
            loop.tick()
            try:
                await one_round()
                outage.is_over()
            except Unavailable as error:
                outage.log_failure(error)
                await asyncio.sleep(retry_period_s)
            except Exception:
                log.exception("%s failed, retrying", name)
                await asyncio.sleep(retry_period_s)
