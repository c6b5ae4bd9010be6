"""Values in which a cluster reports its hosts and their free resources, and in which the state answers launches."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.lifecycle.constraints import HostLabels, Labels
from peloton.model.host import POD_SLOTS_UNLIMITED, HostState
from peloton.model.host_pool import AT_PAR, Factors
from peloton.model.ids import Hostname, JobId
from peloton.model.resources import Resources

Ports = tuple[tuple[int, int], ...]
"""Inclusive port ranges."""
Holder = tuple[JobId, bool]
"""A job and whether its gang is meant: a job's gang is placed separately from its other pods."""
NOTHING = Resources()


@dataclass(slots=True)
class RegisteredHost:
    """A host of the cluster and its capacity."""

    host_id: str  # changes when the machine is replaced; stored with pods as ``agent_id``
    hostname: Hostname
    ip: str
    capacity: Resources
    revocable: Resources
    labels: HostLabels
    revocable_held: Resources = NOTHING
    state: HostState = HostState.UP
    withdrawn: str = ""  # why it is unschedulable by an act of a cluster operator; empty: it is schedulable
    held: Resources = NOTHING  # by pods of all users of the cluster
    held_by_others: Resources = NOTHING  # resources of the machine above the capacity, held by others
    volumes: frozenset[str] | None = frozenset()  # ids of the Peloton volumes on it; None: not listed by the host yet
    volumes_begun: frozenset[str] = frozenset()  # ids of volumes that are partly created or partly destroyed
    volumes_mib: int = 0  # disk of these volumes, counted in both capacity and held

    @property
    def free(self) -> Resources:
        return self.capacity.without(self.held)


@dataclass(slots=True)
class FreeResources:
    """An offer: resources of one host that Peloton may use now. Offers of one host add up. A launch consumes an offer
    whole, and the cluster offers the rest again."""

    resources_id: str
    hostname: Hostname
    host_id: str
    free: Resources
    revocable: Resources
    ports: Ports
    labels: Labels
    goes_ns: int = 0  # when the cluster takes the host down, 0 = never
    pod_slots: int = POD_SLOTS_UNLIMITED  # pods that the host accepts, whatever their size
    volumes: frozenset[str] = frozenset()  # ids of volumes that no pod uses


@dataclass(frozen=True, slots=True)
class Claim:
    """All offers of a host, claimed for one launch."""

    hostname: Hostname
    host_id: str
    resources_ids: tuple[str, ...]
    factors: Factors = AT_PAR  # overcommit factors applied to the offered resources
