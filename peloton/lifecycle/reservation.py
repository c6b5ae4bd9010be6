"""Reservations of hosts for pods that fit on none: the time, and the choice of the host.

Small pods take freed resources immediately, so that enough for a large pod may never be free at once. After the pod has
waited for long, resources that are freed on one host are reserved for it, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from peloton.model.daemon import Neighbour
from peloton.model.host import ReadyGang
from peloton.model.ids import Hostname
from peloton.model.reservation import SoonestHost, WaitingPod
from peloton.model.resources import Resources, pair_amounts

RESERVED_HOSTS_MAX = 8
HOSTS_PER_RESERVED = 10
"""Minimum hosts per reserved one; one host may always be reserved."""
NAMED_MAX = 100
"""Maximum pods of a placement that are considered for a reservation, the longest waiting first."""
NAMED_AFTER_S = 10.0
"""Minimum seconds since admission for a pod to be considered."""


def limit_reserved(host_count: int) -> int:
    """Return the maximum of reserved hosts in a cluster."""
    return min(RESERVED_HOSTS_MAX, max(host_count // HOSTS_PER_RESERVED, 1))


def waiting_pods(gangs: Iterable[ReadyGang]) -> tuple[WaitingPod, ...]:
    """Return pods outside gangs that have waited for a while, the longest first."""
    found = [
        WaitingPod(gang.pods[0][0], gang.shape, gang.waited_s, gang.vain_count)
        for gang in gangs
        if len(gang.pods) == 1 and (gang.waited_s >= NAMED_AFTER_S or gang.vain_count)
    ]
    return tuple(sorted(found, key=lambda pod: (-pod.vain_count, -pod.waited_s, pod.instance_id))[:NAMED_MAX])


def is_due(pod: WaitingPod, after_s: float) -> bool:
    """Return whether a host may be reserved for the pod. Slack for revocable pods is measured, not freed by ending
    pods, and pods that spread depend on the other pods of their job, so neither has reservations."""
    return not (pod.shape.revocable or pod.shape.layout) and (pod.waited_s >= after_s or pod.vain_count > 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host that could take the pod after enough of its pods end."""

    hostname: Hostname
    free: Resources
    pods: Sequence[Neighbour]
    is_last: bool = False  # chosen only if there is no other


def soonest(need: Resources, candidates: Sequence[Candidate]) -> SoonestHost | None:
    """Return the host that will probably have enough free resources first. Batch pods end by themselves and others
    stay, so it is the host where the smallest part of the resources of batch pods is needed; ties are broken by name.
    None: no host would have enough."""
    found = [
        (one.is_last, *scored, one.hostname) for one in candidates if (scored := _evaluate_host(need, one)) is not None
    ]
    if not found:
        return None
    _, _, lacking, ending, _, kind, hostname = min(found)
    return SoonestHost(hostname, kind, lacking, ending, len(found))


def _evaluate_host(need: Resources, host: Candidate) -> tuple[Fraction, int, int, int, str] | None:
    """Return, for the scarcest kind, the part of the batch pods' resources that has to be freed, the amount, the total,
    and the kind. None: all of it would not be enough."""
    leaving = sum((pod.holds for pod in host.pods if pod.is_leaving), Resources())
    ending = sum((pod.holds for pod in host.pods if pod.ends_itself and not pod.is_leaving), Resources())
    lacking = need - host.free - leaving
    if not lacking.fits_in(ending):
        return None
    parts = [
        (Fraction(max(amount, 0), max(held, 1)), max(amount, 0), held, -at, kind)
        for at, (kind, amount, held) in enumerate(pair_amounts(lacking, ending))
    ]
    part, amount, held, at, kind = max(parts)
    return part, amount, held, -at, kind
