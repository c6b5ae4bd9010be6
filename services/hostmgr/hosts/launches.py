"""Which hosts have launches under way that may still commit pods on them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Launches:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: Counter[str] = Counter()

    @contextmanager
    def on(self, hostnames: Sequence[str]) -> Iterator[None]:
        """Round a launch from its claim to its commit."""
        with self._lock:
            self._hosts.update(hostnames)
        try:
            yield
        finally:
            with self._lock:
                self._hosts.subtract(hostnames)
                self._hosts = +self._hosts

    def are_on(self, hostname: str) -> bool:
        with self._lock:
            return hostname in self._hosts
