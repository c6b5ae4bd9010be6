"""Draws the samples of run.py: python examples/elastic-pools/plot.py samples.jsonl elastic-pools.svg"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

TEAMS = (("/team-a", "Team A", "#2a9d8f"), ("/team-b", "Team B", "#e07a3f"))
CLOSE_S = 1.5
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",  # letters stay letters: small, and they can be searched
    "svg.hashsalt": "elastic-pools",  # the same samples make the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(samples: Path, picture: Path) -> None:
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    answers = [line for line in lines if all(path in line.get("pools", {}) for path, _, _ in TEAMS)]
    events = [line for line in lines if "event" in line]
    seconds = [line["second"] for line in answers]
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(2, 1, sharex=True, sharey=True, figsize=(8.5, 6), layout="constrained")
        for panel, (path, title, colour) in zip(panels, TEAMS, strict=True):
            pool = {name: [line["pools"][path][name] for line in answers] for name in answers[0]["pools"][path]}
            wanted = [held + more for held, more in zip(pool["allocation"], pool["demand"], strict=True)]
            panel.fill_between(seconds, pool["allocation"], step="post", color=colour, alpha=0.45, label="allocation")
            panel.step(seconds, wanted, where="post", color="0.45", linestyle=":", label="allocation + demand")
            panel.step(seconds, pool["entitlement"], where="post", color=colour, linewidth=2, label="entitlement")
            panel.plot(seconds, pool["reservation"], color="black", linestyle="--", linewidth=1, label="reservation")
            for number, second, side in number_events(events):
                panel.axvline(second, color="0.8", linewidth=0.8, zorder=0)
                panel.annotate(str(number), (second, 1.02), xycoords=("data", "axes fraction"), ha=side)
            panel.set_title(title, loc="left", fontweight="bold", pad=14)
            panel.set_ylabel("cores")
            panel.set_yticks(range(0, 25, 6))
            panel.set_ylim(0, 20)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)
        panels[1].set_xlabel("seconds")
        event_lines = "\n".join(f"{number}  {line['event']}" for number, line in enumerate(events, start=1))
        figure.supxlabel(event_lines, x=0.08, ha="left", fontsize=9)
        figure.savefig(picture, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def number_events(events: list[dict]) -> Iterator[tuple[int, float, str]]:
    """Yield number, second and alignment of each event; the label of the second of two close ones is on the other
    side.
    """
    before = float("-inf")
    for number, line in enumerate(events, start=1):
        yield number, line["second"], "left" if line["second"] - before < CLOSE_S else "right"
        before = line["second"]


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
