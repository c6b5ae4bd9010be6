"""Shortages of hosts by the amounts alone: the rules of ``fit.capacity_misfit`` for all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peloton.model.misfit import HostRule, LackingAmount, LackingPorts, Misfit, Refused
from peloton.model.pod import PodShape
from peloton.model.resources import RESOURCE_KINDS, compute_needed
from peloton.scheduling.host_kinds import HostKinds
from peloton.scheduling.rows import DISK, IDLE, KIND, PORTS, SLACK, SLOTS, STATE
from peloton.scheduling.tree import CPU, Flags, Ints


def short_of(
    shape: PodShape, hosts: Ints, kinds: HostKinds, left: Flags, free_of: Callable[[str], Ints]
) -> Iterator[tuple[Misfit, int]]:
    """Yield the misfits of hosts that lack an amount, and their counts; take these hosts out of ``left``.

    ``hosts`` are the columns of a fleet, and ``free_of`` returns the free amounts of an extended resource.
    """
    need = compute_needed(shape.resources)
    for kind, amount in enumerate(need):
        if kind == DISK and shape.volume_mib:
            short = left & (hosts[DISK] < kinds.disk_of(shape, hosts[KIND]))
            yield from kinds.short_of_disk(shape, hosts[KIND, short], hosts[DISK, short])
            left &= ~short
            continue
        is_revocable = shape.revocable and kind == CPU
        have = hosts[SLACK if is_revocable else kind]
        if (short := left & (have < amount)).any():
            rule = HostRule.REVOCABLE_RESOURCES if is_revocable else HostRule.FREE_RESOURCES
            yield LackingAmount(rule, RESOURCE_KINDS[kind], amount, int(have[short].max())), int(short.sum())
            left &= ~short
    for name, amount in need.extended:
        have = free_of(name)
        if (short := left & (have < amount)).any():
            yield LackingAmount(HostRule.FREE_RESOURCES, name, amount, int(have[short].max())), int(short.sum())
            left &= ~short
    for rule, short in (
        (HostRule.NOT_OFFERED, hosts[STATE] == IDLE),
        (HostRule.POD_SLOTS, hosts[SLOTS] <= 0),
    ):
        if (short := left & short).any():
            yield Refused(rule), int(short.sum())
            left &= ~short
    if (short := left & (hosts[PORTS] < shape.port_count)).any():
        yield LackingPorts(shape.port_count, int(hosts[PORTS, short].max())), int(short.sum())
        left &= ~short
