"""Isolators of agents, with which they limit the resources of a task and mount secrets, read from their flags.

Flags are read before the first launch that depends on them, and cached until the agent registers again. An agent that
does not answer is assumed to have all isolators: its rejections name the missing ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from peloton.model.host import NOT_MOUNTED, SECRETS_LABEL
from services.hostmgr.mesos.agents import Agent
from services.hostmgr.mesos.reasons import CPU_LIMIT_REFUSED, MEMORY_LIMIT_REFUSED
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

READERS_MAX = 16
"""Limit of agents that are asked at the same time."""
WAIT_S = 3.0
"""Seconds for which a launch waits for the flags of all its agents."""
ASK_AGAIN_S = 60.0
"""Seconds after which launches ask again an agent that did not answer."""
KNOWN_MAX = 100_000
"""Limit of cached agents; the least recently used are dropped."""
LOGGED_MAX = 10
"""Limit of distinct values of the flag in the log; a value that many agents share is logged once."""
CPU_ISOLATORS = frozenset({"cgroups/cpu", "cgroups/all"})
MEMORY_ISOLATORS = frozenset({"cgroups/mem", "cgroups/all"})
SECRET_ISOLATOR = "volume/secret"  # noqa: S105 - the name of an isolator
Key = tuple[str, str, int]
"""Id and address of an agent, and its time of registration: flags change only with a new registration."""


@dataclass(frozen=True, slots=True)
class Isolators:
    limits_cpu: bool = True
    limits_memory: bool = True
    mounts_secrets: bool = True
    flag: str = ""

    @classmethod
    def read(cls, flag: str) -> Isolators:
        names = {name.strip() for name in flag.split(",")}
        return cls(bool(names & CPU_ISOLATORS), bool(names & MEMORY_ISOLATORS), SECRET_ISOLATOR in names, flag)

    @property
    def lacks(self) -> list[str]:
        """Return what is not sent to the agent."""
        can = {"limits for cpu": self.limits_cpu, "limits for memory": self.limits_memory}
        can["pods with secrets"] = self.mounts_secrets
        return [what for what, is_possible in can.items() if not is_possible]

    @property
    def said(self) -> str:
        return f"--isolation={self.flag}" if self.flag else "it refuses them"

    def secrets_refusal(self, hostname: str) -> str:
        """Return why an agent cannot run a pod with secrets; else ""."""
        if self.mounts_secrets:
            return ""
        return (
            f"agent {hostname} mounts no secrets: its --isolation={self.flag} lacks {SECRET_ISOLATOR}; "
            "add it there, or run the job elsewhere"
        )


ALL = Isolators()
Value = TypeVar("Value")


class AgentIsolators:
    """Cache of agents' isolators. Any thread may call."""

    def __init__(self, read_flags: Callable[[str, str], Json], clock: Callable[[], float] = time.monotonic) -> None:
        """``read_flags`` takes the address and the process of an agent, and raises OSError."""
        self._read_flags = read_flags
        self._clock = clock
        self._readers = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="flags of agents")
        self._lock = threading.Lock()  # protects the following attributes
        self._known: OrderedDict[Key, Isolators] = OrderedDict()
        self._silent_until_s: OrderedDict[Key, float] = OrderedDict()
        self._asked: dict[Key, Future[None]] = {}
        self._is_closed = False
        self._logged: deque[Isolators] = deque(maxlen=LOGGED_MAX)
        self._labelled: dict[str, tuple[Agent, Agent]] = {}  # by id: as listed by Mesos, and with the label

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._readers.shutdown(wait=False, cancel_futures=True)

    def of(self, agents: Iterable[Agent]) -> dict[str, Isolators]:
        """Return the isolators by the ids of the agents, asking agents that are not cached."""
        keys = [_key(agent) for agent in agents]
        asked = [found for agent, key in zip(agents, keys, strict=True) if (found := self._ask(agent, key))]
        wait(asked, WAIT_S)
        with self._lock:
            return {key[0]: self._known.get(key, ALL) for key in keys}

    def _ask(self, agent: Agent, key: Key) -> Future[None] | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return None
            if not agent.address or self._silent_until_s.get(key, 0.0) > self._clock():
                return None
            if key not in self._asked and not self._is_closed:
                self._asked[key] = self._readers.submit(self._read, agent, key)
            return self._asked.get(key)

    def _read(self, agent: Agent, key: Key) -> None:
        try:
            flag = str(self._read_flags(agent.address, agent.process)["isolation"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.info("flags of agent %s not read, assuming all isolators: %s", agent.host.hostname, error)
            with self._lock:
                self._asked.pop(key, None)
                _put(self._silent_until_s, key, self._clock() + ASK_AGAIN_S)
            return
        self._note(agent.host.hostname, key, Isolators.read(flag))

    def _note(self, hostname: str, key: Key, found: Isolators) -> None:
        with self._lock:
            is_new = all(other != found for other in self._logged)
            if is_new:
                self._logged.append(found)
            self._asked.pop(key, None)
            _put(self._known, key, found)
        if is_new and (lacks := found.lacks):
            log.warning(
                "agent %s, and others with its flags, get no %s: %s", hostname, " and no ".join(lacks), found.said
            )

    def record_refusal(self, agent: Agent, message: str) -> None:
        """Record an agent's rejection of a limit: its flags could not be read."""
        key = _key(agent)
        with self._lock:
            before = self._known.get(key, ALL)
        cpu, memory = CPU_LIMIT_REFUSED not in message, MEMORY_LIMIT_REFUSED not in message
        found = replace(before, limits_cpu=before.limits_cpu and cpu, limits_memory=before.limits_memory and memory)
        self._note(agent.host.hostname, key, found)

    def label(self, agents: Iterable[Agent]) -> list[Agent]:
        """Labels the hosts of agents that are known not to mount secrets. An agent that is the same object as before
        keeps the same object for its host."""
        found: list[Agent] = []
        labelled: dict[str, tuple[Agent, Agent]] = {}
        with self._lock:
            without = {key for key, isolators in self._known.items() if not isolators.mounts_secrets}
        for agent in agents:
            if _key(agent) not in without:
                found.append(agent)
                continue
            before = self._labelled.get(agent.host.host_id)
            if before is None or before[0] is not agent:
                labels = agent.host.labels | {SECRETS_LABEL: NOT_MOUNTED}
                before = agent, replace(agent, host=replace(agent.host, labels=labels))
            labelled[agent.host.host_id] = before
            found.append(before[1])
        self._labelled = labelled
        return found


def _key(agent: Agent) -> Key:
    return agent.host.host_id, agent.address, agent.registered_ns


def _put(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > KNOWN_MAX:
        kept.popitem(last=False)
