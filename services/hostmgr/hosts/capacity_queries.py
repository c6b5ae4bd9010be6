"""Questions about the current hosts that take long: the state is copied, and evaluated between two events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.hosts.capacity_finder import complete
from peloton.hosts.domain_counts import Counts, open_domains
from peloton.hosts.state import HostState
from peloton.lifecycle.constraints import hosts_named
from peloton.model.daemon import DaemonHost, DaemonReach
from peloton.model.ids import Hostname, PodId
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible
from peloton.scheduling.capacity import find_capacity
from peloton.scheduling.fit import HostKind, infeasible, reach
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.trial import TrialFleet
from services.hostmgr.hosts.host_owner import HostOwner


class CapacityQueries:
    """Queries of free and total capacity. Any thread may call."""

    def __init__(self, state: HostState, owner: HostOwner) -> None:
        self._state, self._apply = state, owner.apply

    def find(self, pods: Sequence[PlannedPods], counts: Counts) -> list[FoundCapacity]:
        """Return for how many planned pods there are free resources. Leased resources count as free. ``counts`` are
        for pods with spread constraints."""
        shapes = list(dict.fromkeys(each.shape for each in pods))
        fleet = self._fleet()
        barred = self._apply(self._state.finder.prepare, fleet, shapes)
        return find_capacity(fleet, pods, barred, Spreading(fleet, open_domains(counts)) if counts else None)

    def for_daemon(self, shape: PodShape) -> list[DaemonHost]:
        """Return the registered hosts on which a daemon with such pods would run, by name, and which of them have
        enough free resources in addition to the reservations of other daemons."""
        fleet = self._fleet()
        flags = zip(fleet.names, fleet.large_enough(shape).tolist(), fleet.fitting(shape, {}).tolist(), strict=True)
        registered, unavailable = self._apply(self._state.finder.in_service)
        found = [one for one in sorted(flags) if one[1] and one[0] in registered]
        hosts = [registered[name] for name, *_ in found]
        left = self._apply(self._state.daemons.less_overhead, [HostKind(host.capacity, host.labels) for host in hosts])
        return [
            DaemonHost(name, host.capacity, kind.capacity, has_capacity, name in unavailable)
            for (name, _, has_capacity), host, kind in zip(found, hosts, left, strict=True)
        ]

    def _fleet(self) -> TrialFleet:
        fleet, unannounced = self._apply(self._state.finder.copy_hosts)
        complete(fleet, unannounced)
        return fleet

    def reach_daemon(self, shape: PodShape) -> DaemonReach:
        """Return on which registered hosts a daemon with such pods would run."""
        return DaemonReach(*reach(shape, self._apply(self._state.daemons.kinds_for, shape)))

    def find_infeasible(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Return the pods that no registered host could take even if it were empty, with the reason."""
        unknown, kinds, version = self._apply(self._state.list_unevaluated, shapes)
        found = {shape: infeasible(shape, kinds[tuple(hosts_named(shape.constraint))]) for shape in unknown}
        return self._apply(self._state.learn, shapes, found, version)

    def bound_to_host(self, pods: Iterable[tuple[PodId, PodShape, Hostname]]) -> set[PodId]:
        """Return the pods that no host of the cluster except their own could take, even if it were empty."""
        counts: dict[PodShape, int] = {}
        found: set[PodId] = set()
        for pod_id, shape, hostname in pods if self._state.are_hosts_known else ():
            if shape not in counts:
                counts[shape] = self._count_takers(shape)
            if counts[shape] <= 1 and not self._count_takers(shape, hostname):
                found.add(pod_id)
        return found

    def _count_takers(self, shape: PodShape, without: Hostname | None = None) -> int:
        """Count the hosts in service that could take the pod if they were empty."""
        return reach(shape, self._apply(self._state.kinds_without, shape, without))[0]
