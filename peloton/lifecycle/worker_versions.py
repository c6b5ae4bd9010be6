"""Which version of the workers runs new workflows, and which versions have no workers any more.

A version is known by the build id of its workers; "" stands for workers that have none, as releases up to 0.1 had them.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

UNVERSIONED = ""


@dataclass(frozen=True)
class WorkerVersions:
    """What Temporal knows of them."""

    current: str  # runs new workflows, and those that continue as new
    at_work: Set[str]  # versions with a worker

    def is_claimed_by(self, version: str, given_up: Set[str] = frozenset()) -> bool:
        """Return whether a worker makes its version current at once: where the current one has no worker, so that
        nothing would run. A newer version takes over from one that has workers step by step (``worker_ramp``); an old
        one does in a rollback, when the last new worker is gone. One that was given up does only where it is alone."""
        if self.current == version:
            return False
        if self.current != UNVERSIONED and self.current in self.at_work:
            return False
        return version not in given_up or not self.at_work - given_up - {UNVERSIONED}

    @property
    def is_rolled_back(self) -> bool:
        """Only workers without a version are left: they do not claim, and get nothing until there is no current
        version."""
        return self.current != UNVERSIONED and self.at_work == {UNVERSIONED}

    @property
    def can_take_over(self) -> bool:
        """Whether workflows of versions without workers would be served by the current one."""
        return self.current in self.at_work
