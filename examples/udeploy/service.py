"""Interface of a service in one cluster, whatever the API is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

AGAIN_S = 0.5
"""Seconds between pulses, between polls, and between attempts to reach an unavailable cluster."""
PULSE_S = 2
"""An update begins nothing more when no pulse has come for so long; the controller gives two a second."""


@dataclass(frozen=True)
class Wanted:
    """The deploy: version ``version`` of the service that the file describes."""

    deploy: str
    file: Path
    version: str
    canaries: int
    batch_size: int
    bake_s: float


@dataclass
class Seen:
    """Progress of the watch on a service's pods. A watch that resumes from it misses no event."""

    revision: int = 0  # 0: nothing has been read
    failures: dict[str, int] = field(default_factory=dict)  # of each pod, or of each run of one
    trouble: str = ""  # the first that came up


class Health(threading.Thread):
    """Watches the pods of a service: during a rollout, none may fail."""

    def __init__(self, seen: Seen, save: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.seen, self.save = seen, save
        self.is_watching = threading.Event()


class Service(Protocol):
    """One service in one cluster. All of its calls are idempotent: a repeated one finds what the first one did."""

    address: str

    def before(self) -> str:
        """Return what runs now, in a form that ``take_back`` understands later."""
        ...

    def update_keys(self) -> set[str]:
        """Return the keys of the updates that there were."""
        ...

    def roll_out(self, key: str, wanted: Wanted, before: str, canaries: int) -> None:
        """Begin to roll out the version, to the first instances only if ``canaries`` is not 0."""
        ...

    def take_back(self, key: str, wanted: Wanted, before: str) -> None:
        """Begin to roll out what ran before, to all instances at once."""
        ...

    def progress(self, key: str, pulse: bool) -> Iterator[str]:
        """Yield the states of an update until its end, which is SUCCEEDED if it is good; give a pulse with each."""
        ...

    def health(self, seen: Seen, save: Callable[[], None]) -> Health: ...
