"""All hosts of a cluster as columns, for sums and maps: H hosts by name, A amounts, R kinds of resources."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, is_not
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.scheduling.qos import Use

Ints = npt.NDArray[np.int64]
STATES = tuple(HostState)
PERCENT_MAX, UNKNOWN = 254, 255
"""Values of one byte: higher percentages are cut to the first; the second marks hosts without capacity or measure."""
_UNMEASURED = Use(-1, -1)
_KINDS = len(RESOURCE_KINDS)
_AMOUNTS = [f"{kind}_{unit}" for kind, unit in zip(RESOURCE_KINDS, ("milli", "mib", "mib", "milli"), strict=True)]
_ALL = (
    *(f"capacity.{amount}" for amount in _AMOUNTS),
    *(f"held.{amount}" for amount in _AMOUNTS),
    "revocable.cpu_milli",
    "revocable_held.cpu_milli",
)
_ALL_OF = attrgetter(*_ALL)


class HostAmounts(Protocol):
    """The amounts of one host that are read into columns. An object never changes: a changed host is another object."""

    capacity: Resources
    held: Resources
    revocable: Resources
    revocable_held: Resources


class KindSums(NamedTuple):
    """The sums of one kind over all hosts, in the units of ``Resources``."""

    capacity: int
    away: int  # capacity on hosts that are not UP
    held: int
    used: int = 0
    measured_capacity: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Measured use ``[H]`` by kind, of the kinds that are measured; -1 where a host is not measured."""

    by_kind: Mapping[str, Ints]

    @classmethod
    def of(cls, hostnames: Sequence[Hostname], uses: Mapping[Hostname, Use]) -> Measured:
        found = list(map(uses.get, hostnames, repeat(_UNMEASURED)))
        return cls(
            {
                "cpu": np.fromiter(map(attrgetter("cpu_milli"), found), np.int64, len(found)),
                "memory": np.fromiter(map(attrgetter("memory_mib"), found), np.int64, len(found)),
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class HostColumns:
    hostnames: Sequence[Hostname]
    states: npt.NDArray[np.uint8]  # [H] indices into STATES
    amounts: Ints  # [A, H]: capacity [R], held [R], slack, slack held

    def state_counts(self) -> dict[HostState, int]:
        counts = np.bincount(self.states, minlength=len(STATES)).tolist()
        return {state: count for state, count in zip(STATES, counts, strict=True) if count}

    def state_bytes(self, numbers: Mapping[HostState, int]) -> bytes:
        return np.array([numbers[state] for state in STATES], np.uint8)[self.states].tobytes()

    def sums(self, kind: str, measured: Measured) -> KindSums:
        at = RESOURCE_KINDS.index(kind)
        capacity, used = self.amounts[at], measured.by_kind.get(kind)
        found = KindSums(
            int(capacity.sum()), int(capacity[self.states > 0].sum()), int(self.amounts[_KINDS + at].sum())
        )
        if used is None:
            return found
        return found._replace(used=int(np.maximum(used, 0).sum()), measured_capacity=int(capacity[used >= 0].sum()))

    def slack(self) -> tuple[int, int]:
        """Return the offered revocable cpu and the part of it that is held, in thousandths of a cpu."""
        return int(self.amounts[-2].sum()), int(self.amounts[-1].sum())

    def compute_held_percents(self, kind: str) -> bytes:
        """Return the held percentage of each host ``[H]``, one byte each, rounded down."""
        at = RESOURCE_KINDS.index(kind)
        return _percents(self.amounts[_KINDS + at], self.amounts[at])

    def compute_used_percents(self, kind: str, measured: Measured) -> bytes:
        """Return the used percentage of each host ``[H]``, one byte each; empty for a kind that is not measured."""
        used = measured.by_kind.get(kind)
        return b"" if used is None else _percents(used, self.amounts[RESOURCE_KINDS.index(kind)])


@dataclass(slots=True)
class ColumnReader:
    """A reader of hosts into columns, call after call. Hosts that are the same objects as in the last call cost nearly
    nothing."""

    empty: HostAmounts  # the amounts of hosts that have none
    _registered: Mapping[Hostname, HostAmounts] = field(default_factory=dict)
    _others: frozenset[Hostname] = frozenset()
    _names: list[Hostname] = field(default_factory=list)
    _rows: list[HostAmounts] = field(default_factory=list)  # [H]
    _amounts: Ints = field(default_factory=lambda: np.zeros((len(_ALL), 0), np.int64))

    def read(self, registered: Mapping[Hostname, HostAmounts], states: Mapping[Hostname, HostState]) -> HostColumns:
        """Read all hosts into columns.

        ``registered`` has another object for each change of a host; ``states`` has the hosts that may not be UP,
        registered or without amounts.
        """
        others = frozenset(states.keys() - registered.keys())
        if self._registered.keys() != registered.keys() or self._others != others:
            self._names, self._rows, self._others = sorted(registered.keys() | others), [], others
        if self._registered is not registered or not self._rows:
            self._read_rows(list(map(registered.get, self._names, repeat(self.empty))))
        self._registered = registered
        places = np.zeros(len(self._names), np.uint8)
        for name, state in states.items():
            places[bisect_left(self._names, name)] = STATES.index(state)
        return HostColumns(self._names, places, self._amounts)

    def _read_rows(self, rows: list[HostAmounts]) -> None:
        before = self._rows or [self.empty] * len(rows)
        amounts = self._amounts.copy() if self._rows else np.zeros((len(_ALL), len(rows)), np.int64)
        changed = np.flatnonzero(np.fromiter(map(is_not, before, rows), np.bool_, len(rows)))
        if len(changed):
            amounts[:, changed] = np.array([_ALL_OF(rows[at]) for at in changed.tolist()], np.int64).T
        self._rows, self._amounts = rows, amounts  # the previous array is not changed: earlier HostColumns refer to it


def _percents(amounts: Ints, capacity: Ints) -> bytes:
    whole = np.maximum(amounts, 0) * 100 // np.maximum(capacity, 1)
    known = (capacity > 0) & (amounts >= 0)
    return np.where(known, np.minimum(whole, PERCENT_MAX), UNKNOWN).astype(np.uint8).tobytes()
