"""Versions of the workers: the one that runs new workflows, and versions without workers.

A version is identified by the build id of its workers; "" stands for workers without one, as in releases up to 0.1.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

UNVERSIONED = ""


@dataclass(frozen=True)
class WorkerVersions:
    """Versions of the workers as Temporal reports them."""

    current: str  # runs new workflows, and workflows that continue as new
    at_work: Set[str]  # versions with a worker

    def is_claimed_by(self, version: str, given_up: Set[str] = frozenset()) -> bool:
        """Return whether a worker makes its version current at once, which it does if the current version has no
        worker. A newer version replaces one with workers step by step (``worker_ramp``); an old version becomes current
        in a rollback when the last new worker is gone. A version that was given up becomes current only without
        alternatives."""
        if self.current == version:
            return False
        if self.current != UNVERSIONED and self.current in self.at_work:
            return False
        return version not in given_up or not self.at_work - given_up - {UNVERSIONED}

    @property
    def is_rolled_back(self) -> bool:
        """True if only workers without a version are left: they receive no work while there is a current version."""
        return self.current != UNVERSIONED and self.at_work == {UNVERSIONED}

    @property
    def can_take_over(self) -> bool:
        """True if the current version can serve workflows of versions without workers."""
        return self.current in self.at_work
