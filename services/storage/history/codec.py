"""Samples and pages as blobs: packed JSON keyed by column name, so a new column requires no migration."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from peloton.model.history import Column, Preemption, Quantity, Sample, Series
from services.storage.codec import pack, unpack

_KNOWN = frozenset(Quantity)


def sample_to_blob(sample: Sample) -> bytes:
    """Encode a sample: the seconds that it covers, then one line per series, so readers can parse a few series only."""
    lines = [str(sample.covered_s)]
    for name, columns in sample.amounts.items():
        amounts = {_name(column): amount for column, amount in columns.items() if amount}
        lines.append(f"{name}\t{_json([amounts, sample.preemptions.get(name, ())])}")
    return pack("\n".join(lines).encode())


def names_in(blob: bytes) -> Iterator[str]:
    """Yield the names of the series in a sample."""
    _, *lines = unpack(blob).decode().split("\n")
    return (line.partition("\t")[0] for line in lines)


def samples_to_series(rows: Sequence[tuple[int, bytes]], only: Collection[str] | None = None) -> dict[str, Series]:
    """Decode ``(at_s, blob)`` rows, in time order, into series by name; ``only`` restricts the names."""
    found: dict[str, Series] = {}
    for at_s, blob in rows:
        covered_s, *lines = unpack(blob).decode().split("\n")
        by_name = dict(line.split("\t", 1) for line in lines)
        for name in by_name if only is None else only:
            if name in by_name:
                amounts, marks = json.loads(by_name[name])
                _append(found.setdefault(name, Series()), at_s, int(covered_s), amounts)
                found[name].preemptions += [Preemption(at_s, for_pool, pods) for for_pool, pods in marks]
    for series in found.values():
        for values in series.columns.values():
            values += [0] * (len(series.times_s) - len(values))
    return found


def _append(series: Series, at_s: int, covered_s: int, amounts: Mapping[str, int]) -> None:
    """Append one sample to a series; columns without an amount are padded with 0 later."""
    count, columns = len(series.times_s), series.columns
    for text, amount in amounts.items():
        if (column := _column(text)) is not None:
            values = columns.get(column)
            if values is None:
                values = columns[column] = []
            if len(values) < count:
                values += [0] * (count - len(values))
            values.append(amount)
    series.times_s.append(at_s)
    series.covered_s.append(covered_s)


def page_to_blob(series: Series, start_s: int) -> bytes:
    """Encode a page; all-zero columns are left out, and a constant column is stored as one number."""
    maxima = {column: values for column, values in series.maxima.items() if values != series.columns.get(column)}
    page = {
        "times": [at_s - start_s for at_s in series.times_s],
        "covered_s": _compress(series.covered_s),
        "columns": _compress_columns(series.columns),
        "maxima": {_name(column): values for column, values in maxima.items()},
        "preemptions": [(at_s - start_s, for_pool, pods) for at_s, for_pool, pods in series.preemptions],
    }
    return pack(_json(page).encode())


def page_from_blob(blob: bytes, start_s: int) -> Series:
    page = json.loads(unpack(blob))
    times_s = [start_s + offset_s for offset_s in page["times"]]
    return Series(
        times_s,
        _expand(page["covered_s"], len(times_s)),
        _expand_columns(page["columns"], len(times_s)),
        _expand_columns(page["maxima"], len(times_s)),
        [Preemption(start_s + offset_s, for_pool, pods) for offset_s, for_pool, pods in page["preemptions"]],
    )


def _json(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


def _name(column: Column) -> str:
    return f"{column.quantity}/{column.kind}"


@lru_cache(maxsize=256)
def _column(text: str) -> Column | None:
    """Parse a column name; None for a column that only a later version knows."""
    quantity, _, kind = text.partition("/")
    return Column(Quantity(quantity), kind) if quantity in _KNOWN else None


def _compress_columns(columns: Mapping[Column, Sequence[int]]) -> dict[str, Any]:
    return {_name(column): _compress(values) for column, values in columns.items() if any(values)}


def _expand_columns(columns: Mapping[str, Any], count: int) -> dict[Column, list[int]]:
    named = ((_column(text), values) for text, values in columns.items())
    return {column: _expand(values, count) for column, values in named if column is not None}


def _compress(values: Sequence[int]) -> int | Sequence[int]:
    return values[0] if values and values.count(values[0]) == len(values) else values


def _expand(values: int | list[int], count: int) -> list[int]:
    return [values] * count if isinstance(values, int) else values
