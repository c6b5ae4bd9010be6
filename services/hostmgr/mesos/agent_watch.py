"""Keeps the host pool's agents as Mesos has them, on a thread of its own: a master that hangs in the middle of its long
answer keeps neither reconciliation nor launches waiting."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from peloton.model.ids import Hostname
from services.hostmgr.claims import HostClaims
from services.hostmgr.hosts import HostPool
from services.hostmgr.mesos.agents import AgentLooks
from services.hostmgr.mesos.master_term import MasterTerm
from services.hostmgr.mesos.operator import Denied
from services.hostmgr.room import RegisteredHost

log = logging.getLogger(__name__)

REST_S = 0.2
"""Offers of many new agents ask for one look, not for many."""


class AgentWatch:
    def __init__(
        self,
        looks: AgentLooks,
        claims: HostClaims,
        pool: HostPool,
        find_master: Callable[[], str | None],
        denied: Callable[[str], None],
        term: MasterTerm,
    ) -> None:
        """``find_master``: the leading one, None while there is no subscription. ``denied`` hears how it denies us.
        ``term``: of the leading master."""
        self._term = term
        self._awaiting = threading.Lock()
        self._awaited: dict[Hostname, RegisteredHost] = {}
        self._looks = looks
        self._claims = claims
        self._pool = pool
        self._find_master = find_master
        self._denied = denied
        self._now = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for a look that is under way: the master may hang, and storage may be closed under it."""
        self._stopping.set()
        self._now.set()

    def want(self) -> None:
        """Soon, once there is a subscription."""
        self._looks.want()
        self._now.set()

    def connection_lost(self) -> None:
        """Who leads next may have to be told of these agents by themselves: they count as hosts until it has heard of
        them, or has led for so long that they would have come."""
        with self._awaiting:
            self._awaited = {agent.hostname: agent for agent in self._pool.agents()}
        self.want()

    def _with_awaited(self, agents: list[RegisteredHost]) -> list[RegisteredHost]:
        with self._awaiting:
            if not self._term.is_settling:
                self._awaited.clear()
            for agent in agents:
                self._awaited.pop(agent.hostname, None)
            return [*agents, *self._awaited.values()]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._now.clear()
            if (master := self._find_master()) and self._looks.is_due:
                self._attempt(master)
            self._now.wait(self._looks.due_in_s)
            self._stopping.wait(REST_S)

    def _attempt(self, master: str) -> None:
        try:
            self._look(master)
        except Denied as error:
            self._denied(str(error))
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("agents failed, tried again soon: %s", error)

    def _look(self, master: str) -> None:
        agents = self._with_awaited(self._looks.look(master))
        if self._stopping.is_set():
            return
        try:
            refused = self._claims.refused([agent.hostname for agent in agents])
        except Exception:
            self._looks.want()  # what was seen is not known to the pool
            raise
        self._pool.set_agents(agents, refused)
