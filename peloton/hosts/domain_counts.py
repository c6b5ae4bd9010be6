"""Counts of a job's pods by host labels, for its spread constraints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from peloton.hosts.host_table import HostTable
from peloton.lifecycle.constraints import host_labels, only_value
from peloton.model.host import LeasedHost
from peloton.model.ids import Hostname
from peloton.model.layout import DomainCount, Domains
from peloton.model.pod import PodShape
from peloton.scheduling.fit import PORTS_MAX, HostView, misfit

OPEN_DOMAINS_CACHED_MAX = 1_000
"""Limit of pairs of a shape and a label whose open domains are cached."""
Counts = Mapping[PodShape, Sequence[DomainCount]]
"""Counts by shape with spread constraints, in the order of the constraints."""
NO_COUNTS: Counts = {}


class DomainCounts:
    """Counts of pods by domain, computed from the hosts."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._open: dict[tuple[PodShape, str], frozenset[str]] = {}
        self._version: tuple[int, frozenset[Hostname]] = 0, frozenset()

    def count(
        self, shapes: Iterable[PodShape], pod_counts: Mapping[Hostname, int], drained: Collection[Hostname] = ()
    ) -> Counts:
        """Count pods and open domains. ``pod_counts`` maps the hosts of the job's pods to their number. Pods count on
        any host; hosts in maintenance and ``drained`` ones open no domain."""
        return {
            shape: tuple(
                DomainCount(self._pods(rule.label, pod_counts), self._open_for(shape, rule.label, drained))
                for rule in shape.layout.spread
            )
            for shape in shapes
            if shape.layout
        }

    def _pods(self, label: str, pod_counts: Mapping[Hostname, int]) -> dict[str, int]:
        pods: dict[str, int] = {}
        for name, count in pod_counts.items():
            host = self._table.registered.by_name.get(name) or self._table.withdrawn.get(name)
            if host is not None and (value := only_value(host.labels, label)) is not None:
                pods[value] = pods.get(value, 0) + count
        return pods

    def _open_for(self, shape: PodShape, label: str, drained: Collection[Hostname]) -> frozenset[str]:
        """Return the label values of hosts that would take the pod if they were empty."""
        if drained:
            return self._open_without(self._table.unavailable().union(drained), shape, label)
        version = self._table.registered.kinds_version, frozenset(self._table.unavailable())
        if version != self._version or len(self._open) >= OPEN_DOMAINS_CACHED_MAX:
            self._open.clear()
            self._version = version
        if (shape, label) not in self._open:
            self._open[shape, label] = self._open_without(version[1], shape, label)
        return self._open[shape, label]

    def _open_without(self, unavailable: Collection[Hostname], shape: PodShape, label: str) -> frozenset[str]:
        found: set[str] = set()
        for name, host in self._table.registered.by_name.items():
            value = only_value(host.labels, label)
            if value is None or value in found or name in unavailable:
                continue
            view = HostView(host.labels, host.capacity, host.revocable.cpu_milli, PORTS_MAX)
            if misfit(shape, view, None) is None:
                found.add(value)
        return frozenset(found)


def domains_near(counts: Counts, hosts: Iterable[LeasedHost]) -> dict[PodShape, tuple[Domains, ...]]:
    """Return the domains of each spread constraint that these hosts are in, with their counts."""
    labels = [host_labels(host.hostname, host.labels) for host in hosts] if counts else []
    found = {}
    for shape, by_rule in counts.items():
        assert shape.layout is not None
        values = ({only_value(each, rule.label) for each in labels} - {None} for rule in shape.layout.spread)
        found[shape] = tuple(
            Domains.of(count, [value for value in own if value is not None])
            for count, own in zip(by_rule, values, strict=True)
        )
    return found


def open_domains(counts: Counts) -> dict[PodShape, tuple[Domains, ...]]:
    """Return all open domains of each spread constraint, with their counts."""
    return {shape: tuple(Domains.of(count, count.open) for count in by_rule) for shape, by_rule in counts.items()}


def join_counts(counts: Counts, others: Counts) -> Counts:
    """Add the counts of one cluster and of the others."""
    return {
        shape: tuple(a.plus(b) for a, b in zip(own, others[shape], strict=True)) if shape in others else own
        for shape, own in counts.items()
    }
