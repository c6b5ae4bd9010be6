"""Choice of READY hosts for a lease, and the rules that exclude the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from peloton.hosts.announced import RegisteredHost
from peloton.hosts.domain_counts import NO_COUNTS, Counts, everywhere
from peloton.hosts.host_resources import HostResources, make_leased_host
from peloton.hosts.host_table import HostTable
from peloton.hosts.resource_holds import PodKey
from peloton.lifecycle.avoidance import NO_AVOIDANCE, HostAvoidance
from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import Desired, HostLease, LeasedHost
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import Domains
from peloton.model.misfit import HostRule, Misfit, NameTaken, OwnReservation, Refused, ReservedForOther
from peloton.model.pod import PodShape
from peloton.model.reason import RefusingHosts, merge_misfits
from peloton.model.reservation import HostReservation
from peloton.model.resources import Resources, compute_needed, pair_amounts
from peloton.model.times import NS_PER_S
from peloton.scheduling.bin_packing import PodRequest, find_left_out, pack_requests
from peloton.scheduling.fit import PORTS_MAX, HostView, by_key, misfit
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.tree import Ints

HOSTS_PER_LEASE_MAX = 1_000
LEASED = Refused(HostRule.LEASED)
GPU_KEPT = Refused(HostRule.GPU_KEPT)
GOES_NOTICE_NS = 3 * 3_600 * 10**9
"""Notice in nanoseconds: a host that the cluster takes down within it receives no new pods."""


@dataclass(slots=True)
class Choice:
    """Hosts for a lease, and why they are not enough for some shapes."""

    mine: frozenset[PodKey]  # pods whose holds do not count
    picked: dict[Hostname, HostResources] = field(default_factory=dict)  # as available to the pods
    refused: dict[PodShape, tuple[RefusingHosts, ...]] = field(default_factory=dict)
    awaited: tuple[tuple[int, Hostname], ...] = ()  # instances that wait for resources held on their host
    is_leased: bool = False  # the host of a returning pod is leased
    own: HostReservation | None = None
    without_host: set[PodShape] = field(default_factory=set)  # shapes for which no host was found

    def lease(
        self,
        lease_id: str,
        hosts: tuple[LeasedHost, ...],
        domains: dict[PodShape, tuple[Domains, ...]],
        desired: Sequence[Desired],
    ) -> HostLease:
        returning = {instance for instance, _ in self.awaited}
        short = frozenset(self.refused) | {pod.shape for pod in desired if pod.instance_id in returning}
        return HostLease(
            lease_id,
            hosts,
            self.refused,
            self.awaited,
            domains=domains,
            reserved=((self.own.instance_id, self.own.hostname),) if self.own else (),
            short=short,
            without_host=frozenset(self.without_host),
        )


@dataclass(frozen=True, slots=True)
class HostChooser:
    table: HostTable

    def choose(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        desired: Sequence[Desired] = (),
        avoidance: HostAvoidance = NO_AVOIDANCE,
        are_gpus_kept: bool = False,
        counts: Counts = NO_COUNTS,
        own: HostReservation | None = None,
    ) -> Choice:
        """Choose hosts to which pods return, then hosts by the placement strategies. With ``are_gpus_kept`` pods
        without gpus avoid hosts with gpus if there are others. ``counts`` has the job's pods by domain, for shapes with
        spread constraints. ``own`` is the reservation of one of the pods."""
        choice = Choice(frozenset((job_id, pod.instance_id) for pod in desired), own=own)
        if own is not None and self._can_hold(own, choice.mine):
            desired = [*desired, Desired(own.instance_id, own.hostname, own.shape)]
            choice.mine |= {own.key}
        fleet = self.table.free_resources.fleet
        try:
            self.prepare(fleet, [shape for shape, _ in wanted], choice.mine, avoidance)
            spreading = Spreading(fleet, everywhere(counts)) if counts else None
            settled = self._pick_desired(fleet, job_id, desired, choice, spreading)
            barred = {shape: self.find_barred(fleet, shape, avoidance, are_gpus_kept) for shape, _ in wanted}
            wants = [
                PodRequest(shape, tuple(sorted(pod_labels_named(shape.constraint))), max(count - settled[shape], 0))
                for shape, count in wanted
            ]
            fit_counts: dict[PodShape, int] = {}
            for want, rows in zip(wants, pack_requests(fleet, wants, barred, spreading), strict=True):
                if (picked := self._add_to_lease(fleet, rows, choice)) < want.count:
                    choice.refused[want.shape] = ()
                    fit_counts[want.shape] = picked
                    if not picked and not settled[want.shape]:
                        choice.without_host.add(want.shape)
            for want in wants:
                if want.shape in fit_counts and want.shape.layout:
                    barred[want.shape] |= find_left_out(
                        fleet, want, fit_counts[want.shape], barred[want.shape], spreading
                    )
            for shape in choice.refused:
                choice.refused[shape] = merge_misfits(self._refusing(fleet, shape, barred[shape], choice))
        finally:
            fleet.restore()
        return choice

    def lease(self, choice: Choice, shapes: Sequence[PodShape], avoidance: HostAvoidance) -> tuple[LeasedHost, ...]:
        """Return the chosen hosts in the form that placement requires."""
        table, pods, fleet = self.table, self.table.pod_labels, self.table.free_resources.fleet
        named = frozenset().union(*(pod_labels_named(shape.constraint) for shape in shapes))
        return tuple(
            make_leased_host(
                host,
                name in table.closed,
                pods.on_host(name, named),
                table.capacity_of(name),
                is_deprioritized=avoidance.is_last(name),
                ports_in_use=pods.ports_on(name),
                load_beyond=fleet.loads.of(fleet.row_of[name]),
            )
            for name, host in choice.picked.items()
        )

    def prepare(
        self, fleet: Fleet, shapes: Sequence[PodShape], mine: frozenset[PodKey], avoidance: HostAvoidance
    ) -> None:
        """Ranks last, in this order, hosts on which pods of the job failed, avoided hosts, and hosts that wait for
        their maintenance; sets held resources aside and counts labelled pods."""
        for rank, names in enumerate((avoidance.deprioritized, avoidance.avoided, self.table.maintained), start=1):
            if names:
                fleet.set_rank(fleet.rows(Hostname(name) for name in names), rank)
        for hostname in self.table.find_kept_hosts():
            host = self.table.free_resources.hosts.get(hostname)
            if host is not None and (row := fleet.row_of.get(hostname)) is not None:
                fleet.set_aside(row, *self.table.sum_kept(host, mine))
        for label in frozenset().union(*(pod_labels_named(shape.constraint) for shape in shapes)):
            fleet.set_pods(label, self.table.pod_labels.hosts_with(label))

    def _pick_desired(
        self,
        fleet: Fleet,
        job_id: JobId,
        desired: Sequence[Desired],
        choice: Choice,
        spreading: Spreading | None,
    ) -> Counter[PodShape]:
        """Picks the hosts to which pods return. Returns, by shape, the number of pods that require no other host."""
        settled: Counter[PodShape] = Counter()
        for pod in desired[:HOSTS_PER_LEASE_MAX]:
            host = self.table.free_resources.hosts.get(pod.hostname)
            if (host is None and pod.hostname not in self.table.registered.by_name) or self.table.is_unavailable(
                pod.hostname
            ):
                continue
            is_held = self.table.holds.is_held(pod.hostname, (job_id, pod.instance_id))
            if is_held:
                choice.awaited += ((pod.instance_id, pod.hostname),)
            if host is not None and host.lease_id:
                choice.is_leased = True
            elif host is not None and not self.misfit_on(host, pod.shape, choice.mine):
                rows = fleet.rows([pod.hostname])
                fleet.take(pod.shape, sorted(pod_labels_named(pod.shape.constraint)), rows)
                if spreading is not None:
                    spreading.add(rows)
                self._add_to_lease(fleet, rows, choice)
                settled[pod.shape] += 1
                continue
            settled[pod.shape] += is_held
        return settled

    def _add_to_lease(self, fleet: Fleet, rows: Ints, choice: Choice) -> int:
        """Add hosts to the lease; return for how many of the pods."""
        for count, row in enumerate(rows.tolist()):
            hostname = fleet.names[row]
            if hostname not in choice.picked:
                if len(choice.picked) == HOSTS_PER_LEASE_MAX:
                    return count
                choice.picked[hostname] = self._as_seen(self.table.free_resources.hosts[hostname], choice.mine)
        return len(rows)

    def find_barred(
        self, fleet: Fleet, shape: PodShape, avoidance: HostAvoidance, are_gpus_kept: bool
    ) -> dict[int, Misfit]:
        """Return hosts that take no such pods, whatever their free resources."""
        names = {*self.table.unavailable(), *self.table.name_taken, *self.table.free_resources.going}
        names |= self.table.closed.keys() if shape.revocable else set()
        barred = {
            fleet.row_of[name]: why
            for name in names
            if name in fleet.row_of and (why := self.explain_closed(name, shape)) is not None
        }
        if are_gpus_kept and not shape.resources.gpu_milli:
            has_gpus = fleet.has_gpus.tolist()
            with_gpus = [row for row in fleet.row_of.values() if has_gpus[row]]
            if len(with_gpus) < len(fleet):
                barred = dict.fromkeys(with_gpus, GPU_KEPT) | barred
        avoided = {fleet.row_of[name]: why for name, why in avoidance.avoided.items() if name in fleet.row_of}
        if not avoided or not fleet.fitting(shape, barred)[list(avoided)].any():
            return barred
        return avoided | barred if self._fits_elsewhere(shape, avoidance.avoided) else barred

    def _refusing(
        self, fleet: Fleet, shape: PodShape, barred: Mapping[int, Misfit], choice: Choice
    ) -> Iterator[tuple[Misfit, int]]:
        """Yield the hosts outside the lease by the rule that excludes them. For hosts with held or reserved resources
        the rule says whether that is the reason."""
        picked = {fleet.row_of[name] for name in choice.picked}
        kept = {fleet.row_of[name] for name in self.table.find_kept_hosts() if name in fleet.row_of} - picked
        for row in sorted(kept):
            host = self.table.free_resources.hosts[fleet.names[row]]
            if choice.own and (host.hostname, shape) == (choice.own.hostname, choice.own.shape):
                unheld = host.without(*self.table.holds.sum_held(host.hostname, choice.mine))
                yield own_reservation(choice.own, unheld.free), 1
            elif why := LEASED if host.lease_id else barred.get(row) or self.misfit_on(host, shape, choice.mine):
                yield why, 1
        yield from fleet.refusing(shape, barred, kept | picked)

    def _fits_elsewhere(self, shape: PodShape, avoided: Collection[Hostname]) -> bool:
        """Return whether a host that is not avoided could take the pod when enough resources are free: the pod then
        waits for it; otherwise it would wait for ever. Pods counted by its constraint are assumed to stay, as pods of a
        service do."""
        named = pod_labels_named(shape.constraint)
        return any(
            name not in avoided
            and misfit(shape, _when_empty(host), by_key(self.table.pod_labels.on_host(name, named))) is None
            and self.explain_closed(name, shape) is None
            for name, host in self.table.registered.by_name.items()
        )

    def _as_seen(self, host: HostResources, mine: frozenset[PodKey]) -> HostResources:
        """Return the host without the resources held or reserved for other pods."""
        return host.without(*self.table.sum_kept(host, mine))

    def _can_hold(self, own: HostReservation, mine: frozenset[PodKey]) -> bool:
        """Return whether the pod fits now on the host that is reserved for it."""
        host = self.table.free_resources.hosts.get(own.hostname)
        return host is not None and self.misfit_on(host, own.shape, mine | {own.key}) is None

    def misfit_on(self, host: HostResources, shape: PodShape, mine: frozenset[PodKey]) -> Misfit | None:
        """Return why the host does not take the pod; leases are ignored."""
        if reason := self.explain_closed(host.hostname, shape):
            return reason
        pods = by_key(self.table.pod_labels.on_host(host.hostname, pod_labels_named(shape.constraint)))
        seen = self._as_seen(host, mine)
        reason = misfit(shape, seen.view, pods)
        if reason is None or seen is host or misfit(shape, host.view, pods):
            return reason
        reserved = self.table.reservations.on(host.hostname)
        unheld_host = host.without(*self.table.holds.sum_held(host.hostname, mine))
        if reserved is None or misfit(shape, unheld_host.view, pods):
            return Refused(HostRule.HELD)
        return ReservedForOther(f"{reserved.job_id}-{reserved.instance_id}")

    def explain_closed(self, hostname: Hostname, shape: PodShape) -> Misfit | None:
        """Return why the host takes no such pods, whatever its free resources."""
        if shape.revocable and hostname in self.table.closed:
            return Refused(HostRule.CLOSED)
        if self.table.is_unavailable(hostname):
            return Refused(HostRule.MAINTENANCE)
        if hostname in self.table.name_taken:
            return NameTaken(self.table.name_taken[hostname])
        return (
            self._goes_soon(self.table.free_resources.hosts[hostname])
            if hostname in self.table.free_resources.hosts
            else None
        )

    def _goes_soon(self, host: HostResources) -> Misfit | None:
        start_ns = host.goes_ns
        if start_ns and start_ns - GOES_NOTICE_NS <= self.table.now_ns:
            return Refused(HostRule.GOES_SOON)
        return None


def own_reservation(own: HostReservation, free: Resources) -> Misfit:
    """Return the misfit with the resource kind of which the largest share is missing, and the missing amount."""
    since_s, until_s = own.since_ns // NS_PER_S, own.until_ns // NS_PER_S
    amounts = pair_amounts(compute_needed(own.shape.resources), free)
    short = [(Fraction(need - have, need), need - have, kind) for kind, need, have in amounts if need > have]
    _, lacking, kind = max(short, default=(0, 0, ""), key=lambda one: one[0])
    return OwnReservation(own.hostname, since_s, until_s, kind, lacking)


def _when_empty(host: RegisteredHost) -> HostView:
    return HostView(host.labels, host.capacity, host.revocable.cpu_milli, PORTS_MAX)
