"""Virtual time."""

from __future__ import annotations


class Clock:
    """Virtual clock, with the function names of the module ``time``."""

    def __init__(self) -> None:
        self.ns = 1_800_000_000 * 10**9

    def __call__(self) -> int:
        return self.ns

    def time_ns(self) -> int:
        return self.ns

    def monotonic(self) -> float:
        return self.ns / 1e9

    def pass_s(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)
