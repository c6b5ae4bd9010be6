"""Time until a page is drawn, by a trace of Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.browser.views import chromium, open_view, settle

DRAWN = "drawn"


def measure_trace(url: str, trace: Path) -> dict[str, Any]:
    """Load a page of which the browser has the app in its cache, and write the trace."""
    with chromium() as browser, open_view(browser, url) as page:
        browser.start_tracing(page=page.view, path=trace)
        page.view.reload()
        settle(page.view)
        page.view.evaluate(f"() => performance.mark('{DRAWN}').startTime")
        browser.stop_tracing()
    return measure_paint(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])


def measure_paint(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return times from the start of the navigation: the first paint, the first contentful paint, and the mark of a
    drawn page; also the total and the longest work of the main thread meanwhile, in ms.
    """
    drawn = next(one for one in events if one["name"] == DRAWN and "blink.user_timing" in one["cat"])
    mine = [one for one in events if one["pid"] == drawn["pid"]]
    start = _at(mine, "navigationStart", drawn)
    tasks = list(_tasks(mine, drawn["tid"], start, drawn["ts"]))
    return {
        "first_paint_ms": _ms(_at(mine, "firstPaint", drawn) - start),
        "first_contents_ms": _ms(_at(mine, "firstContentfulPaint", drawn) - start),
        "drawn_ms": _ms(drawn["ts"] - start),
        "main_thread_ms": _ms(sum(tasks)),
        "longest_task_ms": _ms(max(tasks, default=0)),
    }


def _at(events: list[dict[str, Any]], name: str, drawn: dict[str, Any]) -> float:
    """Return the time of the last such event, in us, of the navigation that ended with the mark."""
    navigation = drawn["args"]["data"]["navigationId"]
    return float(
        max(
            one["ts"]
            for one in events
            if one["name"] == name and one["args"].get("data", {}).get("navigationId") == navigation
        )
    )


def _tasks(events: list[dict[str, Any]], thread: int, start: float, end: float) -> Iterator[float]:
    for one in events:
        if one["name"] == "RunTask" and one["tid"] == thread and start <= one["ts"] < end:
            yield min(one["dur"], end - one["ts"])


def _ms(us: float) -> float:
    return round(us / 1_000, 1)
