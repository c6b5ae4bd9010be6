"""The state of the hosts: free resources, leases, holds, reservations, daemons, host pools, avoidances. It does no I/O
and has no lock and no clock: ``HostCache`` owns it, and applies the events to it one at a time.

A method marked ``event`` applies one event, and returns what the owner needs to proceed: a lease, claims, or the jobs
to wake. Further effects are appended to ``table.effects``. Times come in with the event: the owner sets ``table.now_s``
and ``table.now_ns`` before it. The other methods are queries. A host is READY (may be leased), or LEASED to one
placement until that launches, releases the lease, or exceeds its deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from peloton.errors import Unavailable
from peloton.hosts.announced import Claim, FreeResources, Holder, RegisteredHost
from peloton.hosts.asked_amounts import PodAmounts
from peloton.hosts.avoidances import HostAvoidances
from peloton.hosts.capacity_finder import CapacityFinder
from peloton.hosts.daemon_hosts import DaemonHosts, lacks_resources
from peloton.hosts.domain_counts import Counts, DomainCounts, domains_near
from peloton.hosts.effects import Effect, HostAvoided, JobsToWake, ReservationEnded, event
from peloton.hosts.feasibility_cache import FeasibilityCache
from peloton.hosts.host_census import hosts_now
from peloton.hosts.host_chooser import Choice, HostChooser, JobTerms
from peloton.hosts.host_load_cache import HostLoadCache
from peloton.hosts.host_pool_cache import HostPoolCache
from peloton.hosts.host_resources_table import HostResourcesTable
from peloton.hosts.host_sums import HostSums
from peloton.hosts.host_table import HostTable
from peloton.hosts.pooled_hosts import PooledHosts
from peloton.hosts.registered_hosts import RegisteredHosts
from peloton.hosts.reservation_cache import ReservationCache
from peloton.hosts.resource_holds import PodKey
from peloton.hosts.spread_turns import SpreadTurns
from peloton.hosts.validation import find_faults
from peloton.hosts.waiting_jobs import WaitingJobs
from peloton.lifecycle.constraints import hosts_named
from peloton.lifecycle.volumes import HostSight
from peloton.model.daemon import WaitingDaemonPod
from peloton.model.host import ComingBack, Desired, HostLease, ReadyGang
from peloton.model.host_pool import HostPools
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import HostRule
from peloton.model.pod import Label, PodShape
from peloton.model.reason import Infeasible
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.scheduling.fit import HostKind
from peloton.scheduling.placement import PackedPods, Put
from peloton.scheduling.relocation import HostNow

HostsNamed = tuple[Hostname, ...]
HostsListed = tuple[
    Mapping[Hostname, RegisteredHost], Mapping[Hostname, RegisteredHost], Mapping[Hostname, HostMaintenance]
]
PlacedPods = tuple[HostLease, PackedPods]
"""Pods placed under a lease, which names no hosts: the placements do."""
NONE: frozenset[PodShape] = frozenset()
HOSTS_UNKNOWN = "the hosts of the cluster are not known yet"


class HostState:
    def __init__(self, lease_s: float, name: str = "", cluster_labels: Mapping[str, str] | None = None) -> None:
        """``name`` begins the ids of leases, and differs between leaders. ``cluster_labels`` apply to every host."""
        pooled, registered = PooledHosts(), RegisteredHosts()
        free_resources = HostResourcesTable(cluster_labels, pooled, registered.capacity_of)
        self.table = HostTable(free_resources, pooled, registered)
        self.chooser = HostChooser(self.table)
        self.are_hosts_known = False
        self.leases: dict[str, tuple[float, list[Hostname]]] = {}  # lease id -> deadline, hosts
        self.lease_of_job: dict[Holder, str] = {}
        self.waiting = WaitingJobs()
        self.launches = Counter[Hostname]()  # launches under way on each host, from the claim to the commit
        self.daemons = DaemonHosts(self.table)
        self.domains = DomainCounts(self.table)
        self.loads = HostLoadCache(self.table)
        self.sums = HostSums(self.table)
        self.reservations = ReservationCache(self.table, self.chooser, self.waiting)
        self.host_pools = HostPoolCache(self.table, self.waiting, self.daemons)
        self.avoidances = HostAvoidances(lambda: len(registered.by_name), self.table.effects)
        self.spread_turns = SpreadTurns(lease_s)
        self.finder = CapacityFinder(self.table, self.chooser, self.daemons, self.avoidances)
        self._feasibility = FeasibilityCache()
        self._lease_s, self._name, self._numbers = lease_s, name, count(1)

    def take_effects(self) -> list[Effect]:
        """Return the effects of the last event."""
        effects = self.table.effects
        if not effects:
            return []
        found = [*effects]
        effects.clear()
        return found

    def validate(self) -> None:
        """Raise AssertionError with every violated invariant. Tests and simulations call it after each event."""
        faults = [*find_faults(self.table, self.leases, self.lease_of_job, self.daemons)]
        assert not faults, "\n".join(faults)

    # Maintenance.

    @event()
    def set_maintained(self, hosts: Iterable[HostMaintenance]) -> None:
        """Excludes hosts in maintenance from leases and launches; hosts that wait for their turn are leased last."""
        self.table.maintained = {host.hostname: host for host in hosts}

    def is_closed(self, hostname: str) -> bool:
        """Return whether no launch is under way on the host and none will start."""
        return self.table.is_unavailable(Hostname(hostname)) and hostname not in self.launches

    # Events of the cluster.

    @event()
    def close_to_revocable(self, hosts: Mapping[Hostname, int]) -> JobsToWake:
        """Set the hosts that take no more revocable pods, with the cpu of the revocable pods that stay. Returns the
        jobs that may find hosts now."""
        has_opened = bool(self.table.closed.keys() - hosts.keys())
        self.table.closed = dict(hosts)
        return self.waiting.pop_all() if has_opened else set()

    @event(HostAvoided)
    def set_hosts(self, hosts: Sequence[RegisteredHost], name_taken: dict[Hostname, str]) -> JobsToWake:
        """Set all registered hosts. ``name_taken`` maps names that belong to another cluster to that cluster. Returns
        the jobs that may find hosts now."""
        self.avoidances.saw({host.hostname for host in hosts}, self.table.maintained, self.table.now_s)
        self.table.name_taken, self.are_hosts_known = name_taken, True
        seen, changed = self.table.pooled.update(hosts)
        self.table.set_hosts(seen)
        self.table.free_resources.claimed.heard(self.launches)
        self.table.free_resources.keep(self.table.registered.by_name.keys())
        self.daemons.hosts_changed()
        return self.waiting.pop_all() if self.table.free_resources.recount(changed) else set()

    @event()
    def add_resources(self, free_resources: Sequence[FreeResources]) -> JobsToWake:
        """Add offers; return the jobs that waited for hosts."""
        self.table.free_resources.add(free_resources, self.table.now_s)
        self.daemons.keep_resources(announced.hostname for announced in free_resources)
        return self.waiting.pop_all()

    @event()
    def remove_resources(self, resources_ids: Iterable[str]) -> None:
        """Remove offers that the cluster has withdrawn."""
        for resources_id in resources_ids:
            self.table.free_resources.remove(resources_id)

    @event()
    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int) -> list[str]:
        """Remove idle offers received up to ``until_s``, except ``kept`` of them; they are returned to the cluster."""
        return self.table.free_resources.take_idle(until_s, now_s, kept, limit, self.table.find_kept_hosts())

    @event()
    def forget_resources(self) -> None:
        """Remove all offers and leases when the session ends; the next offer wakes waiting jobs."""
        self.table.free_resources.clear()
        self.leases.clear()
        self.lease_of_job.clear()

    # Events of pods.

    @event()
    def launch_began(self, hostnames: Iterable[str]) -> None:
        """Record launches, whose hosts are not closed before their commit."""
        self.launches.update(map(Hostname, hostnames))

    @event()
    def launch_ended(self, hostnames: Iterable[str]) -> None:
        """Record the end of launches, whether their pods were launched or not."""
        self.launches.subtract(map(Hostname, hostnames))
        self.launches = +self.launches

    @event(ReservationEnded)
    def pods_launched(self, job_id: JobId, pods: Sequence[tuple[int, int, str, tuple[Label, ...]]]) -> None:
        """Record pods ``(instance, run, host, labels)`` that a launch committed, and end their resource holds."""
        self.table.pod_labels.add((PodId(job_id, instance, run), host, labels) for instance, run, host, labels in pods)
        self.daemons.record_launched((PodId(job_id, instance, run), Hostname(host)) for instance, run, host, _ in pods)
        self.table.pooled.asked.confirm((job_id, instance) for instance, *_ in pods)
        self.table.holds.drop((job_id, instance) for instance, *_ in pods)
        self.reservations.record_launched(job_id, {instance: host for instance, _, host, _ in pods})

    @event()
    def pods_ended(self, pod_ids: Sequence[PodId]) -> JobsToWake:
        """Record ended pods. Returns the jobs that may find hosts now that pods with labels have ended."""
        self.daemons.record_ended(pod_ids)
        has_labelled = self.table.pod_labels.remove(pod_ids)
        if not has_labelled and not self.table.pooled.are_used:
            return set()
        has_capacity = self.table.free_resources.recount(self.table.pooled.asked.remove(pod_ids))
        return self.waiting.pop_all() if has_labelled or has_capacity else set()

    @event()
    def hold(self, pods: Sequence[ComingBack], now_s: float) -> None:
        """Hold resources for pods that will return to their hosts, before they are asked to leave."""
        self.table.holds.add(pods, now_s)

    @event()
    def end_holds(self, gone: Iterable[PodKey], now_s: float) -> JobsToWake:
        """End holds of pods that no longer return, and holds that have expired; return the jobs that may find
        hosts."""
        dropped = self.table.holds.drop(gone) | self.table.holds.expire(now_s)
        return self.waiting.pop_all() if dropped else set()

    def holds_by_job(self) -> dict[JobId, list[int]]:
        return self.table.holds.by_job()

    # Leases.

    @event(ReservationEnded)
    def acquire(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        now_s: float,
        for_gang: bool,
        desired: Sequence[Desired],
        counts: Counts,
        waiting: Sequence[WaitingPod],
    ) -> HostLease:
        """Lease enough READY hosts for the wanted pods, at most HOSTS_PER_LEASE_MAX, preferring hosts to which pods
        return or that are reserved for one of them. When they are too few, the job is woken by further offers, and
        ``note_infeasible`` follows."""
        holder = job_id, for_gang
        terms = self._begin_placement(holder, now_s, counts, waiting)
        choice = self.chooser.choose(job_id, wanted, desired, terms)
        leased = self.chooser.lease(choice, [shape for shape, _ in wanted], terms.avoidance)
        lease = choice.lease(self._next_lease_id(), leased, domains_near(counts, leased))
        return self._finish_placement(choice, lease, [host.hostname for host in leased], holder, now_s)

    @event(ReservationEnded)
    def place(
        self,
        job_id: JobId,
        gangs: Sequence[ReadyGang],
        now_s: float,
        for_gang: bool,
        counts: Counts,
        waiting: Sequence[WaitingPod],
    ) -> PlacedPods:
        """Place pods on READY hosts, as ``acquire`` chooses them, and lease these until the launch."""
        holder = job_id, for_gang
        terms = self._begin_placement(holder, now_s, counts, waiting)
        choice, packed = self.chooser.place(job_id, gangs, terms)
        lease = choice.lease(self._next_lease_id())
        hostnames = [placement.hostname for placement in packed.placements]
        return self._finish_placement(choice, lease, hostnames, holder, now_s), packed

    @event()
    def place_daemon(self, job_id: JobId, pods: Sequence[WaitingDaemonPod], now_s: float) -> PlacedPods:
        """Place pods of a daemon on their hosts, in the free resources and the ones reserved for them, and lease these
        hosts until the launch."""
        self._begin_lease((job_id, False), now_s)
        refused = self.daemons.refuse_pods(job_id, pods)
        puts: dict[Hostname, list[Put]] = {}
        for pod in pods:
            if pod.hostname not in refused:
                puts.setdefault(pod.hostname, []).append(((pod.instance_id, pod.run_id), pod.shape, ()))
        placements = tuple(self.chooser.place_on(hostname, own) for hostname, own in puts.items())
        short = frozenset(pod.shape for pod in pods if lacks_resources(refused.get(pod.hostname))) if refused else NONE
        lease = HostLease(self._next_lease_id(), (), short=short)
        return self._lease(lease, [*puts], (job_id, False), now_s), PackedPods(placements, refused=refused)

    def _begin_lease(self, holder: Holder, now_s: float) -> None:
        """End expired leases, and an older one of the holder: a job, and its gang, has one placement at a time, so the
        answer of the older lease was lost."""
        self._expire(now_s)
        self._end_lease(self.lease_of_job.pop(holder, ""))

    def _begin_placement(self, holder: Holder, now_s: float, counts: Counts, waiting: Sequence[WaitingPod]) -> JobTerms:
        """Return the terms of a placement that begins now."""
        self._begin_lease(holder, now_s)
        self.table.holds.expire(now_s)
        job_id, is_gang = holder
        avoidance = self.avoidances.of_job(job_id, now_s)
        own = None if is_gang else self.reservations.record_request(job_id, waiting, now_s)
        are_gpus_kept = self.table.gpu_waits.keep_from(holder, now_s)
        return JobTerms(avoidance=avoidance, are_gpus_kept=are_gpus_kept, counts=counts, own=own)

    def _finish_placement(
        self, choice: Choice, lease: HostLease, hostnames: list[Hostname], holder: Holder, now_s: float
    ) -> HostLease:
        if lease.short:
            rules = {each.misfit.rule for refusing in lease.refused.values() for each in refusing}
            self.waiting.add(holder, for_leases=choice.is_leased or HostRule.LEASED in rules)
        if not lease.refused:
            self.table.gpu_waits.note(holder, False, now_s)
        return self._lease(lease, hostnames, holder, now_s)

    @event()
    def note_infeasible(
        self, holder: Holder, refused: Collection[PodShape], infeasible: Collection[PodShape], now_s: float
    ) -> None:
        """Record whether a placement that found too few hosts waits for gpus: ``infeasible`` pods wait for none."""
        waits = any(shape.resources.gpu_milli for shape in refused if shape not in infeasible)
        self.table.gpu_waits.note(holder, waits, now_s)

    @event()
    def claim(
        self, lease_id: str, hostnames: Iterable[Hostname], pods: Sequence[PodAmounts] = ()
    ) -> dict[Hostname, Claim]:
        """Claim all offers of the hosts that are still under the lease and not in maintenance. The caller releases the
        lease, which keeps its other hosts until then. ``pods`` are the pods to launch, which count before the cluster
        reports them; ``host_pools`` must be notified of pods that are not launched."""
        deadline_s, leased = self.leases.pop(lease_id, (0.0, []))
        wanted = set(hostnames)
        claims = {}
        left = []
        for hostname in leased:
            host = self.table.free_resources.hosts.get(hostname)
            if host is None or host.lease_id != lease_id:
                continue
            if hostname in wanted and host.free_resources and not self.table.is_unavailable(hostname):
                claims[hostname] = self.table.free_resources.claim(host)
            else:
                left.append(hostname)
        if left:
            self.leases[lease_id] = (deadline_s, left)
        if self.table.pooled.are_used:
            self.table.pooled.asked.claim(pod for pod in pods if pod[1] in claims)
        return claims

    @event()
    def release(self, lease_id: str) -> JobsToWake:
        """Release a lease; return the jobs that may find hosts now, without its holder: these hosts were too few for
        it."""
        self.spread_turns.end(lease_id)
        holders = {holder for holder, lease in self.lease_of_job.items() if lease == lease_id}
        if not self._end_lease(lease_id):
            return set()
        return self.waiting.pop_for_leases(holders)

    def _next_lease_id(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    def _lease(self, lease: HostLease, hostnames: list[Hostname], holder: Holder, now_s: float) -> HostLease:
        for hostname in hostnames:
            self.table.free_resources.lease(self.table.free_resources.hosts[hostname], lease.lease_id)
        if hostnames:
            self.leases[lease.lease_id] = (now_s + self._lease_s, hostnames)
            self.lease_of_job[holder] = lease.lease_id
        return lease

    def _end_lease(self, lease_id: str) -> bool:
        """End a lease; return whether that made hosts READY."""
        _, leased = self.leases.pop(lease_id, (0.0, []))
        for hostname in leased:
            if (host := self.table.free_resources.hosts.get(hostname)) and host.lease_id == lease_id:
                self.table.free_resources.lease(host, "")
        return bool(leased)

    def _expire(self, now_s: float) -> None:
        """End expired leases. No job is woken: jobs that wait for these hosts retry on their own."""
        for lease_id in [k for k, (deadline_s, _) in self.leases.items() if deadline_s <= now_s]:
            self._end_lease(lease_id)
        self.lease_of_job = {job: lease for job, lease in self.lease_of_job.items() if lease in self.leases}

    # Queries.

    def share_hosts(
        self,
    ) -> tuple[
        Mapping[Hostname, RegisteredHost],
        Mapping[Hostname, RegisteredHost],
        Mapping[Hostname, HostMaintenance],
        HostPools | None,
        bool,
    ]:
        """Return the registered, withdrawn and maintained hosts, the host pools, and whether hosts are known. The
        objects are replaced by later events, never changed."""
        table = self.table
        return table.registered.by_name, table.withdrawn, table.maintained, table.pooled.pools, self.are_hosts_known

    def list_hosts(
        self,
    ) -> tuple[HostsListed, dict[Hostname, Resources], dict[Hostname, str], HostPools | None]:
        """Return all known hosts (registered, withdrawn, maintained), their free resources, reservations as text, and
        the host pools."""
        table = self.table
        free = {name: host.free for name, host in table.free_resources.hosts.items()} | table.list_unannounced()
        known = table.registered.by_name, table.withdrawn, table.maintained
        return known, free, self.reservations.texts(), table.pooled.pools

    def sights(self, hostnames: Collection[str]) -> dict[str, HostSight]:
        """Return the cluster's listings of these hosts, for the volumes on them."""
        return {hostname: self.table.sight(Hostname(hostname)) for hostname in hostnames}

    def may_fit(self, shapes: Iterable[PodShape]) -> bool:
        """Return whether a host has free resources for one of these, by the cluster's last report, offered or not."""
        return any(self.table.registered.has_capacity(shape) for shape in shapes)

    def host(self, hostname: str) -> RegisteredHost | None:
        name = Hostname(hostname)
        return self.table.registered.by_name.get(name) or self.table.withdrawn.get(name)

    def host_count(self) -> int:
        """Return the number of hosts of the cluster, including hosts that are down for maintenance."""
        registered = self.table.registered.by_name
        return len(registered) + sum(name not in registered for name in self.table.maintained)

    def capacity(self) -> tuple[Resources, Resources, int]:
        """Return the capacity, without the requests of daemons, and the revocable capacity of the registered hosts
        that take pods, and their number. Raises Unavailable before hosts are known: 0 would look like an empty
        cluster."""
        if not self.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        unavailable = self.table.unavailable()
        total, revocable, count = self.table.registered.capacity(unavailable, self.table.closed)
        return total - self.daemons.overhead(unavailable), revocable, count

    def sum_registered(self) -> Resources:
        """Return the capacity of all hosts, including hosts that are draining, or down and unregistered."""
        registered = self.table.registered.by_name
        down = (host.capacity for name, host in self.table.maintained.items() if name not in registered)
        return sum(down, self.table.registered.total)

    def free(self) -> Resources:
        """Return the free resources of hosts that take pods and are not leased, offered or not."""
        unavailable = self.table.unavailable() | self.table.name_taken.keys()
        unannounced = (free for name, free in self.table.list_unannounced().items() if name not in unavailable)
        return sum(unannounced, self.table.free_resources.fleet.free_sum(unavailable))

    def revocable_holders(self, with_others: bool = False) -> list[RegisteredHost]:
        """Return the hosts with revocable pods, or all hosts, by name."""
        found = dict(self.table.registered.by_name if with_others else self.table.registered.holders)
        return [found[name] for name in sorted(found)]

    def census(self, others: Mapping[Hostname, int]) -> list[HostNow]:
        """Return hosts as sources and targets of moves. ``others`` maps hosts to the number of pods that stay on
        them."""
        return hosts_now(self.table, self.avoidances.list_avoided(self.table.now_s), others)

    def list_unevaluated(
        self, shapes: Sequence[PodShape]
    ) -> tuple[list[PodShape], dict[HostsNamed, list[HostKind]], int]:
        """Return the shapes without a result of ``infeasible``, the kinds of hosts to evaluate them on, and the
        version of the hosts. ``learn`` follows."""
        version = self.table.registered.kinds_version + self.daemons.version
        unknown, kinds_of = self._feasibility.unknown(shapes, version), self.table.registered.kinds
        named = {tuple(hosts_named(shape.constraint)) for shape in unknown}
        return unknown, {names: self.daemons.less_overhead(kinds_of(names)) for names in named}, version

    @event()
    def learn(
        self, shapes: Sequence[PodShape], found: Mapping[PodShape, Infeasible | None], version: int
    ) -> dict[PodShape, Infeasible]:
        """Add results; return the shapes that no host could take."""
        return self._feasibility.learn(shapes, found, version)

    def kinds_without(self, shape: PodShape, hostname: Hostname | None) -> list[HostKind]:
        """Return the kinds of hosts in service, without one host, on which the pod is evaluated."""
        left_out = self.table.unavailable() | ({hostname} if hostname else set())
        return self.daemons.less_overhead(self.table.registered.kinds(hosts_named(shape.constraint), left_out))
