"""The hosts and their free resources, for the threads of the host manager: the shell around ``HostState``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peloton.errors import Unavailable
from peloton.hosts.announced import Holder
from peloton.hosts.asked_amounts import PodAmounts
from peloton.hosts.domain_counts import NO_COUNTS, Counts
from peloton.hosts.resource_holds import ComingBackOf
from peloton.hosts.state import HOSTS_UNKNOWN, HostState, PlacedPods
from peloton.model.host import Desired, Host, HostLease, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible
from peloton.model.reservation import WaitingPod
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.capacity_queries import CapacityQueries
from services.hostmgr.hosts.host_event_recorder import NO_RECORDER, HostEventRecorder
from services.hostmgr.hosts.host_listing import list_hosts
from services.hostmgr.hosts.host_owner import HostOwner
from services.hostmgr.hosts.host_views import HostViews
from services.telemetry.metrics import register_gauge


class HostCache:
    """State of the hosts. Any thread may call; times are of the monotonic clock. A method that needs no clock, storage
    or second event is the state's own, applied by the owner."""

    def __init__(
        self,
        lease_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        cluster_labels: Mapping[str, str] | None = None,
        recorder: HostEventRecorder = NO_RECORDER,
        meter: Meter | None = None,
    ) -> None:
        """``cluster_labels`` are the cluster's name and kind, which every host has as labels."""
        self._clock, self._wall_ns, self._cluster_labels = clock, wall_ns, cluster_labels or {}
        self._state = state = HostState(lease_s, str(uuid.uuid4()), cluster_labels)
        self._owner = owner = HostOwner(state, clock, wall_ns, recorder)
        self._queries = CapacityQueries(state, owner)
        events = owner.part(state)
        self.validate, self.set_maintained, self.is_closed = events.validate, events.set_maintained, events.is_closed
        self.add_resources, self.remove_resources = events.add_resources, events.remove_resources
        self.take_idle, self.forget_resources = events.take_idle, events.forget_resources
        self.pods_launched, self.pods_ended, self.hold = events.pods_launched, events.pods_ended, events.hold
        self.place_daemon, self.claim, self.release = events.place_daemon, events.claim, events.release
        self.sights, self.may_fit, self.host, self.census = events.sights, events.may_fit, events.host, events.census
        self.host_count, self.capacity, self.free = events.host_count, events.capacity, events.free
        self.sum_registered, self.revocable_holders = events.sum_registered, events.revocable_holders
        self.close_to_revocable, self.bound_to_host = events.close_to_revocable, self._queries.bound_to_host
        self.daemons, self.domains = owner.part(state.daemons), owner.part(state.domains)
        self.loads, self.sums = owner.part(state.loads), owner.part(state.sums)
        self.reservations, self.host_pools = owner.part(state.reservations), owner.part(state.host_pools)
        self.pod_labels, self.avoidances = owner.part(state.table.pod_labels), owner.part(state.avoidances)
        self.spread_turns = owner.part(state.spread_turns)
        self.views, self.finder = HostViews(state, owner), self._queries
        register_gauge("peloton.hosts.reserved", self._read_reserved, meter)
        register_gauge("peloton.hosts.avoided", self._read_avoided, meter)

    @property
    def are_hosts_known(self) -> bool:
        return self._state.are_hosts_known

    @property
    def resources_count(self) -> int:
        return self._state.table.free_resources.resources_count

    def _read_reserved(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(self.reservations.count())]

    def _read_avoided(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(len(self.avoidances.list_avoided(self._clock())))]

    # Several events, or work between them.

    def set_hosts(self, hosts: Iterable[RegisteredHost], name_taken: Mapping[str, str] | None = None) -> set[JobId]:
        """Set all registered hosts. ``name_taken`` maps names that belong to another cluster to that cluster. Returns
        the jobs that may find hosts now."""
        taken = {Hostname(name): cluster for name, cluster in (name_taken or {}).items()}
        own_hosts = [host for host in hosts if host.hostname not in taken]
        for host in own_hosts:
            host.labels.update(self._cluster_labels)
        return self._owner.apply(self._state.set_hosts, own_hosts, taken)

    def review_holds(self, coming_back: ComingBackOf, now_s: float) -> set[JobId]:
        """End holds that have expired, or whose pods no longer return; return the jobs that may find hosts."""
        gone = []
        for job_id, instances in self._owner.apply(self._state.holds_by_job).items():
            still = {pod.instance_id for pod in coming_back(job_id, instances)}
            gone += [(job_id, instance) for instance in instances if instance not in still]
        return self._owner.apply(self._state.end_holds, gone, now_s)

    def read_requests(self, read: Callable[[], Iterable[Sequence[PodAmounts]]]) -> None:
        """Read from storage the requests of the pods on each host; pods may launch and end meanwhile."""
        self.host_pools.begin_reading()
        pods = None
        try:
            pods = list(chain.from_iterable(read()))
        finally:
            self.host_pools.end_reading(pods)

    @contextmanager
    def launching(self, hostnames: Sequence[str]) -> Iterator[None]:
        """Keep hosts from being closed while a launch is under way, from its claim to its commit."""
        self._owner.apply(self._state.launch_began, hostnames)
        try:
            yield
        finally:
            self._owner.apply(self._state.launch_ended, hostnames)

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Return the pods that no registered host could take even if it were empty, with the reason. Raises
        Unavailable."""
        if not self.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        return self._queries.find_infeasible(shapes)

    def hosts(self, names: Collection[str] = ()) -> list[Host]:
        """Return all known hosts, or the ones with these names, by host name."""
        avoided = self.avoidances.list_avoided(self._clock())
        known, free, reserved, pools = self._owner.apply(self._state.list_hosts)
        found = list_hosts(*known, free, avoided, self._cluster_labels, self._wall_ns(), names)
        if reserved:
            found = [replace(host, reserved=reserved.get(host.hostname, "")) for host in found]
        if pools is not None:
            found = [replace(host, pool=pools.of(host.hostname)) for host in found]
        return found

    def acquire(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        now_s: float,
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        counts: Counts = NO_COUNTS,
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        """Lease hosts as ``HostState.acquire`` does; the lease names the shapes that fit no host even if it were
        empty."""
        lease = self._owner.apply(
            self._state.acquire,
            job_id,
            wanted,
            now_s,
            for_gang=for_gang,
            desired=desired,
            counts=counts,
            waiting=waiting,
        )
        return self._explain(lease, (job_id, for_gang), now_s)

    def place(
        self,
        job_id: JobId,
        gangs: Sequence[ReadyGang],
        now_s: float,
        for_gang: bool = False,
        counts: Counts = NO_COUNTS,
        waiting: Sequence[WaitingPod] = (),
    ) -> PlacedPods:
        """Place pods as ``HostState.place`` does; the lease names the shapes that fit no host even if it were empty."""
        lease, packed = self._owner.apply(
            self._state.place, job_id, gangs, now_s, for_gang=for_gang, counts=counts, waiting=waiting
        )
        return self._explain(lease, (job_id, for_gang), now_s), packed

    def _explain(self, lease: HostLease, holder: Holder, now_s: float) -> HostLease:
        if lease.refused:
            lease = replace(lease, infeasible=self._queries.find_infeasible([*lease.refused]))
            self._owner.apply(self._state.note_infeasible, holder, [*lease.refused], [*lease.infeasible], now_s)
        return lease
