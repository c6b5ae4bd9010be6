"""The fence of a leading role: its writes and its messages to clusters carry the epoch of its lease.

A process that was frozen past its lease believes that it leads until it looks. Each of its write transactions therefore
begins with a look at its row of leases (``services/storage/leases.py``), and each message to a cluster with a look at
the clock: outside its lease a leader renews the lease first, and sends nothing if it cannot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from peloton.errors import LeadershipLost

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_LEADING = "this process does not lead {role}"
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_s() -> float:
    """Return seconds of a clock that counts the time in which the process, or its machine, was suspended."""
    return time.clock_gettime(_BOOT_CLOCK)


class Fence:
    """Lease of one role of this process. Thread-safe."""

    def __init__(
        self,
        role: str,
        owner: str,
        ttl_s: float,
        renew: Callable[[], bool],
        lost: Callable[[str], None] = log.error,
        clock: Callable[[], float] = boot_s,
    ) -> None:
        """``renew`` renews the lease now, or returns that another process has it. ``lost`` is called with the reason
        when another process has taken it; that of a real role ends the process."""
        self.role, self.owner, self.epoch, self.ttl_s = role, owner, 0, ttl_s
        self._renew, self._lost = renew, lost
        self.clock = clock
        self._until_s = 0.0
        self._is_over = False
        self._renewing = threading.Lock()

    @classmethod
    def of(cls, role: str, owner: str, epoch: int) -> Fence:
        """Return a fence of writes alone, under a lease that was acquired just now."""
        fence = cls(role, owner, 0.0, lambda: False)
        fence.begin(epoch)
        return fence

    def begin(self, epoch: int) -> None:
        """Let writes pass, under this epoch."""
        self.epoch = epoch

    def extend(self, until_s: float) -> None:
        """Note until when no other process can lead, by ``clock``."""
        self._until_s = max(self._until_s, until_s)

    def end(self) -> None:
        """Note that this process resigns: a write that comes later fails, and ends nothing."""
        self._is_over = True

    @property
    def is_raised(self) -> bool:
        return bool(self.epoch) and not self._is_over

    def fail(self, why: str) -> LeadershipLost:
        """Return the error of a write or message after the loss, of which the process learns here if it led."""
        if self.is_raised:
            self._is_over = True
            self._lost(why)
        return LeadershipLost(why)

    def refusal(self) -> str:
        """Return why nothing may be sent now, or ""."""
        if not self.is_raised:
            return NOT_LEADING.format(role=self.role)
        if self.clock() < self._until_s:
            return ""
        with self._renewing:
            return "" if self.clock() < self._until_s else self._ask()

    def guard(self, find: Callable[[], T]) -> Callable[[], T]:
        """Return ``find``, such as of a channel to another role, for messages that only a leader may send. It raises
        LeadershipLost."""

        def find_as_leader() -> T:
            if why := self.refusal():
                raise LeadershipLost(why)
            return find()

        return find_as_leader

    def _ask(self) -> str:
        try:
            if self._renew():
                return ""
        except Exception as error:
            return f"{self.role}: the lease has expired, and storage does not renew it: {error}"
        return str(self.fail(f"{self.role}: another process leads"))
