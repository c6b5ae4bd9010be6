"""The look that the plots of the examples share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

CLOSE_S = 1.5


def style(name: str) -> dict[str, object]:
    """Return the settings of matplotlib for the picture of an example: the same values make the same file."""
    return {
        "font.family": "sans-serif",
        "font.size": 9,
        "svg.fonttype": "none",  # letters stay letters: small, and they can be searched
        "svg.hashsalt": name,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def read_samples(samples: Path, paths: Iterable[str]) -> tuple[list[dict], list[dict]]:
    """Return the answers that have all of these pools, and the events."""
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    return (
        [line for line in lines if all(path in line.get("pools", {}) for path in paths)],
        [line for line in lines if "event" in line],
    )


def mark_events(panel: Any, events: list[dict]) -> None:
    for number, second, side in number_events(events):
        panel.axvline(second, color="0.8", linewidth=0.8, zorder=0)
        panel.annotate(str(number), (second, 1.02), xycoords=("data", "axes fraction"), ha=side)


def number_events(events: list[dict]) -> Iterator[tuple[int, float, str]]:
    """Yield number, second and alignment of each event; the label of the second of two close ones is on the other
    side.
    """
    before = float("-inf")
    for number, line in enumerate(events, start=1):
        yield number, line["second"], "left" if line["second"] - before < CLOSE_S else "right"
        before = line["second"]


def list_events(figure: Any, events: list[dict]) -> None:
    lines = "\n".join(f"{number}  {line['event']}" for number, line in enumerate(events, start=1))
    figure.supxlabel(lines, x=0.08, ha="left", fontsize=9)


def save(figure: Any, picture: Path) -> None:
    figure.savefig(picture, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
