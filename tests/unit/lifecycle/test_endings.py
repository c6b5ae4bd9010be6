"""Whose fault an end is, and who pays."""

from __future__ import annotations

import pytest

from peloton.lifecycle.endings import RULES, Again, Fault
from peloton.model.pod import Cause


def test_every_cause_has_a_rule() -> None:
    """The table is whole."""
    assert set(Cause) == set(RULES)


@pytest.mark.parametrize("cause", sorted(RULES))
def test_nobody_pays_for_what_the_cluster_does(cause: Cause) -> None:
    """Who is sent away uses up no attempt and speaks against no host; only the cluster sends runs away."""
    rule = RULES[cause]

    if rule.again is Again.ALWAYS:
        assert (Fault.CLUSTER, False, False) == (rule.fault, rule.counts, rule.blames_host)
    else:
        assert rule.termination is None
    if not rule.counts:
        assert rule.fault in (Fault.CLUSTER, Fault.HOST)
