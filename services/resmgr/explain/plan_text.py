"""Texts about hosts in plans of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.errors import PelotonError
from peloton.lifecycle.reason_text import amount_text, counted, placement_text
from peloton.model.daemon import DaemonRoom
from peloton.model.reason import PlacementReason
from peloton.model.resources import RESOURCE_KINDS
from services.resmgr.explain.text import reach_line


def room_lines(room: pb.PlannedRoom, admitted: int, queued: int, why: PlacementReason) -> Iterator[str]:
    """Yield lines on whether hosts have free resources for instances of a plan.

    ``why``: the reason of instances that would be admitted and find no host.
    """
    if room.notKnown:
        yield f"whether hosts have room for them now is not known: {room.notKnown}"
        return
    if admitted:
        found, hostless = room.foundInstances, room.hostlessInstances
        of_these = "it" if admitted == 1 else "all of these" if found == admitted else f"{found or 'none'} of these"
        who = "a host has" if admitted == found == 1 else "no host has" if admitted == 1 else "hosts have"
        others = "it" if admitted == 1 else str(hostless)
        wait = f"; {others} would wait for a host: {placement_text(why)}" if hostless and why else ""
        yield f"{who} room for {of_these} now{wait}"
    if queued:
        found = room.queuedFoundInstances
        of_these = (
            "the one" if queued == 1 else f"all {queued}" if found == queued else f"{found or 'none'} of the {queued}"
        )
        who = "hosts have" if queued > 1 else "a host has" if found else "no host has"
        yield f"{who} room now for {of_these} that would wait in the queue"
    if room.uncheckedInstances:
        unchecked = counted(room.uncheckedInstances, "instance")
        yield f"of {unchecked} it is not known whether hosts have room: they are of too many sorts"


def daemon_lines(pool_path: str, found: Mapping[str, DaemonRoom | PelotonError]) -> Iterator[str]:
    """Yield lines on the hosts for a planned daemon, by cluster."""
    yield f"The daemon of pool {pool_path} would stand in no queue: hosts decide where it runs."
    for cluster, room in found.items():
        if isinstance(room, PelotonError):
            where = f"cluster {cluster}: " if cluster else ""
            yield f"  {where}what it would find on hosts is not known: {room.message}"
            continue
        yield f"  {reach_line(room.reach)}"
        yield from (f"    {line}" for line in _on_hosts(room))


def _on_hosts(room: DaemonRoom) -> Iterator[str]:
    """Yield lines that count each matching host once."""
    evicted = counted(room.evicted_count, "preemptible instance")
    for count, what in (
        (room.free_count, "with room for it: it would run there at once"),
        (room.evicting_count, f"where {evicted} would be evicted for it after 10 s"),
        (room.waiting_count, "without room: it would wait there until others end"),
        (room.unchecked_count, "without room, where it was not looked at whom it would evict"),
        (room.away_count, "in maintenance: it would run there afterwards"),
    ):
        if count:
            yield f"{counted(count, 'host')} {what}"
    taken = [
        f"{kind} {amount_text(kind, amount)} of {amount_text(kind, whole)}"
        for kind, amount, whole in zip(RESOURCE_KINDS, room.overhead, room.capacity, strict=True)
        if amount
    ]
    if taken:
        yield f"its overhead, which pools would have less: {', '.join(taken)}"
