"""Since when the leading Mesos master leads, and what it may not know yet.

A master tells what its registry holds. One that came up with an empty registry knows of no agent and of no pod, until
agents register with it again, each when it notices: it calls the pods on all others unknown, though they run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from services.hostmgr.mesos.codec import RECONCILED
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

UNKNOWN = "Reconciliation: Task is unknown"
"""What a master says of a pod on an agent that it does not know; of one on an agent that it knows it says more."""
_STATES = ("TASK_LOST", "TASK_UNKNOWN")


class MasterTerm:
    """One thread hears of masters, any may ask. A new host manager does not know since when the master leads: for it
    the term begins with its first subscription."""

    def __init__(self, reregister_timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``reregister_timeout_s``: how long agents may take (Mesos: ``--agent_reregister_timeout``)."""
        self._timeout_s = reregister_timeout_s
        self._clock = clock
        self._master_id = ""
        self._settled_s = 0.0
        self._is_subscribed = False

    def lost(self) -> None:
        """The subscription is over: whoever leads next may be another one."""
        self._is_subscribed = False

    def begin(self, master_id: str) -> None:
        """Subscribed to this master."""
        if master_id != self._master_id:
            self._master_id = master_id
            self._settled_s = self._clock() + self._timeout_s
            text = "Mesos master %s is new here: what runs on agents that it does not know is not given up for %.0f s"
            log.info(text, master_id, self._timeout_s)
        self._is_subscribed = True

    @property
    def is_settling(self) -> bool:
        """Agents that registered with a master before may still be on their way to this one."""
        return not self._is_subscribed or self._clock() < self._settled_s

    def is_premature(self, status: Json) -> bool:
        """The status says only that the master has not heard of the pod's agent, which may be on its way."""
        is_unknown = status.get("reason") == RECONCILED and status.get("message") == UNKNOWN
        return is_unknown and status["state"] in _STATES and self.is_settling
