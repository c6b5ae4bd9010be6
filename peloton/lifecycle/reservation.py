"""When a host is reserved for a pod that fits on none, and which host.

Small pods take what others give back, as soon as it is there: room for a large pod may never be free at once. Once the
pod has waited for long, what frees on one host is kept for it, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from peloton.model.daemon import Neighbour
from peloton.model.host import ReadyGang
from peloton.model.ids import Hostname
from peloton.model.reservation import SoonestHost, WaitingPod
from peloton.model.resources import RESOURCE_KINDS, Resources

RESERVED_HOSTS_MAX = 8
HOSTS_PER_RESERVED = 10
"""At least so many hosts for each reserved one; of fewer hosts one may be reserved."""
NAMED_MAX = 100
"""Pods of a placement that may get a host reserved: those that have waited longest."""
NAMED_AFTER_S = 10.0
"""A pod that was admitted later than this is on its way to a host."""


def reserved_max(host_count: int) -> int:
    """Hosts of a cluster that are reserved at a time."""
    return min(RESERVED_HOSTS_MAX, max(host_count // HOSTS_PER_RESERVED, 1))


def waiting_pods(gangs: Iterable[ReadyGang]) -> tuple[WaitingPod, ...]:
    """Pods that stand alone and have waited for a while, the longest first."""
    found = [
        WaitingPod(gang.pods[0][0], gang.shape, gang.waited_s, gang.vain_count)
        for gang in gangs
        if len(gang.pods) == 1 and (gang.waited_s >= NAMED_AFTER_S or gang.vain_count)
    ]
    return tuple(sorted(found, key=lambda pod: (-pod.vain_count, -pod.waited_s, pod.instance_id))[:NAMED_MAX])


def is_due(pod: WaitingPod, after_s: float) -> bool:
    """Revocable pods take slack, which is measured: nobody gives it back. Where pods that spread may go depends on the
    others of their job."""
    return not (pod.shape.revocable or pod.shape.layout) and (pod.waited_s >= after_s or pod.vain_count > 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host that takes the pod once enough is given back there."""

    hostname: Hostname
    free: Resources
    pods: Sequence[Neighbour]
    is_last: bool = False  # chosen only where there is no other


def soonest(need: Resources, candidates: Sequence[Candidate]) -> SoonestHost | None:
    """The host that will probably have room first: pods of batch jobs end by themselves, others stay, so it is the one
    where the smallest part of what batch pods hold has to be given back; by name among equals. None: nowhere would it
    be enough."""
    found = [(one.is_last, *judged, one.hostname) for one in candidates if (judged := _to_end(need, one)) is not None]
    if not found:
        return None
    _, _, lacking, ending, kind, hostname = min(found)
    return SoonestHost(hostname, RESOURCE_KINDS[kind], lacking, ending, len(found))


def _to_end(need: Resources, host: Candidate) -> tuple[Fraction, int, int, int] | None:
    """The part that has to be given back of the scarcest kind, how much that is, of how much, and the kind. None: not
    all of it would be enough."""
    leaving = sum((pod.holds for pod in host.pods if pod.is_leaving), Resources())
    ending = sum((pod.holds for pod in host.pods if pod.ends_itself and not pod.is_leaving), Resources())
    lacking = need - host.free - leaving
    if not lacking.fits_in(ending):
        return None
    parts = [
        (Fraction(max(amount, 0), max(held, 1)), max(amount, 0), held, -kind)
        for kind, (amount, held) in enumerate(zip(lacking, ending, strict=True))
    ]
    part, amount, held, kind = max(parts)
    return part, amount, held, -kind
