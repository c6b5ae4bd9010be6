"""Choice of READY hosts for a lease, and the rules that exclude the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain

from peloton.hosts.announced import RegisteredHost
from peloton.hosts.domain_counts import NO_COUNTS, Counts, open_domains
from peloton.hosts.host_resources import HostResources, make_leased_host
from peloton.hosts.host_table import HostTable
from peloton.hosts.resource_holds import PodKey
from peloton.lifecycle.avoidance import NO_AVOIDANCE, HostAvoidance
from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.host import Desired, HostLease, LeasedHost, Placement, ReadyGang, find_desired
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import Domains
from peloton.model.misfit import HostRule, LackingPorts, Misfit, OwnReservation, Refused, ReservedForOther
from peloton.model.pod import Label, PodShape
from peloton.model.ranges import ranges_without
from peloton.model.reason import RefusingHosts, merge_misfits
from peloton.model.reservation import HostReservation
from peloton.model.resources import Resources, compute_needed, pair_amounts
from peloton.model.times import NS_PER_S
from peloton.scheduling.bin_packing import PodRequest, find_left_out, gang_misfit, pack_requests
from peloton.scheduling.fit import PORTS_MAX, HostView, by_key, misfit
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.placement import (
    SHAPES_EXPLAINED_MAX,
    LeftPods,
    PackedPods,
    Put,
    RequestedPods,
    group_pods,
    make_placement,
    name_left,
)
from peloton.scheduling.recipes import choose
from peloton.scheduling.spreading import Spreading

HOSTS_PER_LEASE_MAX = 1_000
LEASED = Refused(HostRule.LEASED)
GPU_KEPT = Refused(HostRule.GPU_KEPT)
CLOSED = Refused(HostRule.CLOSED)


@dataclass(slots=True)
class Choice:
    """Hosts for a lease, and why they are not enough for some shapes."""

    mine: frozenset[PodKey]  # pods whose holds do not count
    picked: dict[Hostname, HostResources] = field(default_factory=dict)  # as available to the pods
    settled: dict[int, PodShape] = field(default_factory=dict)  # instances that require no other host
    returned: dict[int, int] = field(default_factory=dict)  # instances among them that have a host -> its row
    refused: dict[PodShape, tuple[RefusingHosts, ...]] = field(default_factory=dict)
    awaited: tuple[tuple[int, Hostname], ...] = ()  # instances that wait for resources held on their host
    is_leased: bool = False  # the host of a returning pod is leased
    own: HostReservation | None = None
    without_host: frozenset[PodShape] = frozenset()  # shapes for which no host was found
    has_deprioritized_hosts: bool = False

    @property
    def returning(self) -> tuple[tuple[int, Hostname], ...]:
        """Return the instances that wait for resources held on their host, and have none yet."""
        return tuple(one for one in self.awaited if one[0] not in self.returned)

    def lease(
        self,
        lease_id: str,
        hosts: tuple[LeasedHost, ...] = (),
        domains: dict[PodShape, tuple[Domains, ...]] | None = None,
    ) -> HostLease:
        short = frozenset(self.refused) | {self.settled[instance] for instance, _ in self.returning}
        return HostLease(
            lease_id,
            hosts,
            self.refused,
            self.awaited,
            domains=domains or {},
            reserved=((self.own.instance_id, self.own.hostname),) if self.own else (),
            short=short,
            without_host=self.without_host,
            has_deprioritized_hosts=self.has_deprioritized_hosts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """The terms of one placement of a job. With ``are_gpus_kept`` pods without gpus avoid hosts with gpus if there are
    others. ``counts`` has the job's pods by domain, for shapes with spread constraints. ``own`` is the reservation of
    one of the pods."""

    avoidance: HostAvoidance = NO_AVOIDANCE
    are_gpus_kept: bool = False
    counts: Counts = field(default_factory=lambda: NO_COUNTS)
    own: HostReservation | None = None


NO_TERMS = JobTerms()


@dataclass(slots=True)
class _Packing:
    """Pods packed on the fleet, which has the changes until it is restored."""

    choice: Choice
    requests: list[PodRequest]
    rows: list[list[int]]  # hosts of the pods of each request
    barred: dict[PodShape, dict[int, Misfit]]
    spreading: Spreading | None


@dataclass(frozen=True, slots=True)
class HostChooser:
    table: HostTable

    def choose(
        self,
        job_id: JobId,
        wanted: Sequence[tuple[PodShape, int]],
        desired: Sequence[Desired] = (),
        terms: JobTerms = NO_TERMS,
    ) -> Choice:
        """Choose hosts to which pods return, then hosts by the placement strategies, for a caller that packs the pods
        on the leased hosts."""

        def request_others(choice: Choice) -> list[PodRequest]:
            settled = Counter(choice.settled.values())
            return [PodRequest(shape, _name_labels(shape), max(count - settled[shape], 0)) for shape, count in wanted]

        fleet = self.table.free_resources.fleet
        try:
            shapes = [shape for shape, _ in wanted]
            packing = self._pack(job_id, shapes, desired, lambda pod: _name_labels(pod.shape), request_others, terms)
            choice, barred = packing.choice, packing.barred
            for request, rows in zip(packing.requests, packing.rows, strict=True):
                shape = request.shape
                if len(rows) == request.count:
                    continue
                if shape.layout:
                    barred[shape] |= find_left_out(fleet, request, len(rows), barred[shape], packing.spreading)
                picked = {fleet.row_of[name] for name in choice.picked}
                choice.refused[shape] = merge_misfits(self._refusing(fleet, shape, barred[shape], choice, picked))
        finally:
            fleet.restore()
        return choice

    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], terms: JobTerms = NO_TERMS) -> tuple[Choice, PackedPods]:
        """Place the pods on hosts to which they return, then on hosts by the placement strategies, a gang whole or not
        at all. The hosts of the choice are those of the placements."""
        singles = {gang.pods[0][0]: gang for gang in gangs if len(gang.pods) == 1}
        requested: list[RequestedPods] = []

        def labels_of(pod: Desired) -> Collection[Label]:
            return singles[pod.instance_id].labels

        def request_others(choice: Choice) -> list[PodRequest]:
            others = [gang for gang in gangs if len(gang.pods) > 1 or gang.pods[0][0] not in choice.settled]
            requested.extend(chain.from_iterable(group_pods(others)))
            return [request for request, _ in requested]

        fleet = self.table.free_resources.fleet
        try:
            shapes, desired = [*dict.fromkeys(gang.shape for gang in gangs)], find_desired(gangs)
            packing = self._pack(job_id, shapes, desired, labels_of, request_others, terms)
            choice = packing.choice
            puts: dict[int, list[Put]] = {}
            for instance, row in choice.returned.items():
                gang = singles[instance]
                puts.setdefault(row, []).append((gang.pods[0], gang.shape, gang.labels))
            left: list[LeftPods] = []
            for (request, pods), rows in zip(requested, packing.rows, strict=True):
                for pod, row in zip(pods, rows, strict=False):
                    puts.setdefault(row, []).append((pod, request.shape, request.labels))
                if len(rows) < len(pods):
                    is_explained = len(left) + bool(choice.returning) < SHAPES_EXPLAINED_MAX
                    hosts = self._explain(fleet, request, len(pods) - len(rows), packing) if is_explained else ()
                    choice.refused[request.shape] = choice.refused.get(request.shape, ()) or hosts
                    left.append(name_left(request, pods, len(rows), hosts))
            names = {row: fleet.names[row] for row in puts}
        finally:
            fleet.restore()
        placements = [self.place_on(names[row], pods) for row, pods in puts.items()]
        left += _find_without_ports(placements, puts.values())
        returning = tuple(host for _, host in choice.returning)
        return choice, PackedPods(tuple(one for one in placements if one.pods), tuple(left), returning)

    def place_on(self, hostname: Hostname, pods: Sequence[Put]) -> Placement:
        """Place pods on a host, with dynamic ports that no other pod there uses."""

        def find_ports() -> Sequence[tuple[int, int]]:
            used = self.table.pod_labels.ports_on(hostname)
            return ranges_without(self.table.free_resources.hosts[hostname].ports, used)

        return make_placement(hostname, pods, find_ports)

    def _pack(
        self,
        job_id: JobId,
        shapes: Sequence[PodShape],
        desired: Sequence[Desired],
        labels_of: Callable[[Desired], Collection[Label]],
        request_others: Callable[[Choice], list[PodRequest]],
        terms: JobTerms,
    ) -> _Packing:
        """Pack pods on the hosts to which they return, then the others; the caller restores the fleet."""
        own = terms.own
        choice = Choice(frozenset((job_id, pod.instance_id) for pod in desired), own=own)
        if own is not None and self._can_hold(own, choice.mine):
            desired = [*desired, Desired(own.instance_id, own.hostname, own.shape)]
            choice.mine |= {own.key}
        fleet = self.table.free_resources.fleet
        self.prepare(fleet, shapes, choice.mine, terms.avoidance)
        spreading = Spreading(fleet, open_domains(terms.counts)) if terms.counts else None
        self._pick_desired(fleet, job_id, desired, choice, spreading, labels_of)
        barred = {shape: self.find_barred(fleet, shape, terms.avoidance, terms.are_gpus_kept) for shape in shapes}
        requests = request_others(choice)
        chosen = pack_requests(fleet, requests, barred, spreading)
        rows = [
            self._add_to_lease(fleet, request, found.tolist(), choice)
            for request, found in zip(requests, chosen, strict=True)
        ]
        pairs = [*zip(requests, rows, strict=True)]
        choice.without_host = frozenset(
            {request.shape for request, found in pairs if len(found) < request.count}
            - {request.shape for request, found in pairs if found}
            - {*choice.settled.values()}
        )
        choice.has_deprioritized_hosts = any(map(terms.avoidance.is_last, choice.picked))
        return _Packing(choice, requests, rows, barred, spreading)

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
        labels_of: Callable[[Desired], Collection[Label]],
    ) -> None:
        """Pick the hosts to which pods return."""
        for pod in desired[:HOSTS_PER_LEASE_MAX]:
            host = self.table.free_resources.hosts.get(pod.hostname)
            if (
                pod.instance_id in choice.returned
                or (host is None and pod.hostname not in self.table.registered.by_name)
                or self.table.is_unavailable(pod.hostname)
            ):
                continue
            if self.table.holds.is_held(pod.hostname, (job_id, pod.instance_id)):
                choice.awaited += ((pod.instance_id, pod.hostname),)
                choice.settled[pod.instance_id] = pod.shape
            if host is not None and host.lease_id:
                choice.is_leased = True
            elif host is not None and not self.misfit_on(host, pod.shape, choice.mine):
                labels, rows = labels_of(pod), fleet.rows([pod.hostname])
                if not fleet.count_fits_with_pods(pod.shape, labels, rows, fleet.count_fits(pod.shape, rows)).all():
                    continue  # earlier pods of this placement have filled the host
                fleet.take(pod.shape, labels, rows)
                if spreading is not None:
                    spreading.add(rows)
                self._pick(fleet, int(rows[0]), choice)
                choice.settled[pod.instance_id] = pod.shape
                choice.returned[pod.instance_id] = int(rows[0])

    def _add_to_lease(self, fleet: Fleet, request: PodRequest, rows: list[int], choice: Choice) -> list[int]:
        """Add hosts to the lease; return the rows of the pods, without those beyond the limit."""
        for count, row in enumerate(rows):
            if not self._pick(fleet, row, choice):
                return [] if request.is_gang else rows[:count]
        return rows

    def _pick(self, fleet: Fleet, row: int, choice: Choice) -> bool:
        hostname = fleet.names[row]
        if hostname not in choice.picked:
            if len(choice.picked) == HOSTS_PER_LEASE_MAX:
                return False
            choice.picked[hostname] = self._as_seen(self.table.free_resources.hosts[hostname], choice.mine)
        return True

    def find_barred(
        self, fleet: Fleet, shape: PodShape, avoidance: HostAvoidance, are_gpus_kept: bool
    ) -> dict[int, Misfit]:
        """Return hosts that take no such pods, whatever their free resources."""
        closed = self.table.find_closed()
        if shape.revocable:
            closed |= dict.fromkeys(self.table.closed, CLOSED)
        barred = {fleet.row_of[name]: why for name, why in closed.items() if name in fleet.row_of}
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
        self, fleet: Fleet, shape: PodShape, barred: Mapping[int, Misfit], choice: Choice, without: Collection[int] = ()
    ) -> Iterator[tuple[Misfit, int]]:
        """Yield the hosts, except rows ``without``, by the rule that excludes them. For hosts with held or reserved
        resources the rule says whether that is the reason."""
        picked = {fleet.row_of[name] for name in choice.picked}
        kept = {fleet.row_of[name] for name in self.table.find_kept_hosts() if name in fleet.row_of} - picked
        for row in sorted(kept):
            host = self.table.free_resources.hosts[fleet.names[row]]
            if choice.own and (host.hostname, shape) == (choice.own.hostname, choice.own.shape):
                unheld = host.without(*self.table.holds.sum_held(host.hostname, choice.mine))
                yield own_reservation(choice.own, unheld.free), 1
            elif why := LEASED if host.lease_id else barred.get(row) or self.misfit_on(host, shape, choice.mine):
                yield why, 1
        yield from fleet.refusing(shape, barred, kept.union(without))

    def _explain(self, fleet: Fleet, request: PodRequest, left: int, packing: _Packing) -> tuple[RefusingHosts, ...]:
        """Return all hosts by the rule that they fail with the pods placed so far. Hosts that fail none together lack
        free resources for the gang of ``left`` pods."""
        shape, barred, spreading = request.shape, packing.barred[request.shape], packing.spreading
        skewed = dict(spreading.refusing(shape, fleet.fitting(shape, barred))) if spreading is not None else {}
        found = [*self._refusing(fleet, shape, skewed | barred, packing.choice)]
        if fitting := len(fleet) - sum(count for _, count in found):
            fit_count = len(choose(fleet, shape, request.labels, left, barred, spreading))
            found.append((gang_misfit(shape, left, fit_count), fitting))
        return merge_misfits(found)

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
            return CLOSED
        return self.table.explain_closed(hostname)


def _find_without_ports(placements: Iterable[Placement], puts: Iterable[Sequence[Put]]) -> Iterator[LeftPods]:
    """Yield the pods for which their host has too few ports, because pods there use ports that the cluster offers."""
    for placement, pods in zip(placements, puts, strict=True):
        have = {pod.instance_id for pod in placement.pods}
        for pod, shape, labels in pods if len(have) < len(pods) else ():
            if pod[0] not in have:
                why = RefusingHosts.of(1, LackingPorts(shape.port_count, 0))
                yield LeftPods(PodRequest(shape, labels, 1), (pod[0],), 1, (why,))


def _name_labels(shape: PodShape) -> tuple[Label, ...]:
    """Return the labels that the pod is assumed to have: those that its own constraint names."""
    return tuple(sorted(pod_labels_named(shape.constraint)))


def own_reservation(own: HostReservation, free: Resources) -> Misfit:
    """Return the misfit with the resource kind of which the largest share is missing, and the missing amount."""
    since_s, until_s = own.since_ns // NS_PER_S, own.until_ns // NS_PER_S
    amounts = pair_amounts(compute_needed(own.shape.resources), free)
    short = [(Fraction(need - have, need), need - have, kind) for kind, need, have in amounts if need > have]
    _, lacking, kind = max(short, default=(0, 0, ""), key=lambda one: one[0])
    return OwnReservation(own.hostname, since_s, until_s, kind, lacking)


def _when_empty(host: RegisteredHost) -> HostView:
    return HostView(host.labels, host.capacity, host.revocable.cpu_milli, PORTS_MAX)
