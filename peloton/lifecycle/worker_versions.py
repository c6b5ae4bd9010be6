"""Which version of the workers runs new workflows, and which versions have no workers any more.

A version is known by the build id of its workers; "" stands for workers that have none, as releases up to 0.1 had them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

UNVERSIONED = ""


@dataclass(frozen=True)
class WorkerVersions:
    """What Temporal knows of them."""

    current: str  # runs new workflows, and those that continue as new
    at_work: Set[str]  # versions with a worker

    def is_claimed_by(self, version: str, created_s: Mapping[str, float]) -> bool:
        """Whether a worker makes its version the current one: unless the current one is newer and has workers. So the
        first new worker of an upgrade does, and an old one that restarts beside it does not; in a rollback the old one
        does when the last new one has gone. ``created_s``: when Temporal first saw a version, unix seconds."""
        if self.current == version:
            return False
        if self.current == UNVERSIONED or self.current not in self.at_work:
            return True
        return created_s.get(self.current, 0.0) < created_s.get(version, 0.0)

    @property
    def is_rolled_back(self) -> bool:
        """Only workers without a version are left: they do not claim, and get nothing until there is no current
        version."""
        return self.current != UNVERSIONED and self.at_work == {UNVERSIONED}

    @property
    def can_take_over(self) -> bool:
        """Whether workflows of versions without workers would be served by the current one."""
        return self.current in self.at_work
