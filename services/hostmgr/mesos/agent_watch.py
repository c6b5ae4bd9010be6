"""Reads the list of agents periodically on a thread of its own: a master that hangs in the middle of its long answer
delays neither reconciliation nor launches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from peloton.model.ids import Hostname
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.mesos.agents import Agent, AgentPoller
from services.hostmgr.mesos.master_term import MasterTerm
from services.hostmgr.mesos.operator import Denied
from services.ticks import ticking

log = logging.getLogger(__name__)

REST_S = 0.2
"""Seconds between reads, so that offers of many new agents cause only one."""


class AgentWatch:
    def __init__(
        self,
        poller: AgentPoller,
        publish: Callable[[Sequence[RegisteredHost]], None],
        find_master: Callable[[], str | None],
        denied: Callable[[str], None],
        term: MasterTerm,
        label: Callable[[list[Agent]], list[Agent]] = list,
    ) -> None:
        """``publish`` is called with all agents; if it raises, they are read again. ``find_master`` returns the leading
        master, None without a subscription. ``denied`` is called when the master rejects the credentials. ``term`` is
        the leading master's. ``label`` adds labels that the master's list lacks."""
        self._label = label
        self._term = term
        self._awaiting = threading.Lock()
        self._awaited: dict[Hostname, Agent] = {}
        self._by_host: dict[Hostname, Agent] = {}
        self._poller = poller
        self._publish = publish
        self._find_master = find_master
        self._denied = denied
        self._now = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def take(self, agents: Sequence[Agent]) -> None:
        """Set the registered agents. Raises what storage raises."""
        self._by_host = {agent.host.hostname: agent for agent in agents}
        self._publish([agent.host for agent in agents])

    def of_host(self, hostname: Hostname) -> Agent | None:
        return self._by_host.get(hostname)

    def of_id(self, agent_id: str) -> Agent | None:
        return next((agent for agent in self._by_host.values() if agent.host.host_id == agent_id), None)

    def knows_all(self, hostnames: Collection[str]) -> bool:
        return self._by_host.keys() >= set(hostnames)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for a read that is under way: the master may hang, and storage may be closed
        meanwhile."""
        self._stopping.set()
        self._now.set()

    def want(self) -> None:
        """Request a read, as soon as there is a subscription."""
        self._poller.want()
        self._now.set()

    def connection_lost(self) -> None:
        """Keep the known agents after the loss of the connection: the next leader may list them only when they
        register again, so they count as hosts until then, or until the registration timeout of its term has passed."""
        with self._awaiting:
            self._awaited = {name: agent for name, agent in self._by_host.items() if not agent.host.withdrawn}
        self.want()

    def _with_awaited(self, agents: list[Agent]) -> list[Agent]:
        with self._awaiting:
            if not self._term.is_settling:
                self._awaited.clear()
            for agent in agents:
                self._awaited.pop(agent.host.hostname, None)
            return [*agents, *self._awaited.values()]

    def _run(self) -> None:
        with ticking("agents") as loop:
            while not self._stopping.is_set():
                loop.tick()
                self._now.clear()
                if (master := self._find_master()) and self._poller.is_due:
                    self._attempt(master)
                loop.rest()
                self._now.wait(self._poller.due_in_s)
                self._stopping.wait(REST_S)

    def _attempt(self, master: str) -> None:
        try:
            self._poll(master)
        except Denied as error:
            self._denied(str(error))
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("list of agents not read, retrying: %s", error)

    def _poll(self, master: str) -> None:
        agents = self._label(self._with_awaited(self._poller.poll(master)))
        if self._stopping.is_set():
            return
        try:
            self.take(agents)
        except Exception:
            self._poller.want()  # the host manager did not record the agents
            raise
