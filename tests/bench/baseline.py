"""Committed baseline: what each case printed once on quiet cores, and the distance of a new line from it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).with_name("baseline.jsonl")
WORSE_RATIO = 1.25
"""Growth of a cost above which it is reported; less is noise, even on quiet cores."""
SMALL = {"seconds": 0.5, "ms": 2.0, "mib": 16.0, "events": 20.0}
"""Lower bound of compared costs: differences below it are noise."""
_COST = re.compile(r"(?:^|_)(seconds|ms|mib|events)$")
_TIMES = {"seconds", "ms"}
_YARDSTICK_RUNS = 5


def load() -> dict[str, dict[str, Any]]:
    """Return the line of each case."""
    if not BASELINE.exists():
        return {}
    return {line["case"]: line for line in map(json.loads, BASELINE.read_text().splitlines())}


def record(lines: list[dict[str, Any]]) -> None:
    """Replace the lines of the same cases."""
    merged = load() | {line["case"]: line for line in lines}
    BASELINE.write_text("".join(f"{json.dumps(merged[case])}\n" for case in sorted(merged)))


def circumstances() -> dict[str, Any]:
    """Return the date of a run, and by what runs of two machines are compared: the time of a fixed piece of work, and
    how busy the machine was."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "yardstick_ms": yardstick_ms(),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def yardstick_ms() -> float:
    """CPU time of a fixed piece of Python and SQLite."""
    times_ms = []
    for _ in range(_YARDSTICK_RUNS):
        started_s = time.process_time()
        _work()
        times_ms.append((time.process_time() - started_s) * 1000)
    return round(statistics.median(times_ms), 1)


def _work() -> None:
    rows = [(number, json.dumps({"pod": number, "state": "RUNNING"})) for number in range(20_000)]
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE pod (number INTEGER PRIMARY KEY, text TEXT)")
        database.executemany("INSERT INTO pod VALUES (?, ?)", rows)
        found = database.execute("SELECT text FROM pod ORDER BY number DESC").fetchall()
    assert json.loads(found[0][0])["pod"] == len(rows) - 1


def compare(found: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Compare a line with the baseline. ``to_baseline``: cost now / cost then by name, 1 is the same and 2 twice as
    dear; times are scaled by the yardsticks of both. ``worse``: the names of costs beyond WORSE_RATIO.
    """
    speed = found["yardstick_ms"] / base["yardstick_ms"]
    now, then = dict(_costs(found, speed)), dict(_costs(base, 1.0))
    ratios = {name: round(now[name] / then[name], 2) for name in now if name in then}
    return {"to_baseline": ratios, "worse": [name for name, ratio in ratios.items() if ratio > WORSE_RATIO]}


def _costs(line: dict[str, Any], speed: float, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield costs by name: the sum over processes of a cost per process, and the inverse of a rate."""
    for key, value in line.items():
        name = f"{prefix}{key}"
        cost = _COST.search(key)
        if isinstance(value, dict) and cost is None:
            yield from _costs(value, speed, f"{name}.")
            continue
        amount = sum(value.values()) if isinstance(value, dict) else value
        if key == "yardstick_ms" or not isinstance(amount, (int, float)) or amount <= 0:
            continue
        if cost is not None:
            unit = cost[1]
            yield name, max(amount / speed if unit in _TIMES else amount, SMALL[unit])
        elif key.endswith("_per_second"):
            yield name, 1 / (amount * speed)
