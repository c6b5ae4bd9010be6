"""Draws the figures of run.py: python examples/shared-cluster/plot.py figures.json shared-cluster.svg"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from cluster import HOST
from day import BATCH, BEST_EFFORT, DATABASES, SERVICES, STEP_S
from drawing import save, style
from matplotlib import pyplot

EVERY = 3  # steps, of which one is drawn
COLOURS = {DATABASES: "#6d6875", SERVICES: "#2a9d8f", BATCH: "#e07a3f", BEST_EFFORT: "#f2c078"}


def draw(figures: Path, picture: Path) -> None:
    days = {name: day for name, day in json.loads(figures.read_text()).items() if DATABASES in day["held"]}
    panels_of = ("three separate clusters", "one shared cluster", "  and best-effort on slack")
    with pyplot.rc_context(style("shared-cluster")):
        figure, panels = pyplot.subplots(3, 1, sharex=True, sharey=True, figsize=(8.5, 8), layout="constrained")
        for panel, name in zip(panels, panels_of, strict=True):
            day = days[name]
            hours = [step * STEP_S / 3600 for step in range(0, len(day["used"]), EVERY)]
            held = [[milli / 1000 for milli in day["held"][kind][::EVERY]] for kind in COLOURS]
            capacity = day["hosts"] * HOST.cpu_milli / 1000
            panel.stackplot(hours, held, colors=COLOURS.values(), alpha=0.75, linewidth=0, labels=COLOURS)
            used = [milli / 1000 for milli in day["used"][::EVERY]]
            panel.plot(hours, used, color="black", linewidth=1.2, label="cpu in use")
            panel.axhline(capacity, color="0.35", linestyle="--", linewidth=1, label="capacity")
            panel.set_title(f"{name.strip()}: {day['hosts']} hosts", loc="left", fontweight="bold")
            panel.set_ylabel("cores")
            panel.set_xlim(0, 24)
            panel.set_xticks(range(0, 25, 3))
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=6, frameon=False)
        panels[-1].set_xlabel("hour of the day")
        save(figure, picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
