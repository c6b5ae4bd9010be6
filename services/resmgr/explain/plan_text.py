"""Texts about hosts in plans of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.errors import PelotonError
from peloton.lifecycle.reason_text import amount_text, format_count, placement_text
from peloton.model.daemon import DaemonPlan
from peloton.model.reason import PlacementReason
from peloton.model.resources import RESOURCE_KINDS
from services.resmgr.explain.text import reach_line


def capacity_lines(planned: pb.PlannedRoom, admitted: int, queued: int, why: PlacementReason) -> Iterator[str]:
    """Yield lines on whether hosts have free resources for instances of a plan.

    ``why``: the reason of instances that would be admitted and find no host.
    """
    if planned.notKnown:
        yield f"free resources of hosts are unknown: {planned.notKnown}"
        return
    if admitted:
        found, hostless = planned.foundInstances, planned.hostlessInstances
        of_these = "it" if admitted == 1 else "all of these" if found == admitted else f"{found or 'none'} of these"
        who = "a host has" if admitted == found == 1 else "no host has" if admitted == 1 else "hosts have"
        others = "it" if admitted == 1 else str(hostless)
        wait = f"; {others} would wait for a host: {placement_text(why)}" if hostless and why else ""
        yield f"{who} free resources for {of_these} now{wait}"
    if queued:
        found = planned.queuedFoundInstances
        of_these = (
            "the one" if queued == 1 else f"all {queued}" if found == queued else f"{found or 'none'} of the {queued}"
        )
        who = "hosts have" if queued > 1 else "a host has" if found else "no host has"
        yield f"{who} free resources now for {of_these} that would wait in the queue"
    if planned.uncheckedInstances:
        unchecked = format_count(planned.uncheckedInstances, "instance")
        yield f"{unchecked} were not compared with hosts: they have too many shapes"


def daemon_lines(pool_path: str, found: Mapping[str, DaemonPlan | PelotonError]) -> Iterator[str]:
    """Yield lines on the hosts for a planned daemon, by cluster."""
    yield f"The daemon of pool {pool_path} would not be queued: hosts decide where it runs."
    for cluster, planned in found.items():
        if isinstance(planned, PelotonError):
            where = f"cluster {cluster}: " if cluster else ""
            yield f"  {where}the free resources of hosts are unknown: {planned.message}"
            continue
        yield f"  {reach_line(planned.reach)}"
        yield from (f"    {line}" for line in _on_hosts(planned))


def _on_hosts(planned: DaemonPlan) -> Iterator[str]:
    """Yield lines that count each matching host once."""
    evicted = format_count(planned.evicted_count, "preemptible instance")
    for count, what in (
        (planned.free_count, "with free resources: it would run there at once"),
        (planned.evicting_count, f"where {evicted} would be evicted for it after 10 s"),
        (planned.waiting_count, "without free resources: it would wait there until pods end"),
        (planned.unchecked_count, "without free resources, evictions not evaluated"),
        (planned.unavailable_count, "in maintenance: it would run there afterwards"),
    ):
        if count:
            yield f"{format_count(count, 'host')} {what}"
    taken = [
        f"{kind} {amount_text(kind, amount)} of {amount_text(kind, whole)}"
        for kind, amount, whole in zip(RESOURCE_KINDS, planned.overhead, planned.capacity, strict=True)
        if amount
    ]
    if taken:
        yield f"its overhead, which pools would have less: {', '.join(taken)}"
