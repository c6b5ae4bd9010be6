"""Pools drawn as a table, and entitlement scenarios made of two of them.

A scenario file is: comments (#), ``capacity`` and ``slack_cpu`` lines, a table of pools with their allocation and
demand, a line of dashes, and the expected table. Amounts are cpu/memory/disk/gpu in cores, MiB, MiB and gpus; missing
kinds are 0. A single share or type holds for all kinds; ``-`` or an empty cell is the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.respool import PoolResource, PoolSpec, ReservationType
from peloton.scheduling.entitlement import Entitlement, Load
from peloton.scheduling.tree import Ints, PoolTree, build_tree

UNITS = (1000, 1, 1, 1000)
LICENSE = "license/solver"
Row = Mapping[str, str]


def amounts(text: str) -> list[int]:
    """``10/200`` -> [10000, 200, 0, 0]; a fifth amount is of LICENSE."""
    given = [Decimal(part) for part in text.split("/")] if text.strip("- ") else []
    padded = given + [Decimal(0)] * (len(UNITS) - len(given))
    return [int(value * unit) for value, unit in zip(padded, (*UNITS, 1), strict=False)]


def shown(values: Iterable[int], kinds: int) -> str:
    """Format the first ``kinds`` kinds: the reverse of ``amounts``."""
    pairs = list(zip(values, UNITS, strict=True))[:kinds]
    return "/".join(f"{Decimal(int(value)) / unit:f}" for value, unit in pairs)


def pool_id(path: str) -> RespoolId:
    """Return the path as the pool's id, as in all tests."""
    return RespoolId(path) if path.strip("/") else ROOT_POOL_ID


def pool(
    path: str,
    reservation: str = "",
    limit: str = "",
    share: str = "1",
    type: str = "ELASTIC",
    slack_limit: str = "",
    controller_limit: str = "",
) -> PoolSpec:
    parent, _, name = path.rpartition("/")
    reserved, limits = amounts(reservation), amounts(limit)
    shares = share.split("/") * (1 if "/" in share else len(limits))
    columns = zip((*RESOURCE_KINDS, LICENSE)[: len(limits)], reserved, limits, shares, strict=True)
    kind_type = ReservationType(type.upper() or "ELASTIC")
    return PoolSpec(
        pool_id(path),
        pool_id(parent),
        name,
        tuple(PoolResource(kind, r, lim, int(s), kind_type) for kind, r, lim, s in columns),
        float(controller_limit) if controller_limit else None,
        float(slack_limit) if slack_limit else None,
    )


def read_table(lines: Sequence[str]) -> list[Row]:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.strip()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def draw_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]


def pools_of(rows: Iterable[Row]) -> list[PoolSpec]:
    columns = ("reservation", "limit", "share", "type", "slack_limit", "controller_limit")
    return [pool(row["pool"], **{c: row[c].strip("-") for c in columns if row.get(c, "").strip("-")}) for row in rows]


def load_of(tree: PoolTree, rows: Iterable[Row]) -> Load:
    columns: dict[str, Ints] = {}
    for name in ("demand", "slack_demand", "allocation", "slack_allocation"):
        columns[name] = np.zeros_like(tree.reservation)
        for row in rows:
            columns[name][tree.row[pool_id(row["pool"])]] = amounts(row.get(name, ""))
    return Load(**columns)


@dataclass
class Scenario:
    head: list[str]  # everything above the dashes
    expected: list[str]

    @classmethod
    def parse(cls, text: str) -> Scenario:
        above, _, below = text.partition("\n---\n")
        return cls(above.splitlines(), [line for line in below.splitlines() if line.strip()])

    @property
    def rows(self) -> list[Row]:
        return read_table([line for line in self.head if line.startswith("|")])

    def setting(self, name: str) -> str:
        found = [line.removeprefix(name).strip() for line in self.head if line.startswith(name + " ")]
        return found[0] if found else "0"

    @property
    def capacity(self) -> Ints:
        return np.array(amounts(self.setting("capacity")), np.int64)

    @property
    def slack_cpu(self) -> int:
        return amounts(self.setting("slack_cpu"))[0]

    def tree(self) -> PoolTree:
        return build_tree(pools_of(self.rows))

    def draw(self, tree: PoolTree, entitlement: Entitlement) -> list[str]:
        """The result in the columns that the scenario expects."""
        header = [cell.strip() for cell in self.expected[0].strip().strip("|").split("|")]
        kinds = self.setting("capacity").count("/") + 1
        arrays = {"entitlement": entitlement.total, "non_slack": entitlement.non_slack, "slack": entitlement.slack}
        rows = []
        for row in self.rows:
            index = tree.row[pool_id(row["pool"])]
            rows.append([row["pool"], *(shown(arrays[column][index], kinds) for column in header[1:])])
        return draw_table(header, rows)

    def text(self, drawn: Sequence[str]) -> str:
        return "\n".join([*self.head, "---", *drawn]) + "\n"
