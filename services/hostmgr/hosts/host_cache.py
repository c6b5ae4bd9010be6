"""Hosts and their free resources: the only owner of this state, and of the lock around it.

A host is READY (may be leased), or LEASED to one placement until that launches, releases the lease, or exceeds its
deadline.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from peloton.errors import Unavailable
from peloton.lifecycle.constraints import hosts_named
from peloton.lifecycle.volumes import HostSight
from peloton.model.host import ComingBack, Desired, Host, HostLease
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import Label, PodShape
from peloton.model.reason import HostRule, Infeasible
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.scheduling.fit import infeasible, reach
from peloton.scheduling.relocation import HostNow
from services.hostmgr.driver import Claim, FreeResources, Holder, RegisteredHost
from services.hostmgr.hosts.asked_amounts import PodAmounts
from services.hostmgr.hosts.avoidances import HostAvoidances
from services.hostmgr.hosts.capacity_finder import CapacityFinder
from services.hostmgr.hosts.daemon_hosts import DaemonHosts
from services.hostmgr.hosts.domain_counts import NO_COUNTS, Counts, DomainCounts, near
from services.hostmgr.hosts.feasibility_cache import FeasibilityCache
from services.hostmgr.hosts.host_census import hosts_now
from services.hostmgr.hosts.host_chooser import HostChooser
from services.hostmgr.hosts.host_event_recorder import NO_RECORDER, HostEventRecorder
from services.hostmgr.hosts.host_listing import list_hosts
from services.hostmgr.hosts.host_load_cache import HostLoadCache
from services.hostmgr.hosts.host_pool_cache import HostPoolCache
from services.hostmgr.hosts.host_resources import HostResources, make_leased_host
from services.hostmgr.hosts.host_resources_table import HostResourcesTable
from services.hostmgr.hosts.host_sums import HostSums
from services.hostmgr.hosts.host_table import HostTable
from services.hostmgr.hosts.host_views import HostViews
from services.hostmgr.hosts.pooled_hosts import PooledHosts
from services.hostmgr.hosts.registered_hosts import RegisteredHosts
from services.hostmgr.hosts.reservation_cache import ReservationCache
from services.hostmgr.hosts.resource_holds import ComingBackOf
from services.hostmgr.hosts.validation import find_faults
from services.hostmgr.hosts.waiting_jobs import WaitingJobs
from services.hostmgr.in_flight import InFlight

HOSTS_UNKNOWN = "the hosts of the cluster are not known yet"


class HostCache:
    """State of the hosts. Any thread may call; times are of the monotonic clock."""

    def __init__(
        self,
        lease_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        cluster_labels: Mapping[str, str] | None = None,
        recorder: HostEventRecorder = NO_RECORDER,
    ) -> None:
        """``cluster_labels`` are the cluster's name and kind, which every host has as labels."""
        self._clock, self._lease_s, self._wall_ns = clock, lease_s, wall_ns
        self._lock = threading.RLock()
        self._cluster_labels = cluster_labels or {}
        pooled, registered = PooledHosts(), RegisteredHosts()
        self._table = HostTable(HostResourcesTable(cluster_labels, pooled, registered.capacity_of), pooled, registered)
        self._chooser = HostChooser(self._table, wall_ns)
        self.are_hosts_known = False
        self._feasibility = FeasibilityCache()
        self._leases: dict[str, tuple[float, list[Hostname]]] = {}  # lease id -> deadline, hosts
        self._lease_of_job: dict[Holder, str] = {}
        self._waiting = WaitingJobs()
        self.daemons = DaemonHosts(self._table, self._lock)
        self.domains = DomainCounts(self._table, self._lock)
        self.views = HostViews(self._lock, self._table, lambda: self.are_hosts_known)
        self.loads = HostLoadCache(self._lock, self._table)
        self.reservations = ReservationCache(
            self._lock, self._table, self._chooser, self._waiting, wall_ns, None, recorder
        )
        self.host_pools = HostPoolCache(self._lock, self._table, self._waiting, self.daemons)
        self.sums = HostSums(self._lock, self._table)
        self.pod_labels = self._table.pod_labels
        self.launches = InFlight[str]()  # by host, from the claim of a launch to its commit
        self.avoidances = HostAvoidances(lambda: len(self._table.registered.by_name), None, recorder.record_avoided)
        self.finder = CapacityFinder(self._lock, self._table, self._chooser, self.daemons, self.avoidances, clock)

    def validate(self) -> None:
        """Raises AssertionError with every violated invariant. Tests and simulations call it after each event."""
        with self._lock:
            faults = [*find_faults(self._table, self._leases, self._lease_of_job, self.daemons)]
        assert not faults, "\n".join(faults)

    # Maintenance.

    def set_maintained(self, hosts: Iterable[HostMaintenance]) -> None:
        """Excludes hosts in maintenance from leases and launches; hosts that wait for their turn are leased last."""
        with self._lock:
            self._table.maintained = {host.hostname: host for host in hosts}

    def is_closed(self, hostname: str) -> bool:
        """Returns whether no launch is under way on the host and none will start."""
        with self._lock:
            return self._table.is_unavailable(Hostname(hostname)) and hostname not in self.launches

    # Events of the cluster.

    def set_hosts(self, hosts: Iterable[RegisteredHost], name_taken: Mapping[str, str] | None = None) -> set[JobId]:
        """Sets all registered hosts. ``name_taken`` maps names that belong to another cluster to that cluster. Returns
        the jobs that may find hosts now."""
        taken = {Hostname(name): cluster for name, cluster in (name_taken or {}).items()}
        own_hosts = [host for host in hosts if host.hostname not in taken]  # outside the lock: it is slow
        for host in own_hosts:
            host.labels.update(self._cluster_labels)
        with self._lock:
            self.avoidances.saw({host.hostname for host in own_hosts}, self._table.maintained, self._clock())
            self._table.name_taken, self.are_hosts_known = taken, True
            seen, changed = self._table.pooled.update(own_hosts)
            self._table.set_hosts(seen)
            self._table.free_resources.claimed.heard(self.launches)
            self._table.free_resources.keep(self._table.registered.by_name.keys())
            self.daemons.hosts_changed()
            return self._waiting.pop_all() if self._table.free_resources.recount(changed) else set()

    def sights(self, hostnames: Collection[str]) -> dict[str, HostSight]:
        """Returns the cluster's listings of these hosts, for the volumes on them."""
        with self._lock:
            return {hostname: self._table.sight(Hostname(hostname)) for hostname in hostnames}

    def add_resources(self, free_resources: Sequence[FreeResources]) -> set[JobId]:
        """Adds offers; returns the jobs that waited for hosts."""
        with self._lock:
            self._table.free_resources.add(free_resources, self._clock())
            self.daemons.keep_resources(announced.hostname for announced in free_resources)
            return self._waiting.pop_all()

    def pods_launched(self, job_id: JobId, pods: Sequence[tuple[int, int, str, tuple[Label, ...]]]) -> None:
        """Records pods ``(instance, run, host, labels)`` that a launch committed, and ends their resource holds."""
        self.pod_labels.add((PodId(job_id, instance, run), host, labels) for instance, run, host, labels in pods)
        self.daemons.record_launched((PodId(job_id, instance, run), Hostname(host)) for instance, run, host, _ in pods)
        with self._lock:
            self._table.pooled.asked.confirm((job_id, instance) for instance, *_ in pods)
            self._table.holds.drop((job_id, instance) for instance, *_ in pods)
            self.reservations.record_launched(job_id, {instance: host for instance, _, host, _ in pods})

    def pods_ended(self, pod_ids: Sequence[PodId]) -> set[JobId]:
        """Records ended pods. Returns the jobs that may find hosts now that pods with labels have ended."""
        self.daemons.record_ended(pod_ids)
        has_labelled = self.pod_labels.remove(pod_ids)
        if not has_labelled and not self._table.pooled.are_used:
            return set()
        with self._lock:
            has_capacity = self._table.free_resources.recount(self._table.pooled.asked.remove(pod_ids))
            return self._waiting.pop_all() if has_labelled or has_capacity else set()

    def hold(self, pods: Sequence[ComingBack], now_s: float) -> None:
        """Holds resources for pods that will return to their hosts, before they are asked to leave."""
        with self._lock:
            self._table.holds.add(pods, now_s)

    def review_holds(self, coming_back: ComingBackOf, now_s: float) -> set[JobId]:
        """Ends holds that have expired, or whose pods no longer return; returns the jobs that may find hosts."""
        with self._lock:
            held = self._table.holds.by_job()
        gone = []
        for job_id, instances in held.items():
            still = {pod.instance_id for pod in coming_back(job_id, instances)}
            gone += [(job_id, instance) for instance in instances if instance not in still]
        with self._lock:
            dropped = self._table.holds.drop(gone) | self._table.holds.expire(now_s)
            return self._waiting.pop_all() if dropped else set()

    def remove_resources(self, resources_ids: Iterable[str]) -> None:
        with self._lock:
            for resources_id in resources_ids:
                self._table.free_resources.remove(resources_id)

    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int) -> list[str]:
        """Removes idle offers received up to ``until_s``, except ``kept`` of them; they are returned to the cluster."""
        with self._lock:
            return self._table.free_resources.take_idle(until_s, now_s, kept, limit, self._table.find_kept_hosts())

    def may_fit(self, shapes: Iterable[PodShape]) -> bool:
        """Returns whether a host has free resources for one of these, by the cluster's last report, offered or not."""
        with self._lock:
            return any(self._table.registered.has_capacity(shape) for shape in shapes)

    def forget_resources(self) -> None:
        """Removes all offers and leases when the session ends; the next offer wakes waiting jobs."""
        with self._lock:
            self._table.free_resources.clear()
            self._leases.clear()
            self._lease_of_job.clear()

    # Queries of hosts.

    def host(self, hostname: str) -> RegisteredHost | None:
        name = Hostname(hostname)
        with self._lock:
            return self._table.registered.by_name.get(name) or self._table.withdrawn.get(name)

    def host_count(self) -> int:
        """Returns the number of hosts of the cluster, including hosts that are down for maintenance."""
        with self._lock:
            registered = self._table.registered.by_name
            return len(registered) + sum(name not in registered for name in self._table.maintained)

    def capacity(self) -> tuple[Resources, Resources, int]:
        """Returns the capacity, without the requests of daemons, and the revocable capacity of the registered hosts
        that take pods, and their number. Raises Unavailable before hosts are known: 0 would look like an empty
        cluster."""
        with self._lock:
            if not self.are_hosts_known:
                raise Unavailable(HOSTS_UNKNOWN)
            unavailable = self._table.unavailable()
            total, revocable, count = self._table.registered.capacity(unavailable, self._table.closed)
            return total - self.daemons.overhead(unavailable), revocable, count

    def sum_registered(self) -> Resources:
        """Returns the capacity of all hosts, including hosts that are draining, or down and unregistered."""
        with self._lock:
            registered = self._table.registered.by_name
            down = (host.capacity for name, host in self._table.maintained.items() if name not in registered)
            return sum(down, self._table.registered.total)

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Returns the pods that no registered host could take even if it were empty, with the reason. Raises
        Unavailable."""
        with self._lock:
            if not self.are_hosts_known:
                raise Unavailable(HOSTS_UNKNOWN)
        return self._find_infeasible(shapes)

    def _find_infeasible(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Evaluates without the lock, so that leases continue meanwhile."""
        with self._lock:
            version = self._table.registered.kinds_version + self.daemons.version
            unknown, kinds_of = self._feasibility.unknown(shapes, version), self._table.registered.kinds
            named = {tuple(hosts_named(shape.constraint)) for shape in unknown}
            kinds = {names: self.daemons.less_overhead(kinds_of(names)) for names in named}
        found = {shape: infeasible(shape, kinds[tuple(hosts_named(shape.constraint))]) for shape in unknown}
        with self._lock:
            return self._feasibility.learn(shapes, found, version)

    def bound_to_host(self, pods: Iterable[tuple[PodId, PodShape, Hostname]]) -> set[PodId]:
        """Returns the pods that no host of the cluster except their own could take, even if it were empty."""
        counts: dict[PodShape, int] = {}
        found: set[PodId] = set()
        for pod_id, shape, hostname in pods if self.are_hosts_known else ():
            if shape not in counts:
                counts[shape] = self._count_takers(shape)
            if counts[shape] <= 1 and not self._count_takers(shape, hostname):
                found.add(pod_id)
        return found

    def _count_takers(self, shape: PodShape, without: Hostname | None = None) -> int:
        """Counts the hosts in service that could take the pod if they were empty. Evaluates without the lock."""
        with self._lock:
            left_out = self._table.unavailable() | ({without} if without else set())
            kinds = self._table.registered.kinds(hosts_named(shape.constraint), left_out)
        return reach(shape, self.daemons.less_overhead(kinds))[0]

    def free(self) -> Resources:
        """Returns the free resources of hosts that take pods and are not leased, offered or not."""
        with self._lock:
            unavailable = self._table.unavailable() | self._table.name_taken.keys()
            unannounced = (free for name, free in self._table.list_unannounced().items() if name not in unavailable)
            return sum(unannounced, self._table.free_resources.fleet.free_sum(unavailable))

    @property
    def resources_count(self) -> int:
        return self._table.free_resources.resources_count

    def revocable_holders(self, with_others: bool = False) -> list[RegisteredHost]:
        """Returns the hosts with revocable pods, or all hosts, by name."""
        with self._lock:
            found = dict(self._table.registered.by_name if with_others else self._table.registered.holders)
        return [found[name] for name in sorted(found)]

    def close_to_revocable(self, hosts: Mapping[Hostname, int]) -> set[JobId]:
        """Sets the hosts that take no more revocable pods, with the cpu of the revocable pods that stay. Returns the
        jobs that may find hosts now."""
        with self._lock:
            has_opened = bool(self._table.closed.keys() - hosts.keys())
            self._table.closed = dict(hosts)
            return self._waiting.pop_all() if has_opened else set()

    def hosts(self, names: Collection[str] = ()) -> list[Host]:
        """Returns all known hosts, or the ones with these names, by host name."""
        avoided = self.avoidances.list_avoided(time.monotonic())
        with self._lock:  # the sorting needs no lock
            table = self._table
            known = table.registered.by_name, table.withdrawn, table.maintained
            free = {name: host.free for name, host in table.free_resources.hosts.items()} | table.list_unannounced()
        found = list_hosts(*known, free, avoided, self._cluster_labels, self._wall_ns(), names)
        found = self.reservations.shown(found)
        if not self.host_pools.are_used:
            return found
        return [replace(host, pool=self.host_pools.place_of(host.hostname)) for host in found]

    def census(self, others: Mapping[Hostname, int]) -> list[HostNow]:
        """Returns hosts as sources and targets of moves. ``others`` maps hosts to the number of pods that stay on
        them."""
        with self._lock:
            return hosts_now(self._table, self._wall_ns(), self.avoidances.list_avoided(self._clock()), others)

    # Leases.

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
        """Leases enough READY hosts for the wanted pods, at most HOSTS_PER_LEASE_MAX, preferring hosts to which pods
        return or that are reserved for one of them. When they are too few, the job is woken by further offers, and the
        lease names the shapes that fit no host even if it were empty."""
        lease = self._acquire(job_id, wanted, now_s, for_gang, desired, counts, waiting)
        if lease.refused:
            lease = replace(lease, infeasible=self._find_infeasible([*lease.refused]))
        hopeful = lease.refused.keys() - lease.infeasible.keys()
        with self._lock:
            waits = any(shape.resources.gpu_milli for shape in hopeful)
            self._table.gpu_waits.note((job_id, for_gang), waits, now_s)
        return lease

    def _acquire(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        now_s: float,
        for_gang: bool,
        desired: Sequence[Desired],
        counts: Counts,
        waiting: Sequence[WaitingPod],
    ) -> HostLease:
        with self._lock:
            self._expire(now_s)
            # A job, and its gang, has one placement at a time: the answer of an older lease was lost.
            self._end_lease(self._lease_of_job.pop((job_id, for_gang), ""))
            self._table.holds.expire(now_s)
            avoidance = self.avoidances.of_job(job_id, now_s)
            are_gpus_kept = self._table.gpu_waits.keep_from((job_id, for_gang), now_s)
            own = None if for_gang else self.reservations.record_request(job_id, waiting, now_s)
            choice = self._chooser.choose(job_id, wanted, desired, avoidance, are_gpus_kept, counts, own)
            leased = self._chooser.lease(choice, [shape for shape, _ in wanted], avoidance)
            lease = choice.lease(leased, near(counts, leased), desired)
            if lease.short:
                rules = {each.misfit.rule for refusing in lease.refused.values() for each in refusing}
                self._waiting.add((job_id, for_gang), for_leases=choice.is_leased or HostRule.LEASED in rules)
            return self._lease(lease, (job_id, for_gang), now_s)

    def lease_for_daemon(
        self, job_id: JobId, free_resources: Mapping[Hostname, HostResources], now_s: float
    ) -> HostLease:
        """Leases the READY ones of these hosts, with the resources in ``free_resources``."""
        with self._lock:
            self._expire(now_s)
            self._end_lease(self._lease_of_job.pop((job_id, False), ""))
            hosts = self._table.free_resources.hosts
            ready = {
                name: announced
                for name, announced in free_resources.items()
                if name in hosts and not hosts[name].lease_id
            }
            capacity_of, closed, ports_on = self._table.capacity_of, self._table.closed, self.pod_labels.ports_on
            leased = [
                make_leased_host(announced, name in closed, (), capacity_of(name), ports_in_use=ports_on(name))
                for name, announced in ready.items()
            ]
            return self._lease(HostLease(str(uuid.uuid4()), tuple(leased)), (job_id, False), now_s)

    def _lease(self, lease: HostLease, holder: Holder, now_s: float) -> HostLease:
        hostnames = [host.hostname for host in lease.hosts]
        for hostname in hostnames:
            self._table.free_resources.lease(self._table.free_resources.hosts[hostname], lease.lease_id)
        if hostnames:
            self._leases[lease.lease_id] = (now_s + self._lease_s, hostnames)
            self._lease_of_job[holder] = lease.lease_id
        return lease

    def claim(
        self, lease_id: str, hostnames: Iterable[Hostname], pods: Sequence[PodAmounts] = ()
    ) -> dict[Hostname, Claim]:
        """Claims all offers of the hosts that are still under the lease and not in maintenance. The caller releases the
        lease, which keeps its other hosts until then. ``pods`` are the pods to launch, which count before the cluster
        reports them; ``host_pools`` must be notified of pods that are not launched."""
        with self._lock:
            deadline_s, leased = self._leases.pop(lease_id, (0.0, []))
            wanted = set(hostnames)
            claims = {}
            left = []
            for hostname in leased:
                host = self._table.free_resources.hosts.get(hostname)
                if host is None or host.lease_id != lease_id:
                    continue
                if hostname in wanted and host.free_resources and not self._table.is_unavailable(hostname):
                    claims[hostname] = self._table.free_resources.claim(host)
                else:
                    left.append(hostname)
            if left:
                self._leases[lease_id] = (deadline_s, left)
            if self._table.pooled.are_used:
                self._table.pooled.asked.claim(pod for pod in pods if pod[1] in claims)
            return claims

    def release(self, lease_id: str) -> set[JobId]:
        """Releases a lease; returns the jobs that may find hosts now, without its holder: these hosts were too few for
        it."""
        with self._lock:
            holders = {holder for holder, lease in self._lease_of_job.items() if lease == lease_id}
            if not self._end_lease(lease_id):
                return set()
            return self._waiting.pop_for_leases(holders)

    def _end_lease(self, lease_id: str) -> bool:
        """Ends a lease; returns whether that made hosts READY."""
        _, leased = self._leases.pop(lease_id, (0.0, []))
        for hostname in leased:
            if (host := self._table.free_resources.hosts.get(hostname)) and host.lease_id == lease_id:
                self._table.free_resources.lease(host, "")
        return bool(leased)

    def _expire(self, now_s: float) -> None:
        """Ends expired leases. No job is woken: jobs that wait for these hosts retry on their own."""
        for lease_id in [k for k, (deadline_s, _) in self._leases.items() if deadline_s <= now_s]:
            self._end_lease(lease_id)
        self._lease_of_job = {job: lease for job, lease in self._lease_of_job.items() if lease in self._leases}
