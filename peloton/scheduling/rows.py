"""The arrays of a fleet: one row for each host, one column for each amount."""

from __future__ import annotations

from typing import NamedTuple

from peloton.model.ids import Hostname
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.scheduling.host_kinds import KindLabels
from peloton.scheduling.tree import KIND_COUNT

FREE, TOTAL = slice(0, KIND_COUNT), slice(KIND_COUNT, 2 * KIND_COUNT)
SLACK, PORTS, SLOTS, ORDER, KIND, STATE, RANK, USED, PUT, LEFT = range(2 * KIND_COUNT, 2 * KIND_COUNT + 10)
COLUMNS = 2 * KIND_COUNT + 10
"""The number of columns. USED is 1 where pods are, PUT counts the pods placed, LEFT is ``leftover``."""
EMPTY, READY, IDLE, LEASED = range(4)
"""The STATE of a row: unused; a host that takes pods; one of which nothing is on offer; one in another lease."""
GPU, DISK = RESOURCE_KINDS.index("gpu"), RESOURCE_KINDS.index("disk")


class HostRow(NamedTuple):
    """The properties of a host. ``kind``: its labels without its name; hosts of a lower ``order`` are filled first."""

    hostname: Hostname
    free: Resources
    total: Resources
    slack_milli: int
    port_count: int
    pod_slots: int
    kind: KindLabels
    order: int
    state: int = READY
    rank: int = 0
