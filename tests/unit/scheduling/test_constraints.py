"""Constraints: the truth table, labels that are unknown, exclusive hosts, and agreement with placement."""

from __future__ import annotations

import pytest

from peloton.lifecycle.constraints import Labels, describe, host_labels, matches
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, PodLabel
from peloton.scheduling.fit import label_misfit

YES, NO = HostLabel("rack", "a"), HostLabel("rack", "z")
NO_SAY = PodLabel("app", "web")
LABELS: Labels = {"hostname": "h1", "rack": "a", "disk": {"ssd": 2}}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (None, True),
        (YES, True),
        (NO, False),
        (HostLabel("rack", "a", "=", 0), False),
        (HostLabel("rack", "z", "=", 0), True),
        (HostLabel("unknown", "x", "<", 1), True),
        (HostLabel("unknown", "x", ">", 0), False),
        (HostLabel("disk", "ssd", ">", 1), True),
        (HostLabel("disk", "ssd", "=", 1), False),
        (HostLabel("hostname", "h1"), True),
        (NO_SAY, True),
        (AllOf(()), True),
        (AnyOf(()), True),
        (AllOf((YES, YES)), True),
        (AllOf((YES, NO)), False),
        (AllOf((NO_SAY, NO)), False),
        (AllOf((NO_SAY, YES)), True),
        (AllOf((NO_SAY,)), True),
        (AnyOf((NO, YES)), True),
        (AnyOf((NO, NO)), False),
        (AnyOf((NO, NO_SAY)), False),
        (AnyOf((NO_SAY,)), True),
        (AllOf((AnyOf((NO, YES)), YES)), True),
    ],
)
def test_truth_table(constraint: Constraint | None, expected: bool) -> None:
    """A part without a result is neither match nor mismatch; at the top it matches."""
    assert expected == matches(constraint, LABELS)


@pytest.mark.parametrize(("count", "expected"), [(0, True), (1, False)])
def test_pods_are_counted_when_known(count: int, expected: bool) -> None:
    """A pod label is compared if pod counts are known; pods without the label count 0."""
    assert expected == matches(PodLabel("app", "web", "<", 1), LABELS, {"app": {"web": count}})


def test_exclusive() -> None:
    """Exclusive hosts accept only pods whose constraint mentions the label, in any form."""
    labels = host_labels("h1", [("peloton/exclusive", "ml")])

    assert label_misfit(None, labels) is not None
    assert label_misfit(HostLabel("hostname", "h1"), labels) is not None
    assert label_misfit(HostLabel("peloton/exclusive", "ml"), labels) is None
    assert (
        label_misfit(AnyOf((HostLabel("rack", "a"), HostLabel("peloton/exclusive", "other", "=", 0))), labels) is None
    )
    assert label_misfit(None, host_labels("h2", [])) is None


def test_host_labels_count() -> None:
    """Labels that occur twice count twice; the host's own name counts once."""
    labels = host_labels("h1", [("disk", "ssd"), ("disk", "ssd"), ("hostname", "h1")])

    assert labels == {"hostname": {"h1": 1}, "disk": {"ssd": 2}}


def test_describe() -> None:
    """A constraint reads as a sentence."""
    constraint = AllOf((YES, AnyOf((HostLabel("gpu", "k80", "<", 1), NO_SAY))))

    assert describe(constraint) == "(label rack=a and (label gpu=k80 < 1 or pods with app=web < 1))"
