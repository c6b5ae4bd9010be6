"""Constraints of pods on hosts, and their only evaluator.

A label may occur on a host any number of times, so a leaf compares a count. ``PodLabel`` counts pods; a caller that
cannot count them passes ``pods=None``, and the leaf is then undecided.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from peloton.lifecycle.label_tests import LABEL_TEST, describe_test, label_under_test, passes
from peloton.model.host import CLUSTER_KIND_LABEL, CLUSTER_LABEL, SECRETS_LABEL
from peloton.model.ids import Hostname
from peloton.model.negation import unequal
from peloton.model.pod import PORT_LABEL, AllOf, AnyOf, Constraint, HostLabel, HostPreference, Label, PodLabel

Labels = Mapping[str, str | Mapping[str, int]]
"""Label key -> its value, or a map from each value to its number of occurrences."""
HostLabels = dict[str, str | Mapping[str, int]]
"""Labels of one host; a mutable mapping."""
PodLabels = Mapping[str, Mapping[str, int]]
"""Label key -> value -> number of pods with it on the host."""

HOSTNAME_LABEL = "hostname"
EXCLUSIVE_LABEL = "peloton/exclusive"
"""Label of a host that takes only pods whose constraint mentions the label."""

COMPARE: dict[str, Callable[[int, int], bool]] = {"<": operator.lt, "=": operator.eq, ">": operator.gt}


def host_labels(hostname: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str | Mapping[str, int]]:
    """Return the labels of a host in the form that ``matches`` takes; ``hostname`` is always one of them."""
    counts: dict[str, dict[str, int]] = {HOSTNAME_LABEL: {hostname: 1}}
    for key, value in pairs:
        if (key, value) == (HOSTNAME_LABEL, hostname):
            continue
        values = counts.setdefault(key, {})
        values[value] = values.get(value, 0) + 1
    return dict(counts)


def label_pairs(labels: Labels) -> tuple[Label, ...]:
    """Return the sorted labels; a label that occurs twice on the host is returned twice."""
    pairs: list[Label] = []
    for key, found in labels.items():
        if isinstance(found, str):
            pairs.append((key, found))
        else:
            pairs += [(key, value) for value, count in found.items() for _ in range(count)]
    return tuple(sorted(pairs))


def labels_from(pairs: Collection[Label]) -> HostLabels:
    """Return the labels as a mapping; keys that occur more than once map to counts of values."""
    found: HostLabels = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts: dict[str, Counter[str]] = {}
    for key, value in pairs:
        counts.setdefault(key, Counter())[value] += 1
    return {key: dict(values) if values.total() > 1 else found[key] for key, values in counts.items()}


def matches(constraint: Constraint | None, labels: Labels, pods: PodLabels | None = None) -> bool:
    """Return whether a host with these labels satisfies the constraint. Exclusive hosts are not considered."""
    return constraint is None or evaluate(constraint, labels, pods) is not False


def evaluate(constraint: Constraint, labels: Labels, pods: PodLabels | None) -> bool | None:
    """Return True, False, or None if the constraint is undecided. An empty AllOf or AnyOf is undecided."""
    match constraint:
        case HostLabel(key, value, condition, count):
            found = _count_passing if key.startswith(LABEL_TEST) else _occurrences
            return COMPARE[condition](found(labels, key, value), count)
        case PodLabel(key, value, condition, count):
            return None if pods is None else COMPARE[condition](_occurrences(pods, key, value), count)
        case AllOf(parts):
            verdicts = {evaluate(part, labels, pods) for part in parts}
            return False if False in verdicts else True if True in verdicts else None
        case AnyOf(parts):
            verdicts = {evaluate(part, labels, pods) for part in parts}
            return True if True in verdicts else False if False in verdicts else None


def _occurrences(labels: Labels, key: str, value: str) -> int:
    found = labels.get(key)
    if found is None:
        return 0
    return int(found == value) if isinstance(found, str) else found.get(value, 0)


def _count_passing(labels: Labels, key: str, test: str) -> int:
    """Return the number of the host's labels that pass the test."""
    found = labels.get(label_under_test(key))
    if found is None:
        return 0
    if isinstance(found, str):
        return int(passes(found, test))
    return sum(count for value, count in found.items() if passes(value, test))


def score(preferences: Iterable[HostPreference], labels: Labels) -> int:
    """Return the sum of the weights of the preferences that a host with these labels meets."""
    return sum(each.weight for each in preferences if evaluate(each.constraint, labels, None) is True)


def only_value(labels: Labels, key: str) -> str | None:
    """Return the value of a label that the host has exactly once, or None."""
    found = labels.get(key)
    if found is None or isinstance(found, str):
        return found
    return next(iter(found)) if len(found) == 1 else None


def leaves(constraint: Constraint | None) -> Iterator[HostLabel | PodLabel]:
    """Yield every leaf of the tree, left to right."""
    if isinstance(constraint, AllOf | AnyOf):
        for part in constraint.constraints:
            yield from leaves(part)
    elif constraint is not None:
        yield constraint


def pod_labels_named(constraint: Constraint | None) -> frozenset[Label]:
    """Return the pod labels that the constraint counts."""
    return frozenset((leaf.key, leaf.value) for leaf in leaves(constraint) if isinstance(leaf, PodLabel))


def hosts_named(constraint: Constraint | None) -> Iterator[Hostname]:
    """Yield the hosts that the constraint names; all others are evaluated by their labels alone."""
    return (
        Hostname(leaf.value)
        for leaf in leaves(constraint)
        if isinstance(leaf, HostLabel) and leaf.key == HOSTNAME_LABEL
    )


def conjuncts(constraint: Constraint | None) -> tuple[Constraint, ...]:
    """Return the parts that must all hold, so that a reason can name the one that did not."""
    if constraint is None:
        return ()
    return constraint.constraints if isinstance(constraint, AllOf) else (constraint,)


def mentions(constraint: Constraint | None, key: str) -> bool:
    """Return whether any host label in the tree has this key, in any condition."""
    return any(isinstance(leaf, HostLabel) and leaf.key == key for leaf in leaves(constraint))


def may_hold_in(constraint: Constraint | None, cluster: str, kind: str = "") -> bool:
    """Return whether a host of this cluster could satisfy the constraint, with any other labels and pods. An empty
    ``kind`` is unknown."""
    match constraint:
        case HostLabel(key, value, condition, count) if key == CLUSTER_LABEL:
            return COMPARE[condition](int(value == cluster), count)
        case HostLabel(key, value, condition, count) if key == CLUSTER_KIND_LABEL and kind:
            return COMPARE[condition](int(value == kind), count)
        case AllOf(parts):
            return all(may_hold_in(part, cluster, kind) for part in parts)
        case AnyOf(parts) if parts:
            return any(may_hold_in(part, cluster, kind) for part in parts)
    return True


def describe(constraint: Constraint) -> str:
    """Return the constraint in words: ``label rack=a``, ``label gpu=k80 < 1``, ``(label a=1 or label b=2)``, ``not
    label a=1``."""
    match constraint:
        case HostLabel(key, value, "=", 1) if key.startswith(LABEL_TEST):
            return describe_test(key, value)
        case HostLabel(key, value, "<", 1) if key.startswith(LABEL_TEST):
            return f"not {describe_test(key, value)}"
        case HostLabel(key, value, "=", 1):
            return f"label {key}={value}"
        case HostLabel(key, value, "<", 1) if key == SECRETS_LABEL:
            return f"secrets mounted (no label {key}={value})"
        case HostLabel(key, value, condition, count):
            return f"label {key}={value} {condition} {count}"
        case PodLabel(key, value, "<", 1) if key == PORT_LABEL:
            return f"port {value} free"
        case PodLabel(key, value, condition, count):
            return f"pods with {key}={value} {condition} {count}"
        case AllOf(parts):
            return "(" + " and ".join(describe(part) for part in parts) + ")"
        case AnyOf(parts):
            if leaf := unequal(constraint):
                return f"not {describe(leaf)}"
            return "(" + " or ".join(describe(part) for part in parts) + ")"
