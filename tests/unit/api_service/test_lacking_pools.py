"""Pools that wait for their entitlement."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.model.times import NS_PER_S
from services.api.lacking_pools import LackingPools

NOW_NS = 1_700_000_000 * NS_PER_S


def answer(*heads: tuple[str, pb.Rule.ValueType]) -> pb.PoolWhyResponse:
    holder = pb.Holder(poolPath="/eng/maps", amount=40, borrowed=10)
    own = pb.Holder(poolPath="/eng/search", amount=4)
    found = pb.PoolWhyResponse()
    for path, rule in heads:
        reason = pb.Reason(rule=rule, kind="cpu", text=f"{path} wants cpu", holders=[holder, own])
        found.queues.append(pb.QueueHead(poolPath=path, queue=pb.QUEUE_ORDINARY, head=pb.WaitingGangs(reason=reason)))
    return found


def test_who_waits_for_long_is_reported() -> None:
    """The problem has the holders and the start of the wait; a satisfied pool starts again at zero, and a demand
    above the entitlement is not a problem."""
    lacking = LackingPools()
    both = answer(("/a", pb.RULE_CLUSTER_CAPACITY), ("/b", pb.RULE_CLUSTER_CAPACITY), ("/c", pb.RULE_ENTITLEMENT))
    only_a = answer(("/a", pb.RULE_CLUSTER_CAPACITY))

    assert [] == lacking.find(both, 0.0, NOW_NS)
    assert [] == lacking.find(only_a, 200.0, NOW_NS)
    (found,) = lacking.find(both, 400.0, NOW_NS)

    assert (
        "Pool /a has waited for 6 min for what it is entitled to: /a wants cpu; held by /eng/maps (cpu 40, 10 above "
        "its reservation), /eng/search (cpu 4)" == found.text
    )
    assert NOW_NS - 400 * NS_PER_S == found.since_ns


def test_what_never_fits_is_reported_elsewhere() -> None:
    """A gang above the cluster's capacity is not a problem of other pools."""
    lacking = LackingPools()
    never = answer(("/a", pb.RULE_CLUSTER_CAPACITY))
    never.queues[0].head.reason.isFinal = True
    for now_s in (0.0, 1_000.0):
        assert [] == lacking.find(never, now_s, NOW_NS)
