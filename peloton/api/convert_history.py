"""Conversion of time series to messages: on a grid of intervals, in the units of the wire."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peloton.api.convert_pool import wire_amount
from peloton.api.v0.history import history_pb2 as pb
from peloton.model.history import Column, Preemption, Quantity, Series
from peloton.model.resources import UNLIMITED

QUANTITIES = {quantity: pb.Quantity.Value(f"QUANTITY_{quantity.name}") for quantity in Quantity}


@dataclass(frozen=True, slots=True)
class Grid:
    """Intervals of ``step_s`` from ``start_s`` on, both in unix seconds."""

    start_s: int
    step_s: int
    count: int

    @property
    def end_s(self) -> int:
        return self.start_s + self.step_s * self.count

    def spread(self, times_s: Sequence[int], values: Sequence[int]) -> list[int]:
        """Return a value for each interval, 0 for gaps."""
        filled = [0] * self.count
        for at_s, value in zip(times_s, values, strict=True):
            filled[(at_s - self.start_s) // self.step_s] = value
        return filled


def encode_coverage(series: Series, grid: Grid) -> list[int]:
    return grid.spread(series.times_s, series.covered_s)


def columns_to_wire(series: Series, grid: Grid, wanted: Sequence[Column]) -> list[pb.Column]:
    """Convert the columns that are not 0 throughout."""
    return [_column(series, grid, column) for column in wanted if column in series.columns]


def _column(series: Series, grid: Grid, column: Column) -> pb.Column:
    shown, values, maxima = _amount_of(column), series.columns[column], series.maxima_of(column)
    return pb.Column(
        quantity=QUANTITIES[column.quantity],
        kind=column.kind,
        values=map(shown, grid.spread(series.times_s, values)),
        maxima=map(shown, grid.spread(series.times_s, maxima)) if maxima != values else (),
    )


def _amount_of(column: Column) -> Callable[[int], float]:
    return lambda small: math.inf if small >= UNLIMITED else wire_amount(column.kind, small)


def preemptions_to_wire(marks: Sequence[Preemption], grid: Grid) -> list[pb.Preemption]:
    return [
        pb.Preemption(index=(mark.at_s - grid.start_s) // grid.step_s, for_pool=mark.for_pool, instances=mark.pod_count)
        for mark in marks
    ]
