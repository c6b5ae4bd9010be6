"""Hosts as arrays: the rules of ``fit`` for all hosts at once, and the resources left by pods placed so far.

H rows of hosts, R kinds of resources, one contiguous column for each amount. Hosts that carry the same labels, their
name aside, are of one kind: a constraint is evaluated once for each kind, and for hosts that it names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import mul
from typing import NamedTuple

import numpy as np

from peloton.lifecycle.constraints import HOSTNAME_LABEL, Labels, hosts_named, only_value, pod_labels_named, score
from peloton.model.ids import Hostname
from peloton.model.misfit import HostRule, Misfit, Refused
from peloton.model.pod import Constraint, HostPreference, Label, PodShape
from peloton.model.resources import Resources, compute_needed, to_extended
from peloton.scheduling.fit import by_key, count_fits_with, label_misfit, pods_misfit
from peloton.scheduling.host_kinds import HostKinds
from peloton.scheduling.loads import MeasuredLoads
from peloton.scheduling.rows import (
    COLUMNS,
    DISK,
    EMPTY,
    FREE,
    GPU,
    KIND,
    LEASED,
    LEFT,
    PORTS,
    PUT,
    RANK,
    READY,
    SLACK,
    SLOTS,
    STATE,
    TOTAL,
    USED,
    HostRow,
)
from peloton.scheduling.shortage import short_of
from peloton.scheduling.tree import CPU, KIND_COUNT, Flags, Ints

ROWS_MIN = 64
SCALE = 2**30
Barred = Mapping[int, Misfit]
"""Rows that take none of the pods, and the reason of each."""


class _Before(NamedTuple):
    """The columns of rows before a change, and the pods that it added."""

    rows: Ints
    columns: Ints
    counts: Ints | None
    labels: Collection[Label]


class Fleet:
    def __init__(self, hosts: Iterable[HostRow] = ()) -> None:
        hosts = list(hosts)
        self._extended: dict[str, int] = {}  # extended resource -> column of its free amounts; the next one: its totals
        self._m = np.zeros((COLUMNS, max(len(hosts), ROWS_MIN)), np.int64)
        self._widen(hosts)
        self.names: list[Hostname] = [host.hostname for host in hosts]
        self.row_of: dict[Hostname, int] = {name: row for row, name in enumerate(self.names)}
        self._kinds = HostKinds()
        self._unused: list[int] = []
        self._undo: list[_Before] = []
        self._pods: dict[Label, Ints] = {}  # [H] pods with the label
        self._weights: Ints | None = None
        self._weights_known: tuple[int, ...] = (0,) * KIND_COUNT  # the same as a tuple, for single hosts
        self._put_count = 0  # hosts put since the weights were computed
        self._by_name: Ints | None = None
        self.loads = MeasuredLoads()
        if hosts:
            self._m[:, : len(hosts)] = np.array([self._values(host) for host in hosts], np.int64).T

    # Hosts.

    def __len__(self) -> int:
        return len(self.row_of)

    def _values(self, host: HostRow) -> tuple[int, ...]:
        amounts = (*host.free, *host.total, host.slack_milli, host.port_count, host.pod_slots)
        is_used = not host.total.fits_in(host.free)
        left = sum(map(mul, host.free, self._weights_known))
        known = (*amounts, host.order, self._kinds.number(host.kind), host.state, host.rank, int(is_used), 0, left)
        if not self._extended:
            return known
        free, total = dict(host.free.extended), dict(host.total.extended)
        return (*known, *(amount for kind in self._extended for amount in (free.get(kind, 0), total.get(kind, 0))))

    def _widen(self, hosts: Iterable[HostRow]) -> None:
        """Add columns for the extended resources of these hosts."""
        for host in hosts:
            for kind, _ in (*host.total.extended, *host.free.extended):
                self._extended.setdefault(kind, COLUMNS + 2 * len(self._extended))
        if more := COLUMNS + 2 * len(self._extended) - len(self._m):
            self._m = np.concatenate([self._m, np.zeros((more, self._m.shape[1]), np.int64)])

    def put_host(self, host: HostRow) -> None:
        row = self._row_for(host.hostname)
        if host.total.extended or host.free.extended:
            self._widen((host,))
        self._m[:, row] = self._values(host)
        self._put_count += 1
        if len(self._kinds.labels) > 2 * len(self.row_of) + ROWS_MIN:
            self._forget_kinds()

    def _row_for(self, hostname: Hostname) -> int:
        row = self.row_of.get(hostname)
        if row is None:
            row = self._unused.pop() if self._unused else self._append_row()
            self.names[row] = hostname
            self.row_of[hostname] = row
            self._by_name = None
        return row

    def _append_row(self) -> int:
        row = len(self.names)
        self.names.append(Hostname(""))
        if row == self._m.shape[1]:
            self._m = np.concatenate([self._m, np.zeros_like(self._m)], axis=1)
        return row

    def drop_host(self, hostname: Hostname) -> None:
        row = self.row_of.pop(hostname, None)
        if row is not None:
            self._m[:, row] = 0
            self.names[row] = Hostname("")
            self._unused.append(row)
            self.loads.forget(row)
            self._by_name = None

    def _forget_kinds(self) -> None:
        rows = np.fromiter(self.row_of.values(), np.int64, len(self.row_of))
        self._m[KIND, rows] = self._kinds.keep(self._m[KIND, rows].tolist())

    @property
    def _all(self) -> Ints:
        """Return the columns of all rows up to the last in use, unused ones between them included."""
        return self._m[:, : len(self.names)]

    def rows(self, names: Iterable[Hostname]) -> Ints:
        return np.array([self.row_of[name] for name in names if name in self.row_of], np.int64)

    def column(self, column: int, rows: Ints) -> Ints:
        return np.asarray(self._m[column, rows])

    def amounts(self, columns: slice | list[int], rows: Ints) -> Ints:
        """Return a copy, ``[.,H]``."""
        return np.asarray(self._m[columns][:, rows])

    def by_name(self, rows: Ints) -> Ints:
        """Return the places of the rows in the order of host names."""
        if self._by_name is None:
            in_order = sorted(range(len(self.names)), key=self.names.__getitem__)
            self._by_name = np.zeros(len(in_order), np.int64)
            self._by_name[in_order] = np.arange(len(in_order))
        return np.asarray(self._by_name[rows])

    def free_sum(self, without: Iterable[Hostname]) -> Resources:
        """Return the sum of free resources on READY hosts that take another pod."""
        counts = (self._all[STATE] == READY) & (self._all[SLOTS] > 0)
        counts[self.rows(without)] = False
        cpu, memory, disk, gpu = (int(amounts[counts].sum()) for amounts in self._all[FREE])
        extended = {kind: int(self._all[column][counts].sum()) for kind, column in self._extended.items()}
        return Resources(cpu, memory, disk, gpu, to_extended(extended))

    def free_of(self, kind: str) -> Ints:
        """Return the free amounts ``[H]`` of an extended resource."""
        column = self._extended.get(kind)
        return np.zeros(len(self.names), np.int64) if column is None else self._all[column]

    def values_of(self, label: str) -> tuple[Ints, list[str]]:
        """Return the index of the label's value on each row ``[H]``, -1 where it has none or several; and the
        values."""
        if label == HOSTNAME_LABEL:
            return np.where(self._all[STATE] == EMPTY, -1, np.arange(len(self.names))), [*self.names]
        numbers: dict[str, int] = {}
        of_kind = [
            -1 if value is None else numbers.setdefault(value, len(numbers))
            for value in (only_value(labels, label) for labels in self._kinds.labels)
        ]
        of_rows = np.array([*of_kind, -1], np.int64)[self._all[KIND]]
        return np.where(self._all[STATE] == EMPTY, -1, of_rows), [*numbers]

    # Changes for one lease, undone by ``restore``.

    def set_pods(self, label: Label, hosts: Mapping[Hostname, int]) -> None:
        """Set how many pods with the label are on each host."""
        counts = self._pods[label] = np.zeros(len(self.names), np.int64)
        for name, count in hosts.items():
            if name in self.row_of:
                counts[self.row_of[name]] = count

    def set_rank(self, rows: Ints, rank: int) -> None:
        """Set the rank of hosts: lower ranks come first."""
        self._save_for_undo(rows)
        self._m[RANK, rows] = rank

    def set_aside(self, row: int, amounts: Resources, pod_count: int) -> None:
        """Take resources and pod slots of a host that are reserved for other pods off its free amounts."""
        self._save_for_undo(np.array([row]))
        self._m[FREE, row] = np.maximum(self._m[FREE, row] - np.array(tuple(amounts)), 0)
        for kind, amount in amounts.extended:
            if column := self._extended.get(kind):
                self._m[column, row] = max(int(self._m[column, row]) - amount, 0)
        self._m[LEFT, row] = (self._m[FREE, row] * np.array(self._weights_known)).sum()
        self._m[USED, row] = 1
        self._m[SLOTS, row] = max(int(self._m[SLOTS, row]) - pod_count, 0)

    def _save_for_undo(self, rows: Ints, counts: Ints | None = None, labels: Collection[Label] = ()) -> None:
        assert self.weights is not None  # computes the weights, which fill a column: that must not be undone
        self._undo.append(_Before(rows, self._m[:, rows].copy(), counts, labels))

    @property
    def mark(self) -> int:
        """Return the position in the undo list, for ``back_to``."""
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        for rows, columns, counts, labels in reversed(self._undo[mark:]):
            self._m[:, rows] = columns
            if counts is not None:
                for label in labels:
                    self._pods[label][rows] -= counts
        del self._undo[mark:]

    def restore(self) -> None:
        """Undo all changes, so that the hosts are as they were put."""
        self.back_to(0)
        self._pods.clear()
        if self._put_count > len(self.row_of):
            self._weights = None

    def take(self, shape: PodShape, labels: Collection[Label], chosen: Ints) -> None:
        """Place one pod on each of these rows, of which some may be equal."""
        rows, counts = np.unique(chosen, return_counts=True)
        self._save_for_undo(rows, counts, labels)
        asked = compute_needed(shape.resources)
        need = np.array(tuple(asked), np.int64)
        for kind, amount in asked.extended if len(rows) else ():
            self._m[self._extended[kind], rows] -= amount * counts
        if shape.revocable:
            self._m[SLACK, rows] -= need[CPU] * counts
            need[CPU] = 0
        if self._weights is not None:
            self._m[LEFT, rows] -= counts * int((need * self._weights).sum())
        for at, amount in enumerate(need.tolist()):
            self._m[at, rows] -= amount * counts
        if shape.volume_mib:
            beyond = (self._kinds.disk_of(shape, self._m[KIND, rows]) - need[DISK]) * counts
            self._m[DISK, rows] -= beyond
            self._m[LEFT, rows] -= beyond * self._weights_known[DISK]
        self._m[PORTS, rows] -= shape.port_count * counts
        self._m[SLOTS, rows] -= counts
        self._m[PUT, rows] += counts
        self._m[USED, rows] = 1
        for label in labels:
            if label not in self._pods:
                self._pods[label] = np.zeros(len(self.names), np.int64)
            self._pods[label][rows] += counts

    # Queries.

    def fitting(self, shape: PodShape, barred: Barred) -> Flags:
        """Return a flag ``[H]`` for hosts that take one more such pod, apart from the constraint on pods there."""
        hosts, need = self._all, compute_needed(shape.resources)
        fits = hosts[STATE] == READY
        fits &= hosts[SLOTS] > 0
        for kind, amount in enumerate(need):
            if amount:
                fits &= hosts[SLACK if shape.revocable and kind == CPU else kind] >= amount
        for name, amount in need.extended:
            fits &= self.free_of(name) >= amount
        if shape.volume_mib:
            fits &= hosts[DISK] >= self._kinds.disk_of(shape, hosts[KIND])
        if shape.port_count:
            fits &= hosts[PORTS] >= shape.port_count
        if barred:
            fits[list(barred)] = False
        takes = self._kinds.takes(shape)
        if not takes.all():
            fits &= takes[hosts[KIND]]
        for row in self._find_named(shape.constraint):
            has_capacity = (
                hosts[STATE, row] == READY and row not in barred and self.count_fits(shape, np.array([row])).any()
            )
            fits[row] = has_capacity and self._label_misfit(shape, row) is None
        return np.asarray(fits)

    def scores(self, preferences: tuple[HostPreference, ...]) -> Ints:
        """Return the score ``[H]`` of each row: the sum of the weights of the preferences that its host meets."""
        found = np.asarray(self._kinds.scores(preferences)[self._all[KIND]])
        for row in {row for each in preferences for row in self._find_named(each.constraint)}:
            found[row] = score(preferences, self._labels_of(row))
        return found

    def nearest(self, shape: PodShape, count: int) -> Ints:
        """Return rows of hosts that would take the pod if they were empty, the least lack first, ties by name."""
        rows, need = (
            np.flatnonzero(self.large_enough(shape)),
            np.array(tuple(compute_needed(shape.resources)), np.int64),
        )
        lacking = (np.maximum(need[:, None] - self.amounts(FREE, rows), 0) * self.weights[:, None]).sum(axis=0)
        return np.asarray(rows[np.lexsort((self.by_name(rows), lacking))][:count])

    def large_enough(self, shape: PodShape) -> Flags:
        """Return a flag ``[H]`` for hosts that would take the pod if they were empty."""
        hosts, asked = self._all, compute_needed(shape.resources)
        need = np.array(tuple(asked), np.int64)[:, None]
        meets = self._kinds.takes(shape)[hosts[KIND]]
        for row in self._find_named(shape.constraint):
            meets[row] = self._label_misfit(shape, row) is None
        meets &= (hosts[TOTAL] >= need).all(axis=0)
        for name, amount in asked.extended:
            meets &= hosts[self._extended[name] + 1] >= amount if name in self._extended else np.False_
        if shape.volume_mib:
            meets &= hosts[TOTAL][DISK] >= self._kinds.disk_of(shape, hosts[KIND])
        return np.asarray(meets)

    def count_fits(self, shape: PodShape, rows: Ints) -> Ints:
        """Return how many more such pods each row takes, by the amounts alone."""
        fit_counts, need = self._m[SLOTS, rows], compute_needed(shape.resources)
        for name, amount in need.extended:
            fit_counts = np.minimum(fit_counts, self.free_of(name)[rows] // amount)
        for kind, amount in enumerate(need):
            if amount:
                fit_counts = np.minimum(
                    fit_counts, self._m[SLACK if shape.revocable and kind == CPU else kind, rows] // amount
                )
        if shape.volume_mib:
            fit_counts = np.minimum(fit_counts, self._m[DISK, rows] // self._kinds.disk_of(shape, self._m[KIND, rows]))
        if shape.port_count:
            fit_counts = np.minimum(fit_counts, self._m[PORTS, rows] // shape.port_count)
        found: Ints = np.maximum(fit_counts, 0)
        return found

    def count_fits_with_pods(self, shape: PodShape, labels: Collection[Label], rows: Ints, fit_counts: Ints) -> Ints:
        """Return ``fit_counts`` cut to the pods that the constraint allows in addition to the pods on each host."""
        named = sorted(pod_labels_named(shape.constraint))
        if not named or not len(rows):
            return fit_counts
        assert shape.constraint is not None
        at_most = int(fit_counts.max(initial=0))
        known: dict[tuple[int, ...], int] = {}
        names = {self.row_of[name] for name in hosts_named(shape.constraint) if name in self.row_of}
        counts = [self._pods_with(label)[rows].tolist() for label in named]
        found = []
        for row, kind, *there in zip(rows.tolist(), self._m[KIND, rows].tolist(), *counts, strict=True):
            key = (-1 - row if row in names else kind, *there)
            if key not in known:
                pods = dict(zip(named, there, strict=True))
                known[key] = count_fits_with(shape.constraint, self._labels_of(row), pods, labels, at_most)
            found.append(known[key])
        return np.minimum(fit_counts, np.array(found, np.int64))

    @property
    def weights(self) -> Ints:
        """Return the weight ``[R]`` of a unit of each kind: kinds of which hosts have little count more.

        They are computed again after many hosts have changed.
        """
        if self._weights is None:
            hosts = self._all
            mean = np.maximum(hosts[TOTAL].sum(axis=1), hosts[FREE].sum(axis=1)) // max(len(self.row_of), 1)
            self._weights = SCALE // np.maximum(mean, 1)
            self._weights_known, self._put_count = tuple(self._weights.tolist()), 0
            hosts[LEFT] = (hosts[FREE] * self._weights[:, None]).sum(axis=0)
        return self._weights

    def leftover(self, rows: Ints) -> Ints:
        """Return the free resources of each row, each kind in proportion to its average capacity."""
        assert self.weights is not None  # computes the weights, which fill the column
        return self.column(LEFT, rows)

    def dominant_share(self, amounts: Resources) -> int:
        """Return the largest share of an average host among the kinds, in units of 1/SCALE."""
        return int((np.array(tuple(amounts), np.int64) * self.weights).max())

    @property
    def is_used(self) -> Flags:
        """Return a flag ``[H]`` for hosts that have pods."""
        return np.asarray(self._all[USED] > 0)

    @property
    def has_gpus(self) -> Flags:
        return np.asarray(self._all[TOTAL.start + GPU] > 0)

    @property
    def ranks(self) -> Ints:
        return np.asarray(self._all[RANK])

    def refusing(self, shape: PodShape, barred: Barred, without: Collection[int] = ()) -> Iterator[tuple[Misfit, int]]:
        """Yield counts of hosts by the first rule that they fail; rows ``without`` and hosts that fail none are left
        out."""
        hosts = self._all
        left = hosts[STATE] != EMPTY
        left[list(without)] = False
        leased = left & (hosts[STATE] == LEASED)
        yield Refused(HostRule.LEASED), int(leased.sum())
        left &= ~leased
        for row, why in barred.items():
            if left[row]:
                left[row] = False
                yield why, 1
        verdicts = self._kinds.verdicts(shape)
        for row in self._find_named(shape.constraint):
            if left[row] and (misfit := self._label_misfit(shape, row)):
                left[row] = False
                yield misfit, 1
        named = np.zeros(len(left), np.bool_)
        named[self._find_named(shape.constraint)] = True
        if any(verdicts):
            counts = np.bincount(hosts[KIND, left & ~named], minlength=len(verdicts)).tolist()
            yield from ((why, count) for why, count in zip(verdicts, counts, strict=True) if why and count)
            left &= named | self._kinds.takes(shape)[hosts[KIND]]
        yield from short_of(shape, hosts, self._kinds, left, self.free_of)
        yield from self._pods_refusing(shape, np.flatnonzero(left))

    def _pods_refusing(self, shape: PodShape, rows: Ints) -> Iterator[tuple[Misfit, int]]:
        named = sorted(pod_labels_named(shape.constraint))
        if not named:
            return
        assert shape.constraint is not None
        for row, *there in zip(rows.tolist(), *(self._pods_with(one)[rows].tolist() for one in named), strict=True):
            pods = by_key(zip(named, there, strict=True))
            if why := pods_misfit(shape.constraint, self._labels_of(row), pods):
                yield why, 1

    def _pods_with(self, label: Label) -> Ints:
        return self._pods.get(label, np.zeros(len(self.names), np.int64))

    def _find_named(self, constraint: Constraint | None) -> list[int]:
        return [self.row_of[name] for name in dict.fromkeys(hosts_named(constraint)) if name in self.row_of]

    def _label_misfit(self, shape: PodShape, row: int) -> Misfit | None:
        return label_misfit(shape.constraint, self._labels_of(row), shape.workload)

    def _labels_of(self, row: int) -> Labels:
        return {**self._kinds.labels[int(self._m[KIND, row])], HOSTNAME_LABEL: self.names[row]}
