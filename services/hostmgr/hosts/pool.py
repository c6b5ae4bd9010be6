"""Hosts and their room: the only owner of what is free where.

A host is READY (may be leased), or LEASED to one placement until it launches, gives back, or is too late.
All methods are called under the lock of ``HostPool``; time is passed in.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from peloton.errors import Unavailable
from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import ComingBack, Desired, Host, HostLease
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import Label, PodShape
from peloton.model.reason import HostRule, Infeasible, RefusingHosts
from peloton.model.resources import Resources
from peloton.scheduling.fit import infeasible
from services.hostmgr.driver import Claim, Holder, RegisteredHost, Room
from services.hostmgr.hosts.aversions import Aversions
from services.hostmgr.hosts.feasibility_cache import FeasibilityCache
from services.hostmgr.hosts.host_chooser import HostChooser, hosts_named
from services.hostmgr.hosts.host_listing import list_hosts
from services.hostmgr.hosts.host_room import HostRoom, leased_host
from services.hostmgr.hosts.host_rooms import HostRooms
from services.hostmgr.hosts.launches import Launches
from services.hostmgr.hosts.pod_labels import PodLabelIndex
from services.hostmgr.hosts.registered_hosts import RegisteredHosts
from services.hostmgr.hosts.room_holds import ComingBackOf, RoomHolds
from services.hostmgr.hosts.waiting_jobs import WaitingJobs

HOSTS_UNKNOWN = "the hosts of the cluster are not known yet"


class HostPool:
    def __init__(
        self,
        lease_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._wall_ns = wall_ns
        self._lock = threading.RLock()
        self._rooms = HostRooms()
        self._hosts, self._ready = self._rooms.hosts, self._rooms.ready
        self._registered = RegisteredHosts()
        self._withdrawn: dict[Hostname, RegisteredHost] = {}  # by operators of the cluster: they count for nothing
        self._are_hosts_known = False
        self._feasibility = FeasibilityCache()
        self._leases: dict[str, tuple[float, list[Hostname]]] = {}  # lease id -> deadline, hosts
        self._lease_of_job: dict[Holder, str] = {}
        self._waiting = WaitingJobs()
        self._closed: dict[Hostname, int] = {}  # take no more revocable pods; -> cpu_milli that others hold there
        self._maintained: dict[Hostname, HostMaintenance] = {}
        self._refused: dict[Hostname, str] = {}  # host -> the other cluster that has its name
        self.pod_labels = PodLabelIndex()
        self._holds = RoomHolds()
        self._chooser = HostChooser(
            self._hosts,
            self._ready,
            self._registered,
            self._holds,
            self.pod_labels,
            self._closed,
            self._maintained,
            self._refused,
            wall_ns,
        )
        self.launches = Launches()
        self.aversions = Aversions(lambda: len(self._registered.by_name))

    # What is in maintenance.

    def set_maintained(self, hosts: Iterable[HostMaintenance]) -> None:
        """From now on no lease and no launch gets a host that is away; one that waits for its turn comes last."""
        with self._lock:
            self._maintained.clear()
            self._maintained.update((host.hostname, host) for host in hosts)

    def is_closed(self, hostname: str) -> bool:
        """Nothing is launched on the host any more, nor will be."""
        with self._lock:
            return self._chooser.is_away(Hostname(hostname)) and not self.launches.are_on(hostname)

    # What the cluster says.

    def set_hosts(self, hosts: Iterable[RegisteredHost], refused: Mapping[str, str] | None = None) -> None:
        """``refused``: of them those whose names are of hosts of other clusters, and of which."""
        refused = refused or {}
        ours = [host for host in hosts if host.hostname not in refused]  # takes a while, and leases go on
        now = [host for host in ours if not host.withdrawn]
        withdrawn = {host.hostname: host for host in ours if host.withdrawn}
        with self._lock:
            self._withdrawn = withdrawn
            self._refused.clear()
            self._refused.update((Hostname(name), cluster) for name, cluster in refused.items())
            self._registered.replace(now)
            self._are_hosts_known = True
            self._rooms.keep(self._registered.by_name.keys())

    def add_room(self, rooms: Sequence[Room]) -> set[JobId]:
        """Take new room in; returns the jobs that waited for hosts."""
        with self._lock:
            self._rooms.add(rooms, self._clock())
            return self._waiting.pop_all()

    def pods_launched(self, job_id: JobId, pods: Sequence[tuple[int, int, str, tuple[Label, ...]]]) -> None:
        """``(instance, run, host, labels)``: as a launch committed them; what was held for them is no longer."""
        self.pod_labels.add((PodId(job_id, instance, run), host, labels) for instance, run, host, labels in pods)
        with self._lock:
            self._holds.drop((job_id, instance) for instance, *_ in pods)

    def pods_ended(self, pod_ids: Sequence[PodId]) -> set[JobId]:
        """Returns the jobs that may find hosts now because pods with labels are gone."""
        if not self.pod_labels.remove(pod_ids):
            return set()
        with self._lock:
            return self._waiting.pop_all()

    def hold(self, pods: Sequence[ComingBack], now_s: float) -> None:
        """Keep room for pods before they are told to leave their hosts."""
        with self._lock:
            self._holds.add(pods, now_s)

    def review_holds(self, coming_back: ComingBackOf, now_s: float) -> set[JobId]:
        """Give up what is held for too long, or for pods that no longer come; returns the jobs that may find hosts."""
        with self._lock:
            held = self._holds.by_job()
        gone = []
        for job_id, instances in held.items():
            still = {pod.instance_id for pod in coming_back(job_id, instances)}
            gone += [(job_id, instance) for instance in instances if instance not in still]
        with self._lock:
            dropped = self._holds.drop(gone) | self._holds.expire(now_s)
            return self._waiting.pop_all() if dropped else set()

    def remove_room(self, room_ids: Iterable[str]) -> None:
        with self._lock:
            for room_id in room_ids:
                self._rooms.remove(room_id)

    def take_idle(self, until_s: float, now_s: float, kept: int, limit: int) -> list[str]:
        """Room that came until then and is idle: it is given back to the cluster. ``kept``: so much of it is not."""
        with self._lock:
            return self._rooms.take_idle(until_s, now_s, kept, limit, set(self._holds.hostnames()))

    def may_fit(self, shapes: Iterable[PodShape]) -> bool:
        """Whether one of these has room on some host as the cluster last told of it, announced or not."""
        with self._lock:
            return any(self._registered.has_room(shape) for shape in shapes)

    def forget_room(self) -> None:
        """The session is over, and with it all room and every lease; who waits is told with the next room."""
        with self._lock:
            self._rooms.clear()
            self._leases.clear()
            self._lease_of_job.clear()

    # What the cluster holds.

    def host(self, hostname: str) -> RegisteredHost | None:
        with self._lock:
            return self._registered.by_name.get(Hostname(hostname)) or self._withdrawn.get(Hostname(hostname))

    def host_count(self) -> int:
        """Hosts of the cluster, also those that are down for maintenance."""
        with self._lock:
            registered = self._registered.by_name
            return len(registered) + sum(name not in registered for name in self._maintained)

    def capacity(self) -> tuple[Resources, Resources, int]:
        """Sum of totals and of revocable totals over registered hosts that take pods, and how many there are. Raises
        Unavailable before they are known: none would look like a cluster that is gone."""
        with self._lock:
            if not self._are_hosts_known:
                raise Unavailable(HOSTS_UNKNOWN)
            away = [name for name in self._maintained if self._chooser.is_away(name)]
            return self._registered.capacity(away, self._closed)

    def registered_capacity(self) -> Resources:
        """Of all hosts, also those that are draining, or down for maintenance and gone from the cluster."""
        with self._lock:
            registered = self._registered.by_name
            down = (host.capacity for name, host in self._maintained.items() if name not in registered)
            return sum(down, self._registered.total)

    def judge(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Pods that no registered host could take even if it were empty, and why. Raises Unavailable."""
        with self._lock:
            if not self._are_hosts_known:
                raise Unavailable(HOSTS_UNKNOWN)
        return self._judged_now(shapes)

    def _judged_now(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        """Looks at kinds of hosts without the lock: others may lease meanwhile."""
        with self._lock:
            version, kinds_of = self._registered.kinds_version, self._registered.kinds
            unknown = self._feasibility.unknown(shapes, version)
            kinds = {names: kinds_of(names) for names in {tuple(hosts_named(shape.constraint)) for shape in unknown}}
        found = {shape: infeasible(shape, kinds[tuple(hosts_named(shape.constraint))]) for shape in unknown}
        with self._lock:
            return self._feasibility.learn(shapes, found, version)

    def free(self) -> Resources:
        """What is free on hosts that take pods and are leased to nobody: announced, or given back to the cluster."""
        with self._lock:
            away = {name for name in self._maintained if self._chooser.is_away(name)} | self._refused.keys()
            return sum(self._unannounced(away).values(), self._ready.free_without(away))

    def _unannounced(self, apart: Collection[Hostname] = ()) -> dict[Hostname, Resources]:
        """Of hosts whose room was not announced since it was given back, or ever: what the cluster says is free."""
        registered = self._registered.by_name
        names = (self._rooms.returned | (registered.keys() - self._hosts.keys())) - set(apart)
        return {name: registered[name].free for name in names if name in registered}

    @property
    def room_count(self) -> int:
        return self._rooms.room_count

    def slack(self) -> tuple[int, int]:
        """Revocable cpu of all registered hosts, and what is held of it, in thousandths."""
        with self._lock:
            held = sum(host.revocable_held.cpu_milli for host in self._registered.holders.values())
            return self._registered.revocable_cpu_milli, held

    def revocable_holders(self) -> list[RegisteredHost]:
        """Hosts on which revocable pods run, by name."""
        with self._lock:
            holders = self._registered.holders
            return [holders[name] for name in sorted(holders)]

    def close_to_revocable(self, hosts: Mapping[Hostname, int]) -> set[JobId]:
        """These hosts, and no others, take no revocable pods beside those that hold so much cpu there; returns the jobs
        that may find hosts now."""
        with self._lock:
            has_opened = bool(self._closed.keys() - hosts.keys())
            self._closed.clear()
            self._closed.update(hosts)
            return self._waiting.pop_all() if has_opened else set()

    def hosts(self) -> list[Host]:
        """All that are known, whether they take pods or not; by host name."""
        avoided = self.aversions.avoided_by_all(time.monotonic())
        with self._lock:  # only for what may change meanwhile
            registered, withdrawn, maintained = self._registered.by_name, self._withdrawn, dict(self._maintained)
            free = {name: host.free for name, host in self._hosts.items()} | self._unannounced()
        return list_hosts(registered, withdrawn, maintained, free, avoided, self._wall_ns())

    # Leases.

    def acquire(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        now_s: float,
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
    ) -> HostLease:
        """Lease enough READY hosts for the wanted pods, at most HOSTS_PER_LEASE_MAX, first those to which pods come
        back. When that is not all of them, the job is told once more hosts come in, and the lease says which of them
        no host could take even if it were empty."""
        lease = self._acquire(job_id, wanted, now_s, for_gang, desired)
        return replace(lease, infeasible=self._judged_now([*lease.refused])) if lease.refused else lease

    def _acquire(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        now_s: float,
        for_gang: bool,
        desired: Sequence[Desired],
    ) -> HostLease:
        with self._lock:
            self._expire(now_s)
            # A job, and its gang, has one placement at a time: an older lease is one whose answer got lost.
            self._free(self._lease_of_job.pop((job_id, for_gang), ""))
            picked: dict[Hostname, HostRoom] = {}
            self._holds.expire(now_s)
            aversion = self.aversions.of_job(job_id, now_s)
            mine = frozenset((job_id, pod.instance_id) for pod in desired)
            settled, awaited, is_leased = self._chooser.pick_desired(job_id, desired, mine, picked)
            refused: dict[PodShape, tuple[RefusingHosts, ...]] = {}
            for shape, count in wanted:
                is_enough, refusing = self._chooser.pick(shape, count - settled[shape], mine, picked, aversion)
                if not is_enough:
                    refused[shape] = refusing
            named = frozenset().union(*(pod_labels_named(shape.constraint) for shape, _ in wanted))
            capacity_of, pods_on = self._chooser.capacity_of, self.pod_labels.on_host
            leased = tuple(
                leased_host(host, name in self._closed, pods_on(name, named), capacity_of(name), aversion.is_last(name))
                for name, host in picked.items()
            )
            waiting = {instance for instance, _ in awaited}
            short = frozenset(refused) | {pod.shape for pod in desired if pod.instance_id in waiting}
            lease = HostLease(str(uuid.uuid4()), leased, refused, awaited, short=short)
            for hostname in picked:
                self._rooms.lease(self._hosts[hostname], lease.lease_id)
            if picked:
                self._leases[lease.lease_id] = (now_s + self._lease_s, list(picked))
                self._lease_of_job[job_id, for_gang] = lease.lease_id
            if short:
                rules = {each.misfit.rule for refusing in refused.values() for each in refusing}
                self._waiting.add((job_id, for_gang), for_leases=is_leased or HostRule.LEASED in rules)
            return lease

    def claim(self, lease_id: str, hostnames: Iterable[Hostname]) -> dict[Hostname, Claim]:
        """Take the room of the hosts that are still under this lease, without those that have gone into
        maintenance. The lease has to be released: its other hosts are in it until then."""
        with self._lock:
            deadline_s, leased = self._leases.pop(lease_id, (0.0, []))
            wanted = set(hostnames)
            claims = {}
            left = []
            for hostname in leased:
                host = self._hosts.get(hostname)
                if host is None or host.lease_id != lease_id:
                    continue
                if hostname in wanted and host.rooms and not self._chooser.is_away(hostname):
                    claims[hostname] = self._rooms.claim(host)
                else:
                    left.append(hostname)
            if left:
                self._leases[lease_id] = (deadline_s, left)
            return claims

    def release(self, lease_id: str) -> set[JobId]:
        """Give a lease back; returns the jobs that may find hosts now: not the one that found its hosts too few."""
        with self._lock:
            holders = {holder for holder, lease in self._lease_of_job.items() if lease == lease_id}
            if not self._free(lease_id):
                return set()
            return self._waiting.pop_for_leases(holders)

    def _free(self, lease_id: str) -> bool:
        """End a lease; returns whether that made hosts READY."""
        _, leased = self._leases.pop(lease_id, (0.0, []))
        for hostname in leased:
            if (host := self._hosts.get(hostname)) and host.lease_id == lease_id:
                self._rooms.lease(host, "")
        return bool(leased)

    def _expire(self, now_s: float) -> None:
        """Jobs that wait for the hosts of a dead holder find them when they look again by themselves."""
        for lease_id in [k for k, (deadline_s, _) in self._leases.items() if deadline_s <= now_s]:
            self._free(lease_id)
        self._lease_of_job = {job: lease for job, lease in self._lease_of_job.items() if lease in self._leases}
