"""Scenarios of free resources for planned pods: hosts and pods as tables, and the result below a line of dashes.

Amounts are cpu/memory/disk/gpu in cores, MiB, MiB and gpus; labels are ``key=value``, with commas. ``barred`` hosts are
in maintenance. Pods of a row with ``gang`` are placed whole; those of a lower ``turn`` before the others. ``rule`` is a
label that the host must have, or ``not`` and a label that no pod on the host may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peloton.lifecycle.reason_text import hosts_text
from peloton.model.ids import Hostname
from peloton.model.layout import Domains, GangClose, Layout, Spread
from peloton.model.misfit import HostRule, Refused
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import Constraint, HostLabel, Label, PodLabel, PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.capacity import find_capacity
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import HostRow
from peloton.scheduling.spreading import Spreading
from tests.unit.scheduling.pool_table import Row, Scenario, amounts, draw_table, read_table

MAINTENANCE = Refused(HostRule.MAINTENANCE)
HEADER = ("pods", "found", "hosts that take no more")


@dataclass
class CapacityScenario:
    scenario: Scenario

    @property
    def _tables(self) -> list[list[Row]]:
        blocks = "\n".join(self.scenario.head).split("\n\n")
        tables = [[line for line in block.splitlines() if line.startswith("|")] for block in blocks]
        return [read_table(table) for table in tables if table]

    def draw(self) -> list[str]:
        hosts, pods = self._tables
        rows = list(zip((row["pods"] for row in pods), self._find(hosts, pods), strict=True))
        reported = [
            [name, str(fit_counts.count), "; ".join(map(hosts_text, fit_counts.refusing))] for name, fit_counts in rows
        ]
        return draw_table(HEADER, reported)

    def _find(self, hosts: Sequence[Row], pods: Sequence[Row]) -> list[FoundCapacity]:
        fleet = Fleet(_host(order, row) for order, row in enumerate(hosts))
        asked = [_pods(row) for row in pods]
        closed = {order: MAINTENANCE for order, row in enumerate(hosts) if "barred" in row.get("flags", "")}
        domains = {each.shape: [*_domains(each.shape, hosts)] for each in asked}
        spreading = Spreading(fleet, domains) if any(domains.values()) else None
        return find_capacity(fleet, asked, {each.shape: closed for each in asked}, spreading)


def _resources(text: str) -> Resources:
    cpu_milli, memory_mib, disk_mib, gpu_milli = amounts(text)
    return Resources(cpu_milli, memory_mib, disk_mib, gpu_milli)


def _host(order: int, row: Row) -> HostRow:
    free, total = (_resources(row[column]) for column in ("free", "total"))
    return HostRow(Hostname(row["host"]), free, total, free.cpu_milli, 9, 99, _labels(row.get("labels", "")), order)


def _labels(text: str) -> tuple[Label, ...]:
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return tuple(sorted((key.strip(), value.strip()) for key, _, value in pairs))


def _pods(row: Row) -> PlannedPods:
    layout = Layout(
        tuple(Spread(label, is_hard=True) for label in row.get("spread", "").split()),
        GangClose(row["close"], True) if row.get("close") else None,
    )
    strategy = Strategy.SPREAD_JOB if "spread-job" in row.get("flags", "") else Strategy.PACK_HOST
    rule = _rule(row.get("rule", ""))
    shape = PodShape(
        _resources(row["need"]),
        strategy=strategy,
        constraint=rule,
        layout=layout if layout.spread or layout.close else None,
    )
    is_gang, labels = "gang" in row.get("flags", ""), _labels(row.get("labels", ""))
    return PlannedPods(shape, int(row["count"]), labels, is_gang, int(row.get("turn") or 0))


def _rule(text: str) -> Constraint | None:
    if not text:
        return None
    is_not, _, label = text.rpartition("not ")
    ((key, value),) = _labels(label)
    return PodLabel(key, value) if is_not or text.startswith("not ") else HostLabel(key, value)


def _domains(shape: PodShape, hosts: Sequence[Row]) -> Iterator[Domains]:
    for rule in shape.layout.spread if shape.layout else ():
        values = (dict(_labels(row.get("labels", ""))).get(rule.label) for row in hosts)
        yield Domains({value: 0 for value in values if value})
