"""Bin packing of pods of several shapes over a fleet: gangs first, then the largest pods, each by its shape's
recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.reason import HostRule, Misfit
from peloton.model.resources import needed
from peloton.scheduling.fewest import HOSTS_MAX, PODS_MAX, SHAPES_MAX, Small, fewer
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.recipes import NONE, choose
from peloton.scheduling.rows import PORTS, SLACK, SLOTS
from peloton.scheduling.spreading import Spreading
from peloton.scheduling.tree import KIND_COUNT, Flags, Ints


@dataclass(frozen=True, slots=True)
class Want:
    """A request for like pods, or for one gang, which is placed whole or not at all."""

    shape: PodShape
    labels: tuple[Label, ...]
    count: int
    is_gang: bool = False


BarredFor = Mapping[PodShape, Mapping[int, Misfit]]
"""The rows that take no pod of a shape, and the reason of each."""


def put_all(
    fleet: Fleet, wants: Sequence[Want], barred: BarredFor | None = None, spreading: Spreading | None = None
) -> list[Ints]:
    """Place the wants on the fleet, and return the rows of each one's pods, fewer than requested where they do
    not fit."""
    barred = barred or {}
    start = fleet.mark
    chosen = [NONE] * len(wants)
    for at in _largest_first(fleet, wants):
        want = wants[at]
        rows = choose(fleet, want.shape, want.labels, want.count, barred.get(want.shape), spreading)
        if want.is_gang and len(rows) < want.count:
            continue
        fleet.take(want.shape, want.labels, rows)
        if spreading is not None:
            spreading.add(rows)
        chosen[at] = rows
    if fleet.mark > start and _is_small(fleet, wants, chosen):
        chosen = _repack(*_make_small(fleet, start, wants, chosen, barred), chosen)
        for want, rows in zip(wants, chosen, strict=True):
            fleet.take(want.shape, want.labels, rows)
    return chosen


def gang_misfit(shape: PodShape, size: int, fit_counts: int) -> Misfit:
    """Return the misfit of hosts that take the pod but fewer members than the gang has, in one domain if that is
    required."""
    close = shape.layout.close if shape.layout else None
    return Misfit(
        HostRule.GANG_CAPACITY, wanted=size, left=fit_counts, name=close.label if close and close.is_required else ""
    )


def left_out(
    fleet: Fleet, want: Want, fit_counts: int, barred: Mapping[int, Misfit], spreading: Spreading | None
) -> dict[int, Misfit]:
    """Return the rows that would take the pod, if not for the spread of its job or the domain of its gang."""
    fits = fleet.fitting(want.shape, barred)
    found = dict(spreading.refusing(want.shape, fits)) if spreading is not None else {}
    too_small = gang_misfit(want.shape, want.count, fit_counts)
    return dict.fromkeys(np.flatnonzero(fits).tolist(), too_small) | found if too_small.name else found


def _is_small(fleet: Fleet, wants: Sequence[Want], chosen: Sequence[Ints]) -> bool:
    """Report whether a search for fewer hosts is worthwhile, and hosts and pods are plain enough for it."""
    if not 1 < len(wants) <= SHAPES_MAX:  # one shape is already placed on the fewest hosts
        return False
    rows = np.unique(np.concatenate(chosen))
    return (
        1 < len(rows) <= HOSTS_MAX
        and sum(map(len, chosen)) <= PODS_MAX
        and all(map(_is_plain, wants))
        and not fleet.ranks[rows].any()
    )


def _is_plain(want: Want) -> bool:
    shape = want.shape
    is_packed = shape.strategy is Strategy.PACK_HOST and shape.layout is None and not shape.volume_mib
    return is_packed and not pod_labels_named(shape.constraint)


def _make_small(
    fleet: Fleet, start: int, wants: Sequence[Want], chosen: Sequence[Ints], barred: BarredFor
) -> tuple[Ints, Small]:
    """Return the rows that were chosen, together with some unused ones, and the problem to solve on them."""
    rows = np.unique(np.concatenate(chosen))
    fleet.back_to(start)
    fits = [fleet.fitting(want.shape, barred.get(want.shape, {})) for want in wants]
    rows = np.unique(np.concatenate([rows, _sample(~fleet.is_used & (fleet.ranks == 0) & np.all(fits, axis=0))]))
    may = []
    for want, own, of_shape in zip(wants, chosen, fits, strict=True):
        is_kept = fleet.has_gpus[rows] & (want.shape.resources.gpu_milli == 0)
        may.append(of_shape[rows] & (np.isin(rows, own) | ~is_kept))
    needs = np.array([_need(want.shape) for want in wants], np.int64)
    counts = np.array([len(own) for own in chosen], np.int64)
    free = fleet.amounts([*range(KIND_COUNT), SLACK, PORTS, SLOTS], rows).T
    return rows, Small(free, fleet.is_used[rows], needs, counts, np.array(may))


def _sample(flags: Flags) -> Ints:
    """Sample the set flags from all over the fleet, so that hosts of each size are among them."""
    rows = np.flatnonzero(flags)
    return rows[:: max(len(rows) // (HOSTS_MAX // 2), 1)]


def _need(shape: PodShape) -> tuple[int, ...]:
    cpu, *rest = needed(shape.resources)
    return (0 if shape.revocable else cpu, *rest, cpu if shape.revocable else 0, shape.port_count, 1)


def _repack(rows: Ints, small: Small, chosen: list[Ints]) -> list[Ints]:
    laid = fewer(small, np.array([np.bincount(np.searchsorted(rows, own), minlength=len(rows)) for own in chosen]))
    return chosen if laid is None else [np.repeat(rows, counts) for counts in laid]


def _largest_first(fleet: Fleet, wants: Sequence[Want]) -> list[int]:
    """Sort gangs first, then pods; packed ones by their dominant share, so that small ones fill the gaps."""

    if len(wants) < 2:
        return [*range(len(wants))]

    def key(at: int) -> tuple[bool, int]:
        want = wants[at]
        if want.is_gang or want.shape.strategy is not Strategy.PACK_HOST:
            return not want.is_gang, 0
        return True, -fleet.dominant_share(want.shape.resources)

    return sorted(range(len(wants)), key=key)
