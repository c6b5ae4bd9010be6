"""Discovery for gangs: the variables with which the members of a gang are launched, and the members at any time.

A gang is launched by one call, so hosts and ports of all members are known before the first of them starts. Instances
beyond the gang are extras: their number changes, so at their launch only the coordinator is certain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from peloton.model.job import JobRecord
from peloton.model.pod import PodState
from peloton.model.text import quote

PEERS_MAX = 128
"""The size of a gang up to which each member gets the addresses of all: 2,700 bytes for 128 members, 9,300 by DNS."""
PEER_PORT = "gang"
"""The dynamic port at which peers reach a pod; a pod without one of that name is reached at its first."""
LABEL = "peloton.gang"
"""The label by which pods ask for the variables of frameworks."""
JOB, INSTANCE = "{job}", "{instance}"
"""The id of its job, and its own one, in the address of a host whose pods have addresses of their own."""


class Convention(StrEnum):
    TORCH = "torch"
    JAX = "jax"
    TENSORFLOW = "tensorflow"


NO_CONVENTIONS: frozenset[Convention] = frozenset()


class UnknownConvention(ValueError):
    """A label names a framework whose variables are unknown."""


def conventions_in(text: str) -> frozenset[Convention]:
    """Return the frameworks that the value of the label names. Raises UnknownConvention."""
    try:
        return frozenset(Convention(name) for each in text.split(",") if (name := each.strip()))
    except ValueError as error:
        wanted = f"want some of {', '.join(Convention)}, with commas between"
        raise UnknownConvention(f"label {LABEL} has value {quote(text)}: {wanted}") from error


def choose_port(ports: Mapping[str, int]) -> int:
    """Return the port at which peers reach a pod with these dynamic ports, 0 without any."""
    return ports.get(PEER_PORT) or next(iter(ports.values()), 0)


def pod_address(address: str, job_id: str, instance_id: int) -> str:
    """Return the address of a pod on the host with this address."""
    return address.replace(JOB, job_id).replace(INSTANCE, str(instance_id))


def endpoint(address: str, port: int) -> str:
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Peer(NamedTuple):
    """A member of a gang that is launched, by its address and its own port."""

    hostname: str
    address: str
    port: int
    has_gpus: bool = False

    @property
    def endpoint(self) -> str:
        return endpoint(self.address, self.port)


NOWHERE = Peer("", "", 0)


class Bounds(NamedTuple):
    """Bounds of the number of members that run: ``minimum`` is the size of the gang."""

    minimum: int
    maximum: int

    @classmethod
    def of(cls, job: JobRecord) -> Bounds:
        count = job.instance_count
        return cls(job.gang_size, min(job.sla.maximum_running_instances or count, count))


@dataclass(frozen=True)
class Launch:
    """The launch of a gang: its members by rank, which is their instance."""

    generation: int
    bounds: Bounds
    peers: Sequence[Peer]
    conventions: Mapping[int, frozenset[Convention]] = field(default_factory=dict)  # by rank

    def variables(self) -> list[dict[str, str]]:
        """Return the variables of each member, by rank."""
        sizes, seen = Counter(peer.hostname for peer in self.peers), Counter[str]()
        addresses = [peer.endpoint for peer in self.peers]
        has_peers = len(self.peers) <= PEERS_MAX
        joined = {"PELOTON_GANG_PEERS": ",".join(addresses)} if has_peers else {}
        workers = json.dumps(addresses) if has_peers else ""
        found = []
        for rank, peer in enumerate(self.peers):
            local_rank = seen[peer.hostname]
            seen[peer.hostname] += 1
            own = _common(self.generation, self.bounds, peer, self.peers[0]) | joined
            own |= {
                "PELOTON_GANG_RANK": str(rank),
                "PELOTON_GANG_WORLD_SIZE": str(len(self.peers)),
                "PELOTON_GANG_LOCAL_RANK": str(local_rank),
                "PELOTON_GANG_LOCAL_WORLD_SIZE": str(sizes[peer.hostname]),
            }
            # A coordinator without a port cannot be named to a framework.
            asked = self.conventions.get(rank, NO_CONVENTIONS) if self.peers[0].port else NO_CONVENTIONS
            if Convention.TORCH in asked:
                own |= _torch(self.peers[0]) | {"RANK": str(rank), "WORLD_SIZE": str(len(self.peers))}
                # Programs take the local rank for the number of their device; a pod sees its own devices alone.
                local = (0, 1) if peer.has_gpus else (local_rank, sizes[peer.hostname])
                own["LOCAL_RANK"], own["LOCAL_WORLD_SIZE"] = map(str, local)
            if Convention.JAX in asked:
                own["JAX_COORDINATOR_ADDRESS"] = addresses[0]
                own["JAX_NUM_PROCESSES"], own["JAX_PROCESS_ID"] = str(len(self.peers)), str(rank)
            if Convention.TENSORFLOW in asked and workers:
                own["TF_CONFIG"] = (
                    f'{{"cluster": {{"worker": {workers}}}, "task": {{"type": "worker", "index": {rank}}}}}'
                )
            found.append(own)
        return found


def extra_variables(
    generation: int, bounds: Bounds, peer: Peer, coordinator: Peer, asked: Collection[Convention]
) -> dict[str, str]:
    """Return the variables of an extra: it has no rank, since the number of extras changes. A gang that is not launched
    has no coordinator."""
    own = _common(generation, bounds, peer, coordinator)
    return own | _torch(coordinator) if Convention.TORCH in asked and coordinator.port else own


def _common(generation: int, bounds: Bounds, peer: Peer, coordinator: Peer) -> dict[str, str]:
    return {
        "PELOTON_GANG_GENERATION": str(generation),
        "PELOTON_GANG_MINIMUM": str(bounds.minimum),
        "PELOTON_GANG_MAXIMUM": str(bounds.maximum),
        "PELOTON_GANG_ADDRESS": peer.endpoint,
        "PELOTON_GANG_COORDINATOR": coordinator.endpoint,
    }


def _torch(coordinator: Peer) -> dict[str, str]:
    return {"MASTER_ADDR": coordinator.address, "MASTER_PORT": str(coordinator.port)}


# -- members at any time -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangPod:
    """An instance of the gang, or an extra on a host, as it is stored. ``leaves``: it is to end or to run again."""

    instance_id: int
    run_id: int
    state: PodState
    leaves: bool = False
    hostname: str = ""
    address: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    rank: int = 0
    local_rank: int = 0

    @property
    def is_live(self) -> bool:
        return self.state is PodState.RUNNING and not self.leaves

    @property
    def port(self) -> int:
        return choose_port(self.ports)

    @property
    def peer(self) -> Peer:
        return Peer(self.hostname, self.address or self.hostname, self.port)


@dataclass(frozen=True, slots=True)
class GangView:
    """The gang at one moment, with its pods by instance."""

    generation: int
    bounds: Bounds
    pods: Sequence[GangPod]
    is_partial: bool = False
    revision: str = ""

    @property
    def coordinator(self) -> Peer:
        first = self.pods[0] if self.pods else None
        return first.peer if first and first.instance_id == 0 and first.hostname else NOWHERE


def view_gang(bounds: Bounds, pods: Iterable[GangPod], count_max: int) -> GangView:
    """Return the gang with ranks. ``pods`` come by instance; those after the first ``count_max`` are left out."""
    found: list[GangPod] = []
    extra_rank, seen = bounds.minimum, Counter[str]()
    generation, is_partial = 0, False
    for pod in pods:
        if len(found) == count_max:
            is_partial = True
            break
        is_member = pod.instance_id < bounds.minimum
        if is_member:
            generation = max(generation, pod.run_id)
        if is_member or pod.is_live:
            pod = replace(pod, rank=pod.instance_id if is_member else extra_rank)
        if pod.is_live:
            pod = replace(pod, local_rank=seen[pod.hostname])
            seen[pod.hostname] += 1
            extra_rank += not is_member
        found.append(pod)
    text = repr((bounds, is_partial, [(*_identity(pod),) for pod in found]))
    revision = blake2b(text.encode(), digest_size=12).hexdigest()
    return GangView(generation, bounds, found, is_partial, revision)


def _identity(pod: GangPod) -> tuple[object, ...]:
    return pod.instance_id, pod.run_id, pod.state.value, pod.leaves, pod.hostname, pod.address, *pod.ports.items()
