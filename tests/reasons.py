"""Reasons as roles hand them to each other, and their words."""

from __future__ import annotations

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.misfit import HostRule, LackingAmount
from peloton.model.reason import (
    ClusterReason,
    Grounds,
    Infeasible,
    NoHost,
    PlacementReason,
    QosReason,
    QosRule,
    RefusingHosts,
    RequeueReason,
    RequeueRule,
    Rule,
)
from peloton.model.resources import Resources

PREEMPTED = Grounds(Rule.ENTITLEMENT, "/p", "/q", "x", "cpu", wanted=2_000, held=8_000, bound=5_000)
PREEMPTED_TEXT = eviction_text(PREEMPTED)
HOT = QosReason(QosRule.HOT_CPU, "h1", used=3_900, total=4_000, bound=90)
REQUEUED = RequeueReason(RequeueRule.NO_HOST_IN_TIME, seconds=600)


def lacking_capacity(pod_count: int, host_count: int = 3, *, is_gang: bool = False) -> PlacementReason:
    """No host has 2 gpus free."""
    refusing = RefusingHosts.of(host_count, LackingAmount(HostRule.FREE_RESOURCES, "gpu", 2_000, 1_000))
    return (ClusterReason(pods=(NoHost(pod_count, is_gang, (refusing,)),)),)


def too_large(cpu: int, cluster: str = "") -> Infeasible:
    """Three hosts of four cpus."""
    return Infeasible(cluster, 3, 3, 3, wanted=Resources(cpu * 1_000), largest=Resources(4_000))
