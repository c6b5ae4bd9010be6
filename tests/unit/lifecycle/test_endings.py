"""Causes of the end of a run: the party at fault, and the retries that it costs."""

from __future__ import annotations

import pytest

from peloton.lifecycle.endings import RULES, Fault, RetryRule
from peloton.model.pod import Cause


def test_every_cause_has_a_rule() -> None:
    """The table has a rule for every cause."""
    assert set(Cause) == set(RULES)


@pytest.mark.parametrize("cause", sorted(RULES))
def test_no_job_pays_for_what_the_cluster_does(cause: Cause) -> None:
    """A run evicted by the cluster uses up no attempt and does not count against a host; only the cluster
    evicts runs.
    """
    rule = RULES[cause]

    if rule.retry is RetryRule.ALWAYS:
        assert (Fault.CLUSTER, False, False) == (rule.fault, rule.counts, rule.blames_host)
    else:
        assert rule.termination is None
    if not rule.counts:
        assert rule.fault in (Fault.CLUSTER, Fault.HOST)
