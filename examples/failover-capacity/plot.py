"""Draws the samples of run.py: python examples/failover-capacity/plot.py samples.jsonl failover-capacity.svg"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from drawing import list_events, mark_events, read_samples, save, style
from matplotlib import pyplot

POOLS = (("/services", "services", "#2a9d8f"), ("/batch", "batch", "#e07a3f"))
CORES = 12  # of `peloton up`


def draw(samples: Path, picture: Path) -> None:
    answers, events = read_samples(samples, [path for path, _, _ in POOLS])
    seconds = [line["second"] for line in answers]
    reservation = answers[0]["pools"]["/services"]["reservation"]
    with pyplot.rc_context(style("failover-capacity")):
        figure, panel = pyplot.subplots(figsize=(8.5, 4.5), layout="constrained")
        below = [0.0] * len(seconds)
        for path, name, colour in POOLS:
            top = [low + line["pools"][path]["allocation"] for low, line in zip(below, answers, strict=True)]
            panel.fill_between(seconds, below, top, step="post", color=colour, alpha=0.6, linewidth=0, label=name)
            below = top
        panel.axhline(reservation, color="black", linestyle="--", linewidth=1, label="reserved for services")
        panel.axhline(CORES, color="0.5", linewidth=1, label="capacity")
        mark_events(panel, events)
        panel.set_ylabel("cores held")
        panel.set_xlabel("seconds")
        panel.set_yticks(range(0, CORES + 1, 2))
        panel.set_xlim(0, seconds[-1])
        figure.legend(*panel.get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)
        list_events(figure, events)
        save(figure, picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
