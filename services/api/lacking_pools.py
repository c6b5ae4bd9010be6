"""Pools that wait for resources within their entitlement, according to the heads of their queues."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2
from peloton.lifecycle import problems
from peloton.model.problem import Problem

Head = tuple[str, int]
"""Path of the pool, and number of its queue."""


class LackingPools:
    """Waiting times of the heads of queues, as far back as this process has observed them."""

    def __init__(self) -> None:
        self._since_s: dict[Head, float] = {}

    def find(self, answer: explain_pb2.PoolWhyResponse, now_s: float, wall_ns: int) -> list[Problem]:
        """List pools that lack resources; ``now_s`` comes from a monotonic clock."""
        reasons = {(one.poolPath, int(one.queue)): reason for one in answer.queues if (reason := _lack_reason(one))}
        self._since_s = {head: self._since_s.get(head, now_s) for head in reasons}
        heads = [
            (path, reason.text, _holders(reason), now_s - self._since_s[path, queue])
            for (path, queue), reason in reasons.items()
        ]
        return problems.lacking_pools(heads, wall_ns)


def _lack_reason(head: explain_pb2.QueueHead) -> explain_pb2.Reason | None:
    """Return the reason of a head that its pool allows but the hosts have no resources for, else None."""
    reason = head.head.reason
    is_lacking = reason.rule == explain_pb2.RULE_CLUSTER_CAPACITY and not reason.isFinal
    return reason if is_lacking else None


def _holders(reason: explain_pb2.Reason) -> str:
    return ", ".join(
        f"{one.poolPath} ({reason.kind} {one.amount:g}"
        + (f", {one.borrowed:g} above its reservation)" if one.borrowed else ")")
        for one in reason.holders
        if one.poolPath
    )
