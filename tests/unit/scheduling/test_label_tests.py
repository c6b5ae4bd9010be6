"""Constraints that test a label of a host without naming its value."""

from __future__ import annotations

import pytest

from peloton.lifecycle.constraints import describe
from peloton.lifecycle.label_tests import EXISTS, LABEL_TEST
from peloton.model.pod import HostLabel, PodShape
from peloton.model.resources import Resources
from peloton.scheduling.host_kinds import HostKinds

GEN = LABEL_TEST + "gen"


@pytest.mark.parametrize(
    ("rule", "taken", "words"),
    [
        (HostLabel(GEN, EXISTS), [True, True, True, False], "label gen exists"),
        (HostLabel(GEN, EXISTS, "<"), [False, False, False, True], "not label gen exists"),
        (HostLabel(GEN, "> 4"), [False, True, False, False], "label gen > 4"),
        (HostLabel(GEN, "< 4"), [True, False, False, False], "label gen < 4"),
    ],
)
def test_hosts_with_different_values_are_not_alike(rule: HostLabel, taken: list[bool], words: str) -> None:
    """Each value of the tested label is evaluated, also of a kind that joins later; reasons have the test in words."""
    kinds = HostKinds()
    shape = PodShape(Resources.of(1, 1), constraint=rule)
    kinds.number((("gen", "3"),))
    kinds.takes(shape)
    for labels in ((("gen", "5"),), (("gen", "new"),), (("rack", "a"),)):
        kinds.number(labels)
    assert (taken, words) == (kinds.takes(shape).tolist(), describe(rule))
