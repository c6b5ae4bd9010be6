"""Calls of fakes, which are counted and may fail."""

from __future__ import annotations

import threading
from collections import Counter

from peloton.errors import Unavailable


class CountedCalls:
    """Base of a fake whose methods begin with ``_record_call``; ``outages``: failures that are left of each method."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.calls: Counter[str] = Counter()
        self.outages: Counter[str] = Counter()

    def _record_call(self, name: str) -> None:
        with self.lock:
            self.calls[name] += 1
            if self.outages[name]:
                self.outages[name] -= 1
                raise Unavailable(f"{name}: connection refused")
