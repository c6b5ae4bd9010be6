"""Reader of all agents of a master that does not hold the whole answer: 50,000 agents are 70 MB of JSON, most of it
unchanged."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import orjson

from peloton.lifecycle.constraints import HOSTNAME_LABEL, HostLabels, labels_from
from peloton.lifecycle.volumes import volume_label
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from peloton.model.volume import HERE
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.mesos.resources import ANY_ROLE, Json, OfferedResources, roles_above
from services.hostmgr.mesos.volumes import volumes_in, whole

Ask = Callable[[str, Json], Iterable[bytes]]
REST_PER_POLL = 20
"""Ratio of the pause before a periodic read to the duration of the last read. A read requested by an agent's arrival or
departure follows after a pause as long as the last read."""
BEGIN = b'{"agent_info":'
"""The start of an agent in Mesos's JSON. No string contains it: its quotes would be escaped."""


@dataclass(slots=True)
class Agent:
    """A registered agent: its host, and its HTTP address."""

    host: RegisteredHost
    address: str  # ip:port of its HTTP endpoints
    process: str  # name of its process at the address
    volumes: dict[str, Json]  # Peloton's volumes and their incomplete parts, by id
    registered_ns: int = 0  # time of its last registration with the master


def labels_of(hostname: str, attributes: Iterable[Json]) -> HostLabels:
    """Return the host labels: ``hostname``, and every attribute as text; a set yields a label for each item.
    Attributes may share a name, but none replaces the host's name."""
    pairs = [(HOSTNAME_LABEL, hostname)]
    for attribute in attributes:
        name, kind = attribute["name"], attribute["type"]
        if name == HOSTNAME_LABEL:
            continue
        if kind == "TEXT":
            pairs.append((name, attribute["text"]["value"]))
        elif kind == "SCALAR":
            pairs.append((name, f"{attribute['scalar']['value']:.6f}"))
        elif kind == "SET":
            pairs += [(name, item) for item in attribute["set"].get("item", [])]
    return labels_from(pairs)


def agent_of(entry: Json, roles: Collection[str] = ()) -> Agent | None:
    """Return an agent of a GET_AGENTS answer, with the resources available to frameworks of these roles; None if it is
    inactive and not deactivated by an operator."""
    state, withdrawn = _withdrawn(entry)
    if not entry.get("active", True) and not withdrawn:
        return None
    info = entry["agent_info"]
    total = entry.get("total_resources")
    volumes = volumes_in(total or ())
    kept = Resources(disk_mib=sum(round(volume["scalar"]["value"]) for volume in volumes.values()))
    offered = OfferedResources(roles)
    offered.add(total or info.get("resources", ()))
    allocated = OfferedResources(roles)
    allocated.add(entry.get("allocated_resources", ()))
    process, _, address = entry.get("pid", "").rpartition("@")
    hostname = info["hostname"]
    host = RegisteredHost(
        info["id"]["value"],
        hostname,
        address.rpartition(":")[0],
        offered.total(revocable=False) + kept,
        revocable=offered.total(revocable=True),
        labels=labels_of(hostname, info.get("attributes", ()))
        | {volume_label(one): HERE for one in sorted(whole(volumes))},
        revocable_held=allocated.total(revocable=True),
        state=state,
        withdrawn=withdrawn,
        held=allocated.total(revocable=False) + kept,
        volumes=whole(volumes) if total else None,  # the agent has not registered with this master yet
        volumes_begun=frozenset(volumes) - whole(volumes),
        volumes_mib=kept.disk_mib,
    )
    registered = entry.get("reregistered_time") or entry.get("registered_time") or {}
    return Agent(host, address, process, volumes, int(registered.get("nanoseconds", 0)))


def _withdrawn(entry: Json) -> tuple[HostState, str]:
    """Return the state of an agent that an operator has drained or deactivated, and the reason why it offers
    nothing."""
    if not entry.get("deactivated"):
        return HostState.UP, ""
    match entry.get("drain_info", {}).get("state"):
        case "DRAINING":
            return HostState.DRAINING, "an operator of Mesos drains it"
        case "DRAINED":
            return HostState.DRAINED, "an operator of Mesos has drained it, and must reactivate it"
        case _:
            return HostState.UP, "an operator of Mesos has deactivated it, and must reactivate it"


def entries(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the agents of a GET_AGENTS answer that arrives in pieces, as one JSON text each. Raises ValueError.

    Agents that a new master recovered from its registry, and that have not registered again, are included: a cluster
    does not shrink while its master is replaced.
    """
    head, pending = b"", bytearray()
    is_first = True
    for piece in pieces:
        searched = max(len(pending) - len(BEGIN), 0)
        pending += piece
        begin = 0
        while (end := pending.find(BEGIN, max(searched, begin + 1 if not is_first else 0))) >= 0:
            if is_first:
                head, is_first = bytes(pending[:end]), False
            else:
                yield bytes(pending[begin:end]).rstrip(b",")
            begin = end
        del pending[:begin]
    # The end of the answer follows the last agent; an answer in a format other than Mesos's is read whole here.
    answer = orjson.loads(head + pending).get("get_agents", {})
    for entry in answer.get("agents", ()):
        yield orjson.dumps(entry)
    for info in answer.get("recovered_agents", ()):
        yield orjson.dumps({"agent_info": info})


class AgentReader:
    """Reader of agents. Agents whose entry has not changed since the last read are the same objects."""

    def __init__(self, role: str = ANY_ROLE) -> None:
        self._roles = roles_above(role)
        self._known: dict[bytes, Agent | None] = {}

    def read(self, pieces: Iterable[bytes]) -> list[Agent]:
        """Return active agents, one per host: registered ones take precedence over recovered ones."""
        known: dict[bytes, Agent | None] = {}
        for entry in entries(pieces):
            key = hashlib.blake2b(entry, digest_size=16).digest()
            is_known = key in self._known
            known[key] = self._known[key] if is_known else agent_of(orjson.loads(entry), self._roles)
        self._known = known
        found: dict[Hostname, Agent] = {}
        for agent in known.values():
            if agent is not None:
                found.setdefault(agent.host.hostname, agent)
        return list(found.values())


class AgentPoller:
    """Reads all agents at intervals that bound the share of time spent. One thread reads; any may request a read."""

    def __init__(
        self,
        period_s: float,
        ask: Ask,
        clock: Callable[[], float] = time.monotonic,
        role: str = ANY_ROLE,
    ) -> None:
        self._period_s = period_s
        self._ask = ask
        self._clock = clock
        self._reader = AgentReader(role)
        self._is_wanted = True
        self._wanted_from_s = self._due_s = clock()

    def want(self) -> None:
        self._is_wanted = True

    @property
    def is_due(self) -> bool:
        return self.due_in_s <= 0

    @property
    def due_in_s(self) -> float:
        return max((self._wanted_from_s if self._is_wanted else self._due_s) - self._clock(), 0.0)

    def poll(self, master: str) -> list[Agent]:
        """Return active agents. Raises OSError, ValueError; the read is then due again."""
        self._is_wanted, began_s = False, self._clock()
        is_done = False
        try:
            agents = self._reader.read(self._ask(master, {"type": "GET_AGENTS"}))
            is_done = True
            return agents
        finally:
            self._is_wanted |= not is_done
            now_s = self._clock()
            self._wanted_from_s = now_s + (now_s - began_s)
            self._due_s = now_s + max(self._period_s, REST_PER_POLL * (now_s - began_s))
