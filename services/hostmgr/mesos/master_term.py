"""The term of the leading Mesos master, and the answers that it cannot give yet.

A master answers from its registry. A master that started with an empty registry knows no agents and no pods until
agents register again, each when it notices the change: until then it reports the pods on all other agents as unknown,
though they run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from services.hostmgr.mesos.codec import RECONCILED
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

UNKNOWN = "Reconciliation: Task is unknown"
"""A master's answer about a pod whose agent is not registered; with a registered agent the answer is longer."""
_STATES = ("TASK_LOST", "TASK_UNKNOWN")


class MasterTerm:
    """The term of a master. One thread sets the master, any may read. A new host manager does not know how long the
    master has led: it assumes that the term starts with its first subscription."""

    def __init__(self, reregister_timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``reregister_timeout_s`` is the time that agents have to register again (Mesos:
        ``--agent_reregister_timeout``)."""
        self._timeout_s = reregister_timeout_s
        self._clock = clock
        self._master_id = ""
        self._settled_s = 0.0
        self._is_subscribed = False

    def end(self) -> None:
        """End the subscription: another master may lead next."""
        self._is_subscribed = False

    def begin(self, master_id: str) -> None:
        if master_id != self._master_id:
            self._master_id = master_id
            self._settled_s = self._clock() + self._timeout_s
            text = "new leading Mesos master %s: pods on agents unknown to it are kept for %.0f s"
            log.info(text, master_id, self._timeout_s)
        self._is_subscribed = True

    @property
    def is_settling(self) -> bool:
        """Return whether agents of an earlier master may still register with this one."""
        return not self._is_subscribed or self._clock() < self._settled_s

    def is_premature(self, status: Json) -> bool:
        """Return whether the status means only that the pod's agent is not registered, though it may still
        register."""
        is_unknown = status.get("reason") == RECONCILED and status.get("message") == UNKNOWN
        return is_unknown and status["state"] in _STATES and self.is_settling
