"""Dry runs of placement: how many planned pods fit on hosts now, and which rules keep the others off which hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from peloton.model.misfit import Misfit
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.reason import merge_misfits
from peloton.scheduling.bin_packing import BarredFor, PodRequest, gang_misfit, pack_requests
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.recipes import choose
from peloton.scheduling.spreading import Spreading


def find_capacity(
    fleet: Fleet, pods: Sequence[PlannedPods], barred: BarredFor, spreading: Spreading | None = None
) -> list[FoundCapacity]:
    """Place the planned pods tentatively: in each turn the gang, which is placed by itself, then the others together.

    Pods that fit are taken off the fleet's free resources. Hosts that fail none of the rules for one pod count as too
    full for a gang.
    """
    found = [FoundCapacity(0)] * len(pods)
    for place in sorted({_place(each) for each in pods}):
        mine = [at for at, each in enumerate(pods) if _place(each) == place]
        requests = [PodRequest(pods[at].shape, pods[at].labels, pods[at].count, pods[at].is_gang) for at in mine]
        chosen = pack_requests(fleet, requests, barred, spreading)
        for at, request, rows in zip(mine, requests, chosen, strict=True):
            left = request.count - len(rows)
            refusing = _find_refusing(fleet, request, left, barred.get(request.shape, {}), spreading) if left else ()
            found[at] = FoundCapacity(len(rows), merge_misfits(refusing))
    return found


def _place(pods: PlannedPods) -> tuple[int, bool]:
    return pods.turn, not pods.is_gang


def _find_refusing(
    fleet: Fleet, request: PodRequest, left: int, barred: Mapping[int, Misfit], spreading: Spreading | None
) -> Iterator[tuple[Misfit, int]]:
    """Yield the refusing hosts by rule, by the resources left after the pods that found a host."""
    fits = fleet.fitting(request.shape, barred)
    skewed = dict(spreading.refusing(request.shape, fits)) if spreading is not None else {}
    found = [one for one in fleet.refusing(request.shape, {**skewed, **barred}) if one[1]]
    yield from found
    fitting = len(fleet) - sum(count for _, count in found)
    if fitting:
        fit_counts = choose(fleet, request.shape, request.labels, left, barred, spreading)
        yield gang_misfit(request.shape, left, len(fit_counts)), fitting
