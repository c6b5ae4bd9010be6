"""Daemons on hosts: where each is required, where it runs, and the resources reserved for missing pods.

Reserved resources are offered to no other pod from the time at which the host is known or the daemon is wanted. All
requests of daemons count as overhead, whether their pods run yet or not: other pods have the capacity less this
overhead, so a daemon that ends and returns changes nothing for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from peloton.hosts.announced import NOTHING, RegisteredHost
from peloton.hosts.daemon_waits import DaemonWaits
from peloton.hosts.effects import event
from peloton.hosts.host_chooser import LEASED
from peloton.hosts.host_resources import HostResources
from peloton.hosts.host_table import HostTable
from peloton.lifecycle.constraints import HOSTNAME_LABEL, mentions
from peloton.model.daemon import Daemon, WaitingDaemonPod
from peloton.model.host_pool import HOST_POOL_LABEL
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.misfit import HostRule, Misfit, Refused
from peloton.model.pod import PodShape
from peloton.model.resources import Resources, compute_needed
from peloton.scheduling.fit import HostKind, HostView, capacity_misfit, misfit

NO_RESOURCES = HostView({}, NOTHING)
_Traits = tuple[Resources, tuple[tuple[str, str], ...]]
"""Capacity, and labels without the host's name."""


class DaemonHosts:
    """State of daemons on hosts."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._wanted: dict[JobId, Daemon] = {}
        self._shapes: dict[JobId, PodShape] = {}  # of the wanted daemons
        self._ended: dict[JobId, Resources] = {}  # daemons no longer wanted, with remaining pods -> request of each pod
        self._pods: dict[tuple[JobId, int], tuple[int, Hostname]] = {}  # -> run, host; from launch to end
        self._pod_counts = Counter[JobId]()
        self._on_host: dict[Hostname, dict[JobId, int]] = {}  # -> pods of each daemon on it
        self._matching: dict[_Traits, tuple[JobId, ...]] = {}  # daemons that do not name hosts
        self._naming: tuple[JobId, ...] = ()  # daemons whose constraint names hosts
        self._hosts_of: dict[JobId, frozenset[Hostname]] = {}  # hosts that require each daemon, once computed
        self._waits = DaemonWaits(table.free_resources)
        self._news: set[JobId] = set()  # daemons that changed, or whose hosts changed
        self._kinds_version = 0  # of the hosts, at the last update
        self.version = 0  # changes with the wanted daemons

    # -- changes

    @event()
    def want(self, daemons: Iterable[Daemon]) -> None:
        """Set the wanted daemons."""
        wanted = {daemon.job_id: daemon for daemon in daemons}
        if wanted == self._wanted:
            return
        jobs = wanted.keys() | self._wanted.keys()
        self._news |= {job for job in jobs if wanted.get(job) != self._wanted.get(job)}
        self._waits.keep(wanted)
        self._wanted = wanted
        held = self._ended | {job: compute_needed(shape.resources) for job, shape in self._shapes.items()}
        self._ended = {job: held[job] for job in sorted(held.keys() - wanted) if self._pod_counts[job]}
        self._shapes = {job: daemon.shape for job, daemon in sorted(wanted.items())}
        self._naming = tuple(job for job, shape in self._shapes.items() if _names_hosts(shape))
        self._matching, self._hosts_of = {}, {}
        self.version += 1
        self.keep_resources(self._table.free_resources.hosts)

    @event()
    def hosts_changed(self) -> None:
        """Handle hosts that were registered or removed."""
        registered = self._table.registered
        news, self._kinds_version = registered.take_news(), registered.kinds_version
        if not self._shapes or not news:
            return
        self.keep_resources(news)
        self._waits.forget(name for name in news if name not in registered.by_name)
        for job_id in self._shapes:
            before, among = self._hosts_of.get(job_id), self._among(job_id, news)
            if before is None:
                self._news.add(job_id)
            elif before.intersection(news) != among:
                self._news.add(job_id)
                self._hosts_of[job_id] = before.difference(news) | among

    @event()
    def take_news(self) -> set[JobId]:
        """Return daemons that started, changed or ended since the last call, whose matching hosts have changed, or
        that have a pod which found too few free resources and would fit now."""
        found, self._news = self._news, set()
        return found | self._waits.take_fitting(self._fits, self._table.is_unavailable)

    def _fits(self, job_id: JobId, pod: WaitingDaemonPod) -> bool:
        return self._refuse(job_id, pod) is None

    @event()
    def record_launched(self, pods: Iterable[tuple[PodId, Hostname]]) -> None:
        """Record launched pods of any jobs."""
        hosts = {host: None for pod_id, host in pods if self._add(pod_id, host)}
        self.keep_resources(hosts)

    @event()
    def record_ended(self, pod_ids: Iterable[PodId]) -> None:
        """Record ended pods of any jobs, and reserves the resources of missing daemons again."""
        self.keep_resources([host for pod_id in pod_ids if (host := self._drop(pod_id))])

    def _add(self, pod_id: PodId, host: Hostname) -> bool:
        if pod_id.job_id not in self._shapes:
            return False
        key = (pod_id.job_id, pod_id.instance_id)
        if key in self._pods:
            self._drop(PodId(*key, self._pods[key][0]))
        self._pods[key] = (pod_id.run_id, host)
        self._pod_counts[pod_id.job_id] += 1
        on_host = self._on_host.setdefault(host, {})
        on_host[pod_id.job_id] = on_host.get(pod_id.job_id, 0) + 1
        return True

    def _drop(self, pod_id: PodId) -> Hostname | None:
        """Remove a run; return its host if it was recorded."""
        run_id, host = self._pods.get((pod_id.job_id, pod_id.instance_id), (0, None))
        if host is None or run_id != pod_id.run_id:
            return None
        del self._pods[pod_id.job_id, pod_id.instance_id]
        self._pod_counts[pod_id.job_id] -= 1
        if not self._pod_counts[pod_id.job_id]:
            del self._pod_counts[pod_id.job_id]
            self._ended.pop(pod_id.job_id, None)
        on_host = self._on_host[host]
        on_host[pod_id.job_id] -= 1
        if not on_host[pod_id.job_id]:
            del on_host[pod_id.job_id]
        if not on_host:
            del self._on_host[host]
        return host

    # -- free resources

    def keep_resources(self, hostnames: Iterable[Hostname]) -> None:
        """Reserve resources on these hosts for wanted daemons that do not run there yet."""
        for hostname in hostnames:
            host = self._table.free_resources.hosts.get(hostname)
            if host is not None:
                self._table.free_resources.keep_resources(host, *self._missing_requests(host))

    def missing_on(self, name: Hostname) -> Resources:
        """Return the requests of wanted daemons that do not run on a registered host yet."""
        if not self._shapes:
            return NOTHING
        host = self._table.registered.by_name[name]
        return self._missing_requests(HostResources(name, host.host_id, host.labels))[0]

    def _missing_requests(self, host: HostResources, before: JobId | None = None) -> tuple[Resources, int]:
        """Return the requests and number of missing daemon pods. With ``before`` only daemons ordered before that one
        count, so that two daemons do not wait for each other."""
        if not self._shapes:
            return NOTHING, 0
        there = self._on_host.get(host.hostname, {})
        missing = [job for job in self._daemons_on(host) if job not in there and (before is None or job < before)]
        return sum((compute_needed(self._shapes[job].resources) for job in missing), NOTHING), len(missing)

    def _daemons_on(self, host: HostResources) -> tuple[JobId, ...]:
        registered = self._table.registered.by_name.get(host.hostname)
        if registered is not None:
            return self._daemons_matching(HostKind(registered.capacity, registered.labels))
        return self._daemons_matching(
            HostKind(host.announced, host.labels)
        )  # its offer arrived before its registration

    def _daemons_matching(self, kind: HostKind) -> tuple[JobId, ...]:
        """Return the daemons required on a host of this kind: the ones that fit an empty host."""
        labels = tuple(sorted((key, str(value)) for key, value in kind.labels.items() if key != HOSTNAME_LABEL))
        traits = (kind.capacity, labels)
        found = self._matching.get(traits)
        if found is None:
            others = ((job, shape) for job, shape in self._shapes.items() if job not in self._naming)
            found = self._matching[traits] = tuple(job for job, shape in others if _suits(shape, kind))
        return found + tuple(job for job in self._naming if _suits(self._shapes[job], kind))

    @event()
    def hosts_of(self, job_id: JobId) -> frozenset[Hostname]:
        """Return the registered hosts that require a daemon; none when it is not wanted. The caller needs no wake-up
        for them."""
        if job_id not in self._shapes:
            return frozenset()
        self.hosts_changed()
        self._news.discard(job_id)
        found = self._hosts_of.get(job_id)
        if found is None:
            found = self._hosts_of[job_id] = self._among(job_id, self._table.registered.by_name)
        return found

    def _among(self, job_id: JobId, names: Iterable[Hostname]) -> frozenset[Hostname]:
        """Return the hosts among these that are registered and match."""
        registered = self._table.registered.by_name
        hosts = [host for name in names if (host := registered.get(name)) is not None]
        kinds = ((host.hostname, HostKind(host.capacity, host.labels)) for host in hosts)
        return frozenset(name for name, kind in kinds if job_id in self._daemons_matching(kind))

    def kinds_for(self, shape: PodShape) -> list[HostKind]:
        """Return the kinds of registered hosts among which such a daemon finds its hosts."""
        registered = self._table.registered
        return registered.kinds(registered.by_name if _names_hosts(shape) else ())

    def list_wanted(self) -> list[JobId]:
        return list(self._shapes)

    def read_versions(self) -> tuple[int, int]:
        """Return versions that change with the hosts and with the wanted daemons."""
        return self._kinds_version, self.version

    # -- overhead

    def overhead(self, unavailable: Collection[Hostname]) -> Resources:
        """Return the requests of daemons on all registered hosts but these, and the resources that ended daemons still
        hold there."""
        return sum(self.overheads(unavailable).values(), NOTHING)

    def overheads(self, unavailable: Collection[Hostname]) -> dict[str, Resources]:
        """Return the overhead by host pool, with an empty name while host pools are disabled."""
        found: dict[str, Resources] = {}
        if not self._shapes and not self._ended:
            return found
        registered = self._table.registered
        for there, held in self._find_held_by_ended(unavailable):
            pool = str(there.labels.get(HOST_POOL_LABEL, ""))
            found[pool] = found.get(pool, NOTHING) + held
        gone = [HostKind(host.capacity, host.labels, -1) for n in unavailable if (host := registered.by_name.get(n))]
        kinds = registered.kinds(registered.by_name if self._naming else ())
        for kind in [*kinds, *gone]:
            pool = str(kind.labels.get(HOST_POOL_LABEL, ""))
            found[pool] = found.get(pool, NOTHING) + self._of_kind(kind) * kind.count
        return found

    def _find_held_by_ended(self, unavailable: Collection[Hostname]) -> Iterator[tuple[RegisteredHost, Resources]]:
        for (job, _), (_, name) in self._pods.items() if self._ended else ():
            host = self._table.registered.by_name.get(name)
            if job in self._ended and host is not None and name not in unavailable:
                yield host, self._ended[job]

    def less_overhead(self, kinds: Sequence[HostKind]) -> list[HostKind]:
        """Return these kinds of hosts with the capacity available to other pods."""
        return [replace(kind, capacity=kind.capacity - self._of_kind(kind)) for kind in kinds]

    def _of_kind(self, kind: HostKind) -> Resources:
        """Return the overhead on a host of this kind, at most its capacity."""
        wanted = sum((compute_needed(self._shapes[job].resources) for job in self._daemons_matching(kind)), NOTHING)
        return Resources.each(min, wanted, kind.capacity)

    # -- launches

    def refuse_pods(self, job_id: JobId, pods: Sequence[WaitingDaemonPod]) -> dict[Hostname, Misfit]:
        """Return why hosts do not take these pods now, in the free resources and the ones reserved for them."""
        refused: dict[Hostname, Misfit] = {}
        for pod in pods:
            if why := self._refuse(job_id, pod):
                refused[pod.hostname] = why
            self._waits.note(job_id, pod, why)
        return refused

    def _refuse(self, job_id: JobId, pod: WaitingDaemonPod) -> Misfit | None:
        host = self._table.free_resources.hosts.get(pod.hostname)
        if self._table.is_unavailable(pod.hostname):
            return Refused(HostRule.MAINTENANCE)
        if host is not None and host.lease_id:
            return LEASED
        if host is None or not host.free_resources:
            return capacity_misfit(pod.shape, NO_RESOURCES) or Refused(HostRule.POD_SLOTS)
        seen = self._table.free_resources.keeping(host, *self._missing_requests(host, before=job_id))
        return misfit(pod.shape, seen.view, None)


def lacks_resources(why: Misfit | None) -> bool:
    """Return whether the offered resources are too small; more may be offered."""
    return why is not None and why.rule not in (HostRule.LEASED, HostRule.MAINTENANCE)


def _names_hosts(shape: PodShape) -> bool:
    return mentions(shape.constraint, HOSTNAME_LABEL)


def _suits(shape: PodShape, kind: HostKind) -> bool:
    return misfit(shape, kind.when_empty(), None) is None
