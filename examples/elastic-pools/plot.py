"""Draws the samples of run.py: python examples/elastic-pools/plot.py samples.jsonl elastic-pools.svg"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from drawing import list_events, mark_events, read_samples, save, style
from matplotlib import pyplot

TEAMS = (("/team-a", "Team A", "#2a9d8f"), ("/team-b", "Team B", "#e07a3f"))


def draw(samples: Path, picture: Path) -> None:
    answers, events = read_samples(samples, [path for path, _, _ in TEAMS])
    seconds = [line["second"] for line in answers]
    with pyplot.rc_context(style("elastic-pools")):
        figure, panels = pyplot.subplots(2, 1, sharex=True, sharey=True, figsize=(8.5, 6), layout="constrained")
        for panel, (path, title, colour) in zip(panels, TEAMS, strict=True):
            pool = {name: [line["pools"][path][name] for line in answers] for name in answers[0]["pools"][path]}
            wanted = [held + more for held, more in zip(pool["allocation"], pool["demand"], strict=True)]
            panel.fill_between(seconds, pool["allocation"], step="post", color=colour, alpha=0.45, label="allocation")
            panel.step(seconds, wanted, where="post", color="0.45", linestyle=":", label="allocation + demand")
            panel.step(seconds, pool["entitlement"], where="post", color=colour, linewidth=2, label="entitlement")
            panel.plot(seconds, pool["reservation"], color="black", linestyle="--", linewidth=1, label="reservation")
            mark_events(panel, events)
            panel.set_title(title, loc="left", fontweight="bold", pad=14)
            panel.set_ylabel("cores")
            panel.set_yticks(range(0, 25, 6))
            panel.set_ylim(0, 20)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)
        panels[1].set_xlabel("seconds")
        list_events(figure, events)
        save(figure, picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
