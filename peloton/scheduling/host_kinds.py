"""Host kinds: sets of labels that hosts carry. Each constraint is evaluated once per kind, however many hosts it
has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from peloton.lifecycle.constraints import EXCLUSIVE_LABEL, Labels, labels_from, leaves, score
from peloton.lifecycle.host_pools import disk_percent
from peloton.lifecycle.label_tests import LABEL_TEST, label_under_test
from peloton.model.host_pool import HOST_POOL_LABEL, SERVED_LABEL, Workload
from peloton.model.misfit import Misfit
from peloton.model.pod import Constraint, HostLabel, HostPreference, Label, PodShape
from peloton.model.resources import compute_needed
from peloton.scheduling.fit import disk_misfit, label_misfit
from peloton.scheduling.tree import Flags, Ints

CONSTRAINTS_KEPT_MAX = 1_000
KindLabels = tuple[Label, ...]
"""The labels of a host without its name."""
_Rule = tuple[Constraint | None, Workload]
_Preferences = tuple[HostPreference, ...]


class HostKinds:
    def __init__(self) -> None:
        self._numbers: dict[KindLabels, int] = {}
        self.labels: list[Labels] = []  # by number
        self._verdicts: dict[_Rule, list[Misfit | None]] = {}  # by number, as in ``labels``
        self._takes: dict[_Rule, Flags] = {}  # the same as flags
        self._scores: dict[_Preferences, Ints] = {}  # by number
        self._disk_percents = np.zeros(0, np.int64)  # by number: the factor with which disk is announced

    def copy(self) -> HostKinds:
        """Return a copy with caches of its own."""
        other = HostKinds()
        other._numbers, other.labels = dict(self._numbers), [*self.labels]
        return other

    def number(self, kind: KindLabels) -> int:
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.labels)
            self.labels.append(labels_from(kind))
        return number

    def keep(self, numbers: Sequence[int]) -> list[int]:
        """Forget all kinds but these. Return their new numbers."""
        kinds = list(self._numbers)
        known = [kinds[number] for number in sorted(set(numbers))]
        self._numbers = {kind: number for number, kind in enumerate(known)}
        self.labels = [labels_from(kind) for kind in known]
        self._verdicts.clear()
        self._takes.clear()
        self._scores.clear()
        self._disk_percents = self._disk_percents[:0]
        return [self._numbers[kinds[number]] for number in numbers]

    def verdicts(self, shape: PodShape) -> list[Misfit | None]:
        """Return the label rule that each kind fails, by number; None: it takes the pod."""
        rule = shape.constraint, shape.workload
        found = self._verdicts.get(rule)
        if found is None:
            if len(self._verdicts) >= CONSTRAINTS_KEPT_MAX:
                self._verdicts.clear()
                self._takes.clear()
            found = self._verdicts[rule] = []
        if len(found) < len(self.labels):
            named = _name_values((shape.constraint,))
            known: dict[tuple[object, ...], Misfit | None] = {}
            for labels in self.labels[len(found) :]:
                alike = _relevant_labels(labels, named)
                if alike not in known:
                    known[alike] = label_misfit(shape.constraint, labels, shape.workload)
                found.append(known[alike])
        return found

    def takes(self, shape: PodShape) -> Flags:
        """Return a flag for each kind, by number: it takes the pod by its labels."""
        rule = shape.constraint, shape.workload
        verdicts = self.verdicts(shape)
        takes = self._takes.get(rule)
        if takes is None or len(takes) < len(verdicts):
            takes = self._takes[rule] = np.array([why is None for why in verdicts], np.bool_)
        return takes

    def scores(self, preferences: _Preferences) -> Ints:
        """Return the score of each kind, by number."""
        found = self._scores.get(preferences)
        start = 0 if found is None else len(found)
        if found is None or start < len(self.labels):
            if len(self._scores) >= CONSTRAINTS_KEPT_MAX:
                self._scores.clear()
            named = _name_values(each.constraint for each in preferences)
            known: dict[tuple[object, ...], int] = {}
            more = []
            for labels in self.labels[start:]:
                alike = _relevant_labels(labels, named)
                if alike not in known:
                    known[alike] = score(preferences, labels)
                more.append(known[alike])
            before = found if found is not None else np.zeros(0, np.int64)
            found = self._scores[preferences] = np.concatenate([before, np.array(more, np.int64)])
        return found

    def disk_of(self, shape: PodShape, numbers: Ints) -> Ints:
        """Return the disk that a pod with a new volume takes on hosts of these kinds, as ``need_on`` does."""
        own = compute_needed(shape.resources).disk_mib - shape.volume_mib
        return np.asarray((own + -(-shape.volume_mib * self._percents() // 100))[numbers])

    def short_of_disk(self, shape: PodShape, numbers: Ints, left: Ints) -> Iterator[tuple[Misfit, int]]:
        """Yield the misfits of hosts of these kinds that have only ``left`` disk for such a pod, and their counts."""
        for number in np.unique(numbers).tolist():
            most = left[numbers == number]
            yield disk_misfit(shape, self.labels[number], int(most.max())), len(most)

    def _percents(self) -> Ints:
        """Return the announced percentage of disk of each kind, by number."""
        if len(self._disk_percents) < len(self.labels):
            more = [disk_percent(labels) for labels in self.labels[len(self._disk_percents) :]]
            self._disk_percents = np.concatenate([self._disk_percents, np.array(more, np.int64)])
        return self._disk_percents


def _name_values(constraints: Iterable[Constraint | None]) -> dict[str, set[str]]:
    """Return the values that the constraints name, by the key of the label."""
    named: dict[str, set[str]] = {}
    for leaf in chain.from_iterable(map(leaves, constraints)):
        if isinstance(leaf, HostLabel):
            named.setdefault(leaf.key, set()).add(leaf.value)
    return named


def _relevant_labels(labels: Labels, named: Mapping[str, Collection[str]]) -> tuple[object, ...]:
    """Return the part of the labels that decides: values that the constraint does not name are alike."""
    found: list[object] = [
        EXCLUSIVE_LABEL in labels,
        *(str(labels.get(key)) for key in (SERVED_LABEL, HOST_POOL_LABEL)),
    ]
    for key, values in named.items():
        if key.startswith(LABEL_TEST):
            found.append(str(labels.get(label_under_test(key))))
            continue
        value = labels.get(key)
        found.append((value if value in values else None) if isinstance(value, str) else str(value))
    return tuple(found)
