"""Placement of admitted pods on leased hosts.

Pods that return to their host go first, then gangs, whole or not at all, then the others, each by the recipe of its
shape. Hosts on which pods of the job failed come last. Revocable pods take the revocable cpu of a host and its ordinary
memory, disk and gpu.

``PodLabel`` constraints count the pods that were on a host at the lease, and the pods that this batch places there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.host import HostLease, LeasedHost, PlacedPod, Placement, PlacementBatch, ReadyGang, Unplaced
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import HostRule, Misfit, Refused
from peloton.model.pod import PORT_LABEL, Label, PodShape
from peloton.model.ranges import ranges_without
from peloton.model.reason import ClusterReason, NoHost, RefusingHosts, merge_misfits
from peloton.scheduling.bin_packing import PodRequest, gang_misfit, pack_requests
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.packing import PortAllocator, port_count
from peloton.scheduling.recipes import choose
from peloton.scheduling.rows import HostRow
from peloton.scheduling.spreading import Spreading

SHAPES_EXPLAINED_MAX = 3
"""Limit of shapes for which the reasons of the hosts are given; the others are counted."""


@dataclass(frozen=True, slots=True)
class LeftPods:
    """Pods of one request without a host."""

    request: PodRequest
    instances: tuple[int, ...]  # of a gang the first member only
    count: int
    hosts: tuple[RefusingHosts, ...] = ()  # by the first rule that they fail; empty for shapes that are only counted


class PackedPods(NamedTuple):
    """Pods placed on hosts of one lease, and the others."""

    placements: tuple[Placement, ...] = ()
    left: tuple[LeftPods, ...] = ()
    returning: tuple[Hostname, ...] = ()  # hosts of pods that wait for free resources there
    refused: Mapping[Hostname, Misfit] = {}  # hosts that do not take their pod of a daemon

    @property
    def is_explained(self) -> bool:
        """Return whether the hosts of enough shapes are explained."""
        return len(self.left) + bool(self.returning) >= SHAPES_EXPLAINED_MAX


def place(job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
    """Place the gangs that fit. Equal arguments give equal placements."""
    hosts = _Hosts(lease)
    gangs, waiting = _place_returning(hosts, gangs, dict(lease.awaited), dict(lease.reserved))
    packed = PackedPods(returning=tuple(waiting))
    for batches in group_pods(gangs):
        requests = [request for request, _ in batches]
        for (request, pods), placed in zip(batches, hosts.put(requests, [pods for _, pods in batches]), strict=True):
            if left := len(pods) - placed:
                explained: tuple[RefusingHosts, ...] = ()
                if not packed.is_explained:
                    refused = ((one.why, one.host_count) for one in lease.refused.get(request.shape, ()))
                    explained = merge_misfits(chain(hosts.refusing(request, left), refused))
                packed = packed._replace(left=(*packed.left, name_left(request, pods, placed, explained)))
    return assemble_batch(job_id, lease, packed._replace(placements=hosts.placements()))


def name_left(
    request: PodRequest, pods: Sequence[tuple[int, int]], placed: int, hosts: tuple[RefusingHosts, ...]
) -> LeftPods:
    """Return the pods of the request, of which the first ``placed`` have a host, that are left."""
    named = pods[:1] if request.is_gang else pods[placed:]
    return LeftPods(request, tuple(instance for instance, _ in named), len(pods) - placed, hosts)


def assemble_batch(job_id: JobId, lease: HostLease, packed: PackedPods) -> PlacementBatch:
    """Return the placements, and the other pods with the reason; pods for which a host is reserved keep waiting."""
    reserved, kept, unplaced = dict(lease.reserved), list[int](), list[Unplaced]()
    found = [_awaits_return(packed.returning)] if packed.returning else []
    shape_count = len(found) + len(packed.left)
    for pods in packed.left:
        if len(found) < SHAPES_EXPLAINED_MAX:
            found.append(NoHost(pods.count, pods.request.is_gang, pods.hosts))
        own = [] if pods.request.is_gang else [instance for instance in pods.instances if instance in reserved]
        kept += own
        if others := tuple(instance for instance in pods.instances if instance not in own):
            why = lease.infeasible.get(pods.request.shape)
            unplaced.append(Unplaced(others, (why,) if why else ()))
    reason = (ClusterReason(pods=tuple(found), more_count=shape_count - len(found)),) if found else ()
    unplaced_count = len(packed.returning) + sum(pods.count for pods in packed.left)
    return PlacementBatch(
        job_id, lease.lease_id, packed.placements, unplaced_count, reason, tuple(unplaced), reserved=tuple(kept)
    )


def _awaits_return(hosts: Sequence[Hostname]) -> NoHost:
    return NoHost(len(hosts), hosts=(RefusingHosts.of(len(set(hosts)), Refused(HostRule.RETURN)),))


def _place_returning(
    hosts: _Hosts, gangs: Sequence[ReadyGang], awaited: Mapping[int, Hostname], reserved: Mapping[int, Hostname]
) -> tuple[list[ReadyGang], list[Hostname]]:
    """Place pods that return to a host, and pods for which one is reserved, before the others.

    Return the gangs that may go to any host, and the hosts of the pods that wait for free resources on theirs.
    """
    left: list[ReadyGang] = []
    waiting: list[Hostname] = []
    for gang in gangs:
        instance, is_single = gang.pods[0][0], len(gang.pods) == 1
        preferred = (gang.desired_host, reserved.get(instance, "")) if is_single else ()
        if any(hosts.put_on(Hostname(preferred_host), gang) for preferred_host in preferred if preferred_host):
            continue
        host = awaited.get(instance) if is_single and gang.desired_host else None
        if host is None:
            left.append(gang)
        else:
            waiting.append(host)
    return left, waiting


class FirstFitPlacer:
    """The implementation of ``ports.Placer``."""

    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch:
        return place(job_id, gangs, lease)


_Labels = tuple[Label, ...]
Put = tuple[tuple[int, int], PodShape, _Labels]
"""((instance, run), shape, labels) of a placed pod."""
RequestedPods = tuple[PodRequest, list[tuple[int, int]]]


def group_pods(gangs: Sequence[ReadyGang]) -> Iterator[list[RequestedPods]]:
    """Yield gangs one by one, then all single pods, by shape and labels in order of first appearance."""
    singles: dict[tuple[PodShape, _Labels], list[tuple[int, int]]] = {}
    last: tuple[PodShape, _Labels, list[tuple[int, int]]] | None = None
    for gang in gangs:
        if len(gang.pods) > 1:
            yield [(PodRequest(gang.shape, gang.labels, len(gang.pods), True), list(gang.pods))]
        else:
            # Compare with the last shape first: hashing a shape costs more than placing it.
            if last is None or last[0] is not gang.shape or last[1] != gang.labels:
                last = (gang.shape, gang.labels, singles.setdefault((gang.shape, gang.labels), []))
            last[2].extend(gang.pods)
    if singles:
        yield [(PodRequest(shape, labels, len(pods)), pods) for (shape, labels), pods in singles.items()]


class _Hosts:
    """The hosts of one lease, and the pods placed on them."""

    def __init__(self, lease: HostLease) -> None:
        hosts = self.hosts = lease.hosts
        self.fleet = Fleet(_row(order, host) for order, host in enumerate(hosts))
        for row, host in enumerate(hosts):
            self.fleet.loads.set(row, host.load_beyond)
        pods: dict[Label, dict[Hostname, int]] = {}
        for host in hosts:
            for label, count in host.pod_labels:
                pods.setdefault(label, {})[host.hostname] = count
        for label, counts in pods.items():
            self.fleet.set_pods(label, counts)
        self._spreading = Spreading(self.fleet, lease.domains) if lease.domains else None
        self._placed: dict[int, list[Put]] = {}

    def put(self, requests: Sequence[PodRequest], pods: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
        """Place pods, and return how many of each request."""
        chosen = pack_requests(self.fleet, requests, spreading=self._spreading)
        for request, of_request, rows in zip(requests, pods, chosen, strict=True):
            for pod, row in zip(of_request, rows.tolist(), strict=False):
                self._placed.setdefault(row, []).append((pod, request.shape, request.labels))
        return [len(rows) for rows in chosen]

    def put_on(self, hostname: Hostname, gang: ReadyGang) -> bool:
        """Place the only pod of a gang on this host, if it fits there."""
        row = self.fleet.row_of.get(hostname)
        rows = np.array([row for row in (row,) if row is not None], np.int64)
        rows = rows[self.fleet.fitting(gang.shape, {})[rows]]
        if not self.fleet.count_fits_with_pods(gang.shape, gang.labels, rows, np.ones_like(rows)).any():
            return False
        self.fleet.take(gang.shape, gang.labels, rows)
        if self._spreading is not None:
            self._spreading.add(rows)
        self._placed.setdefault(int(rows[0]), []).append((gang.pods[0], gang.shape, gang.labels))
        return True

    def refusing(self, request: PodRequest, left: int) -> Iterator[tuple[Misfit, int]]:
        """Yield hosts by the first rule that they fail now.

        Hosts that fail none together lack free resources for the gang of ``left`` pods.
        """
        found = [one for one in self.fleet.refusing(request.shape, self._refuse_by_skew(request.shape)) if one[1]]
        yield from found
        fitting = len(self.hosts) - sum(count for _, count in found)
        if fitting:
            fit_counts = len(choose(self.fleet, request.shape, request.labels, left, None, self._spreading))
            yield gang_misfit(request.shape, left, fit_counts), fitting

    def _refuse_by_skew(self, shape: PodShape) -> dict[int, Misfit]:
        """Return the rows that take no such pod because of a bound on skew."""
        if self._spreading is None:
            return {}
        return dict(self._spreading.refusing(shape, self.fleet.fitting(shape, {})))

    def placements(self) -> tuple[Placement, ...]:
        hosts = ((self.hosts[row], pods) for row, pods in sorted(self._placed.items()))
        return tuple(make_placement(host.hostname, pods, partial(getattr, host, "ports")) for host, pods in hosts)


def make_placement(
    hostname: Hostname, pods: Sequence[Put], ports: Callable[[], Sequence[tuple[int, int]]]
) -> Placement:
    """Return the placement of pods on a host, with dynamic ports among its free ``ports``, except the static ports of
    other pods there.

    Pods for which no ports are left are dropped here and placed in a later batch.
    """
    if not any(shape.port_count for _, shape, _ in pods):
        return Placement(hostname, tuple(PlacedPod(*pod) for pod, _, _ in pods))
    static = {int(value) for _, _, labels in pods for key, value in labels if key == PORT_LABEL}
    left = ranges_without(ports(), static) if static else ports()
    allocator, rest = PortAllocator(left), port_count(left)
    placed = []
    for pod, shape, _ in pods:
        if shape.port_count <= rest:
            rest -= shape.port_count
            placed.append(PlacedPod(*pod, allocator.allocate(shape.port_count)))
    return Placement(hostname, tuple(placed))


def _row(order: int, host: LeasedHost) -> HostRow:
    kind = tuple(label for label in host.labels if label[0] != HOSTNAME_LABEL)
    counts = host.revocable.cpu_milli, port_count(host.ports), host.pod_slots
    return HostRow(host.hostname, host.free, host.capacity, *counts, kind, order, rank=int(host.is_deprioritized))
