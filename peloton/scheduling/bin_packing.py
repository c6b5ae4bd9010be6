"""Bin packing of pods of several shapes over a fleet: gangs first, then the largest pods, each by its shape's
recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.misfit import GangCapacity, Misfit
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.resources import compute_needed
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.host_minimizer import HOSTS_MAX, PODS_MAX, SHAPES_MAX, PackingProblem, minimize_hosts
from peloton.scheduling.recipes import NONE, choose
from peloton.scheduling.rows import PORTS, SLACK, SLOTS
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.tree import KIND_COUNT, Flags, Ints


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A request for like pods, or for one gang, which is placed whole or not at all."""

    shape: PodShape
    labels: tuple[Label, ...]
    count: int
    is_gang: bool = False


BarredFor = Mapping[PodShape, Mapping[int, Misfit]]
"""The rows that take no pod of a shape, and the reason of each."""


def pack_requests(
    fleet: Fleet, requests: Sequence[PodRequest], barred: BarredFor | None = None, spreading: Spreading | None = None
) -> list[Ints]:
    """Place the wants on the fleet, and return the rows of each one's pods, fewer than requested where they do
    not fit."""
    barred = barred or {}
    start = fleet.mark
    chosen = [NONE] * len(requests)
    for at in _largest_first(fleet, requests):
        request = requests[at]
        rows = choose(fleet, request.shape, request.labels, request.count, barred.get(request.shape), spreading)
        if request.is_gang and len(rows) < request.count:
            continue
        fleet.take(request.shape, request.labels, rows)
        if spreading is not None:
            spreading.add(rows)
        chosen[at] = rows
    if fleet.mark > start and _is_searchable(fleet, requests, chosen):
        chosen = _repack(*_make_problem(fleet, start, requests, chosen, barred), chosen)
        for request, rows in zip(requests, chosen, strict=True):
            fleet.take(request.shape, request.labels, rows)
    return chosen


def gang_misfit(shape: PodShape, size: int, fit_counts: int) -> GangCapacity:
    """Return the misfit of hosts that take the pod but fewer members than the gang has, in one domain if that is
    required."""
    close = shape.layout.close if shape.layout else None
    return GangCapacity(size, fit_counts, close.label if close and close.is_required else "")


def find_left_out(
    fleet: Fleet, request: PodRequest, fit_counts: int, barred: Mapping[int, Misfit], spreading: Spreading | None
) -> dict[int, Misfit]:
    """Return the rows that would take the pod, if not for the spread of its job or the domain of its gang."""
    fits = fleet.fitting(request.shape, barred)
    found = dict(spreading.refusing(request.shape, fits)) if spreading is not None else {}
    too_small = gang_misfit(request.shape, request.count, fit_counts)
    return dict.fromkeys(np.flatnonzero(fits).tolist(), too_small) | found if too_small.label else found


def _is_searchable(fleet: Fleet, requests: Sequence[PodRequest], chosen: Sequence[Ints]) -> bool:
    """Return whether a search for fewer hosts is worthwhile, and hosts and pods are plain enough for it."""
    if not 1 < len(requests) <= SHAPES_MAX:  # one shape is already placed on the fewest hosts
        return False
    rows = np.unique(np.concatenate(chosen))
    return (
        1 < len(rows) <= HOSTS_MAX
        and sum(map(len, chosen)) <= PODS_MAX
        and all(map(_is_plain, requests))
        and not fleet.ranks[rows].any()
    )


def _is_plain(request: PodRequest) -> bool:
    shape = request.shape
    is_packed = shape.strategy is Strategy.PACK_HOST and shape.layout is None and not shape.volume_mib
    is_packed = is_packed and not compute_needed(shape.resources).extended and not shape.preferences
    return is_packed and not pod_labels_named(shape.constraint)


def _make_problem(
    fleet: Fleet, start: int, requests: Sequence[PodRequest], chosen: Sequence[Ints], barred: BarredFor
) -> tuple[Ints, PackingProblem]:
    """Return the rows that were chosen, together with some unused ones, and the problem to solve on them."""
    rows = np.unique(np.concatenate(chosen))
    fleet.back_to(start)
    fits = [fleet.fitting(request.shape, barred.get(request.shape, {})) for request in requests]
    rows = np.unique(np.concatenate([rows, _sample(~fleet.is_used & (fleet.ranks == 0) & np.all(fits, axis=0))]))
    may = []
    for request, own, of_shape in zip(requests, chosen, fits, strict=True):
        is_kept = fleet.has_gpus[rows] & (request.shape.resources.gpu_milli == 0)
        may.append(of_shape[rows] & (np.isin(rows, own) | ~is_kept))
    needs = np.array([_need(request.shape) for request in requests], np.int64)
    counts = np.array([len(own) for own in chosen], np.int64)
    free = fleet.amounts([*range(KIND_COUNT), SLACK, PORTS, SLOTS], rows).T
    return rows, PackingProblem(free, fleet.is_used[rows], needs, counts, np.array(may))


def _sample(flags: Flags) -> Ints:
    """Sample the set flags from all over the fleet, so that hosts of each size are among them."""
    rows = np.flatnonzero(flags)
    return rows[:: max(len(rows) // (HOSTS_MAX // 2), 1)]


def _need(shape: PodShape) -> tuple[int, ...]:
    cpu, *rest = compute_needed(shape.resources)
    return (0 if shape.revocable else cpu, *rest, cpu if shape.revocable else 0, shape.port_count, 1)


def _repack(rows: Ints, small: PackingProblem, chosen: list[Ints]) -> list[Ints]:
    laid = minimize_hosts(
        small, np.array([np.bincount(np.searchsorted(rows, own), minlength=len(rows)) for own in chosen])
    )
    return chosen if laid is None else [np.repeat(rows, counts) for counts in laid]


def _largest_first(fleet: Fleet, requests: Sequence[PodRequest]) -> list[int]:
    """Sort gangs first, then pods; packed ones by their dominant share, so that small ones fill the gaps."""

    if len(requests) < 2:
        return [*range(len(requests))]

    def key(at: int) -> tuple[bool, int]:
        request = requests[at]
        if request.is_gang or request.shape.strategy is not Strategy.PACK_HOST:
            return not request.is_gang, 0
        return True, -fleet.dominant_share(request.shape.resources)

    return sorted(range(len(requests)), key=key)
