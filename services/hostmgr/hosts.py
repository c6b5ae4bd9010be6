"""Hosts and their offers: the only owner of what is free where.

A host is READY (may be leased), or LEASED to one placement until it launches, gives back, or is too late.
All methods are called under the lock of ``HostPool``; time is passed in.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import ComingBack, Desired, Host, HostLease
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.resources import Resources, free_share
from services.hostmgr.holds import ComingBackOf, Holds, PodKey
from services.hostmgr.launches import Launches
from services.hostmgr.mesos.resources import Json
from services.hostmgr.offers import (
    Agent,
    Claim,
    HostOffers,
    gone_host,
    labels_of,
    leased_host,
    registered_host,
    room_for,
    unfit,
)
from services.hostmgr.pod_labels import PodLabelIndex

HOSTS_PER_LEASE_MAX = 1_000
LEASED = "leased to another placement"
"""Why a host was not taken: the one reason that a lease given back changes."""
WAITING_JOBS_MAX = 10_000
INVERSE_OFFERS_MAX = 1_000
"""Kept until they are answered; Mesos repeats those that are not."""
UNAVAILABILITY_NOTICE_NS = 3 * 3_600 * 10**9
"""A host that Mesos will take away within this time gets no new pods."""


class HostPool:
    def __init__(self, lease_s: float, wall_ns: Callable[[], int] = time.time_ns, cluster: str = "") -> None:
        self._lease_s = lease_s
        self._cluster = cluster
        self._wall_ns = wall_ns
        self._lock = threading.RLock()
        self._hosts: dict[Hostname, HostOffers] = {}
        self._host_of_offer: dict[str, Hostname] = {}
        self._agents: dict[Hostname, Agent] = {}
        self._refused: dict[str, str] = {}  # host -> the other cluster that has its name
        self._leases: dict[str, tuple[float, list[Hostname]]] = {}  # lease id -> deadline, hosts
        # A job's gang is placed apart from its other pods: placements are known by the job and whether it is its gang.
        self._lease_of_job: dict[tuple[JobId, bool], str] = {}
        self._waiting: set[tuple[JobId, bool]] = set()
        self._waiting_for_leases: set[tuple[JobId, bool]] = set()  # those that found hosts leased
        self._closed: dict[Hostname, int] = {}  # take no more revocable pods; -> cpu_milli that others hold there
        self._maintained: dict[Hostname, HostMaintenance] = {}
        self.inverse_offers: deque[Json] = deque(maxlen=INVERSE_OFFERS_MAX)
        self.pod_labels = PodLabelIndex()
        self._holds = Holds()
        self.launches = Launches()

    # What is in maintenance.

    def set_maintained(self, hosts: Iterable[HostMaintenance]) -> None:
        """From now on no lease and no launch gets a host that is away; one that waits for its turn comes last."""
        with self._lock:
            self._maintained = {host.hostname: host for host in hosts}

    def is_closed(self, hostname: str) -> bool:
        """Nothing is launched on the host any more, nor will be."""
        with self._lock:
            return self._is_away(Hostname(hostname)) and not self.launches.are_on(hostname)

    def _is_away(self, hostname: Hostname) -> bool:
        return hostname in self._maintained and self._maintained[hostname].is_away

    # What Mesos says.

    def set_agents(self, agents: Iterable[Agent], refused: Mapping[str, str] | None = None) -> None:
        """``refused``: of them those whose names are of hosts of other clusters, and of which."""
        with self._lock:
            self._refused = dict(refused or {})
            self._agents = {a.hostname: a for a in agents if a.hostname not in self._refused}
            gone = [n for n, h in self._hosts.items() if not h.offers and not h.lease_id and n not in self._agents]
            for hostname in gone:
                del self._hosts[hostname]

    def add_offers(self, offers: Sequence[Json]) -> set[JobId]:
        """Take new offers in; returns the jobs that waited for hosts."""
        with self._lock:
            for offer in offers:
                hostname = Hostname(offer["hostname"])
                host = self._hosts.get(hostname)
                agent_id = offer["agent_id"]["value"]
                if host is None or host.agent_id != agent_id:
                    for stale_id in host.offers if host else ():
                        self._host_of_offer.pop(stale_id, None)
                    labels = labels_of(hostname, offer.get("attributes", ()), self._cluster)
                    host = HostOffers(hostname, agent_id, labels)
                    self._hosts[hostname] = host
                host.offers[offer["id"]["value"]] = offer
                self._host_of_offer[offer["id"]["value"]] = hostname
                host.recount()
            return self._all_who_wait()

    def _all_who_wait(self) -> set[JobId]:
        waiting, self._waiting = self._waiting, set()
        self._waiting_for_leases.clear()
        return {job for job, _ in waiting}

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
            return self._all_who_wait()

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
            return self._all_who_wait() if dropped else set()

    def remove_offer(self, offer_id: str) -> None:
        with self._lock:
            hostname = self._host_of_offer.pop(offer_id, None)
            if hostname is not None and (host := self._hosts.get(hostname)):
                host.offers.pop(offer_id, None)
                host.recount()

    def forget_offers(self) -> None:
        """The subscription is gone, and every offer and lease with it; who waits is told with the next offers."""
        with self._lock:
            self._hosts.clear()
            self._host_of_offer.clear()
            self._leases.clear()
            self._lease_of_job.clear()

    # What the cluster holds.

    def agent(self, hostname: str) -> Agent | None:
        with self._lock:
            return self._agents.get(Hostname(hostname))

    def agent_ids(self, hostnames: Collection[str]) -> set[str]:
        """Of those that are registered."""
        with self._lock:
            return {agent.agent_id for name, agent in self._agents.items() if name in hostnames}

    def host_count(self) -> int:
        """Hosts of the cluster, also those that are down for maintenance."""
        with self._lock:
            return len(self._agents.keys() | self._maintained.keys())

    def capacity(self) -> tuple[Resources, Resources, int]:
        """Sum of totals and of revocable totals over registered agents that take pods, and how many there are."""
        with self._lock:
            agents = [a for a in self._agents.values() if not self._is_away(a.hostname)]
            total = sum((a.capacity for a in agents), Resources())
            slack = sum(self._slack_cpu(a) for a in agents)
            return total, Resources(cpu_milli=slack), len(agents)

    def free(self) -> Resources:
        """What is on offer on hosts that take pods and are leased to nobody."""
        with self._lock:
            free = [h.free for h in self._hosts.values() if not h.lease_id and not self._is_away(h.hostname)]
            return sum(free, Resources())

    def _slack_cpu(self, agent: Agent) -> int:
        """Revocable cpu for which pods may be admitted: what they hold where no more may come."""
        return min(agent.revocable.cpu_milli, self._closed.get(agent.hostname, agent.revocable.cpu_milli))

    def agents(self) -> list[Agent]:
        """By host name."""
        with self._lock:
            return [self._agents[hostname] for hostname in sorted(self._agents)]

    def close_to_revocable(self, hosts: Mapping[Hostname, int]) -> set[JobId]:
        """These hosts, and no others, take no revocable pods beside those that hold so much cpu there; returns the jobs
        that may find hosts now."""
        with self._lock:
            before, self._closed = self._closed, dict(hosts)
            if not before.keys() - self._closed.keys():
                return set()
            return self._all_who_wait()

    def hosts(self) -> list[Host]:
        """Registered agents, and those in maintenance that are not."""
        with self._lock:
            gone = [gone_host(host) for name, host in self._maintained.items() if name not in self._agents]
            return sorted([*map(self._host, self._agents.values()), *gone], key=lambda host: host.hostname)

    def _host(self, agent: Agent) -> Host:
        free = self._hosts[agent.hostname].free if agent.hostname in self._hosts else Resources()
        return registered_host(agent, self._maintained.get(agent.hostname), free)

    def _capacity_of(self, hostname: Hostname) -> Resources:
        return self._agents[hostname].capacity if hostname in self._agents else Resources()

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
        back. When that is not all of them, the job is told once more hosts come in."""
        with self._lock:
            self._expire(now_s)
            # A job, and its gang, has one placement at a time: an older lease is one whose answer got lost.
            self._free(self._lease_of_job.pop((job_id, for_gang), ""))
            picked: dict[Hostname, HostOffers] = {}
            rejected: Counter[str] = Counter()
            self._holds.expire(now_s)
            mine = frozenset((job_id, pod.instance_id) for pod in desired)
            settled, awaited = self._pick_desired(job_id, desired, mine, picked, rejected)
            is_short = bool(awaited)
            for shape, count in wanted:
                is_short |= not self._pick(shape, count - settled[shape], mine, picked, rejected)
            named = frozenset().union(*(pod_labels_named(shape.constraint) for shape, _ in wanted))
            leased = tuple(
                leased_host(host, name in self._closed, self.pod_labels.on_host(name, named), self._capacity_of(name))
                for name, host in picked.items()
            )
            lease = HostLease(str(uuid.uuid4()), leased, dict(rejected), awaited)
            for hostname in picked:
                self._hosts[hostname].lease_id = lease.lease_id
            if picked:
                self._leases[lease.lease_id] = (now_s + self._lease_s, list(picked))
                self._lease_of_job[job_id, for_gang] = lease.lease_id
            if is_short and len(self._waiting) < WAITING_JOBS_MAX:
                self._waiting.add((job_id, for_gang))
                if rejected[LEASED]:
                    self._waiting_for_leases.add((job_id, for_gang))
            return lease

    def _pick_desired(
        self,
        job_id: JobId,
        desired: Sequence[Desired],
        mine: frozenset[PodKey],
        picked: dict[Hostname, HostOffers],
        rejected: Counter[str],
    ) -> tuple[Counter[PodShape], tuple[tuple[int, Hostname], ...]]:
        """Add the hosts to which pods come back. Pods that need no other host, and those that wait for room on theirs:
        as long as it is held for them and the host is there."""
        settled: Counter[PodShape] = Counter()
        awaited: list[tuple[int, Hostname]] = []
        for pod in desired[:HOSTS_PER_LEASE_MAX]:
            host = self._hosts.get(pod.hostname)
            if (host is None and pod.hostname not in self._agents) or self._is_away(pod.hostname):
                continue
            is_held = self._holds.is_held(pod.hostname, (job_id, pod.instance_id))
            if is_held:
                awaited.append((pod.instance_id, pod.hostname))
            if host is not None and host.lease_id:
                rejected[LEASED] += 1
            elif host is not None and not self._misfit(host, pod.shape, mine):
                picked[pod.hostname] = self._as_seen(host, mine)
                settled[pod.shape] += 1
                continue
            settled[pod.shape] += is_held
        return settled, tuple(awaited)

    def _as_seen(self, host: HostOffers, mine: frozenset[PodKey]) -> HostOffers:
        """The host without the room that is held for others."""
        return host.without(self._holds.held(host.hostname, mine))

    def _misfit(self, host: HostOffers, shape: PodShape, mine: frozenset[PodKey]) -> str:
        """Why the host does not take the pod, leases aside."""
        if shape.revocable and host.hostname in self._closed:
            return "closed to revocable pods after it was hot"
        pods = self.pod_labels.on_host(host.hostname, pod_labels_named(shape.constraint))
        if reason := self._kept_back(host):
            return reason
        seen = self._as_seen(host, mine)
        if (reason := unfit(seen, shape, pods)) and seen is not host and not unfit(host, shape, pods):
            return "room held for pods that come back"
        return reason

    def _pick(
        self,
        shape: PodShape,
        count: int,
        mine: frozenset[PodKey],
        picked: dict[Hostname, HostOffers],
        rejected: Counter[str],
    ) -> bool:
        """Add hosts until ``count`` pods fit; returns whether they do. Every host that fails a rule is counted."""
        missing = count
        is_one_each = bool(pod_labels_named(shape.constraint)) or shape.strategy is not Strategy.PACK_HOST
        for hostname, host in self._in_order(shape):
            if missing <= 0 or len(picked) >= HOSTS_PER_LEASE_MAX:
                break
            if host.lease_id:
                rejected[LEASED] += 1
                continue
            if reason := self._misfit(host, shape, mine):
                rejected[reason] += 1
                continue
            picked[hostname] = self._as_seen(host, mine)
            missing -= 1 if is_one_each else room_for(picked[hostname], shape)
        return missing <= 0

    def _in_order(self, shape: PodShape) -> Iterable[tuple[Hostname, HostOffers]]:
        """Hosts that will go soon come last: what they get has to leave them again."""
        if shape.strategy is Strategy.EMPTIEST_HOST:
            return sorted(self._hosts.items(), key=lambda item: self._fullness(item[1], shape))
        if not self._maintained:
            return self._hosts.items()
        stays = [(name, host) for name, host in self._hosts.items() if name not in self._maintained]
        return chain(stays, [(name, host) for name, host in self._hosts.items() if name in self._maintained])

    def _fullness(self, host: HostOffers, shape: PodShape) -> tuple[bool, int, Hostname]:
        share = free_share(host.free, self._capacity_of(host.hostname), shape.resources)
        return host.hostname in self._maintained, -share, host.hostname

    def _kept_back(self, host: HostOffers) -> str:
        if self._is_away(host.hostname):
            return "in maintenance"
        if host.hostname in self._refused:
            return f"a host of cluster {self._refused[host.hostname]} has the same name"
        start_ns = host.unavailable_from_ns
        if start_ns and start_ns - UNAVAILABILITY_NOTICE_NS <= self._wall_ns():
            return "scheduled for maintenance in Mesos"
        return ""

    def claim(self, lease_id: str, hostnames: Iterable[Hostname]) -> dict[Hostname, Claim]:
        """Take the offers of the hosts that are still under this lease, without those that have gone into
        maintenance; the lease's other hosts become READY."""
        with self._lock:
            _, leased = self._leases.pop(lease_id, (0.0, []))
            wanted = set(hostnames)
            claims = {}
            for hostname in leased:
                host = self._hosts.get(hostname)
                if host is None or host.lease_id != lease_id:
                    continue
                host.lease_id = ""
                if hostname in wanted and host.offers and not self._is_away(hostname):
                    claims[hostname] = Claim(hostname, host.agent_id, tuple(host.offers), host.pot())
                    for offer_id in host.offers:
                        self._host_of_offer.pop(offer_id, None)
                    host.offers = {}
                    host.recount()
            return claims

    def release(self, lease_id: str) -> set[JobId]:
        """Give a lease back; returns the jobs that may find hosts now: not the one that found its hosts too few."""
        with self._lock:
            holders = {holder for holder, lease in self._lease_of_job.items() if lease == lease_id}
            if not self._free(lease_id):
                return set()
            told = self._waiting_for_leases - holders
            self._waiting -= told
            self._waiting_for_leases -= told
            return {job for job, _ in told}

    def _free(self, lease_id: str) -> bool:
        """End a lease; returns whether that made hosts READY."""
        _, leased = self._leases.pop(lease_id, (0.0, []))
        for hostname in leased:
            if (host := self._hosts.get(hostname)) and host.lease_id == lease_id:
                host.lease_id = ""
        return bool(leased)

    def _expire(self, now_s: float) -> None:
        """Jobs that wait for the hosts of a dead holder find them when they look again by themselves."""
        for lease_id in [k for k, (deadline_s, _) in self._leases.items() if deadline_s <= now_s]:
            self._free(lease_id)
        self._lease_of_job = {job: lease for job, lease in self._lease_of_job.items() if lease in self._leases}
