"""Could any host take a pod, were nothing else on it? If not, no wait helps, and the answer says why with the numbers.

What is free does not matter here, and neither do pods that are somewhere: both change. Hosts alike are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peloton.lifecycle.constraints import EXCLUSIVE_LABEL, Labels, accepts, describe, matches
from peloton.model.pod import PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.scheduling.reason import shown_amount


@dataclass(frozen=True, slots=True)
class HostKind:
    """Hosts alike in their labels and in what they have when they are empty."""

    capacity: Resources
    labels: Labels
    count: int = 1


def why_unfit(shape: PodShape, hosts: Iterable[HostKind]) -> str:
    """Why none of these hosts could ever take the pod; empty when one could, or when there are no hosts at all.

    A revocable pod is given no more cpu of a host than the host has.
    """
    kinds: list[HostKind] = []
    for kind in hosts:
        kinds.append(kind)
        if shape.resources.fits_in(kind.capacity) and accepts(kind.labels, shape.constraint):
            return ""
    total = sum(kind.count for kind in kinds)
    allowed = [kind for kind in kinds if accepts(kind.labels, shape.constraint)]
    if not total:
        return ""
    if not allowed:
        return _refused(shape, kinds, total)
    count = sum(kind.count for kind in allowed)
    which = _hosts(total) if count == total else f"the {count} of {_hosts(total)} that {_rule(shape)}"
    short = [
        f"no host has {name} {shown_amount(name, wanted)}: the largest of {which} has {shown_amount(name, most)}"
        for name, wanted, most in _largest(shape, allowed)
        if wanted > most
    ]
    if short:
        return "; ".join(short)
    wanted = " and ".join(f"{name} {shown_amount(name, want)}" for name, want, _ in _largest(shape, allowed) if want)
    return f"no host has {wanted} together: there are {which}"


def _refused(shape: PodShape, kinds: Iterable[HostKind], total: int) -> str:
    if shape.constraint is None:
        return f"0 of {_hosts(total)} take pods that do not ask for {EXCLUSIVE_LABEL}"
    meeting = sum(kind.count for kind in kinds if matches(shape.constraint, kind.labels))
    told = f"{meeting} of {_hosts(total)} {_rule(shape)}"
    return f"{told}, and take only pods that ask for {EXCLUSIVE_LABEL}" if meeting else told


def _rule(shape: PodShape) -> str:
    """What hosts do that may have the pod."""
    return f"meet the constraint {describe(shape.constraint)}" if shape.constraint else "are not kept for others"


def _largest(shape: PodShape, kinds: list[HostKind]) -> list[tuple[str, int, int]]:
    """(kind of resource, what the pod wants of it, the most that a host has)."""
    most = (max(amounts) for amounts in zip(*(kind.capacity for kind in kinds), strict=True))
    return list(zip(RESOURCE_KINDS, shape.resources, most, strict=True))


def _hosts(count: int) -> str:
    return f"{count} host{'' if count == 1 else 's'}"
