"""Draws docs/scale.svg from the baseline, cost by the number of pods and of hosts, and docs/talk.svg, seconds of
Peloton and Kubernetes in the talk's benchmark.

After `make bench CASE="pods hosts talk" RECORD=1`: `.venv/bin/python -m tests.bench.plot docs`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

from tests.bench import baseline

matplotlib.use("svg")
from matplotlib import pyplot

STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",  # letters stay letters: small, and they can be searched
    "svg.hashsalt": "scale",  # the same numbers make the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = ("#2a9d8f", "#e07a3f", "#5c4d7d", "#8a8d91")
Lines = Mapping[str, tuple[str, ...]]
"""Path of a value in the figures of one size, by label."""
PODS: tuple[tuple[str, Lines], ...] = (
    (
        "milliseconds of CPU",
        {
            "cycle in which pods wait": ("waiting_cycle_cpu_median_ms",),
            "cycle that admits 5,000": ("admitting_cycle_cpu_median_ms",),
            "page of job query": ("job_query_cpu_median_ms",),
            "job get": ("job_get_cpu_median_ms",),
        },
    ),
    ("MiB of the resource manager", {"grown by": ("resmgr_mib",)}),
    ("seconds of CPU", {"rebuild after kill -9": ("rebuild_cpu_seconds",)}),
)
HOSTS: tuple[tuple[str, Lines], ...] = (
    ("MiB", {"host manager": ("hostmgr_mib",), "minicluster": ("minicluster_mib",)}),
    (
        "CPU seconds a minute, idle",
        {
            "host manager": ("idle_cpu_seconds_per_minute", "hostmgr"),
            "minicluster": ("idle_cpu_seconds_per_minute", "minicluster"),
        },
    ),
    ("CPU milliseconds per pod", {"all processes": ("cpu_ms_per_pod",)}),
)
STAGES = {"batch": "batch, to the end", "service_created": "service, created", "service_rolled": "service, replaced"}


def draw(picture: Path) -> None:
    lines = baseline.load()
    with pyplot.rc_context(STYLE):
        figure, rows = pyplot.subplots(2, 3, figsize=(10, 6), layout="constrained")
        for case, panels, row in (("pods", PODS, rows[0]), ("hosts", HOSTS, rows[1])):
            sizes = {int(size): found for size, found in lines[case].items() if size.isdigit()}
            for panel, (title, kinds) in zip(row, panels, strict=True):
                for (label, path), colour in zip(kinds.items(), COLOURS, strict=False):
                    panel.plot(
                        list(sizes), [_at(found, path) for found in sizes.values()], "o-", color=colour, label=label
                    )
                panel.set_xscale("log")
                panel.set_ylim(0, max(panel.get_ylim()[1], 1) * 1.35)  # space for the legend
                panel.set_title(title, loc="left")
                panel.set_xlabel(case)
                panel.legend(frameon=False, loc="upper left")
        figure.savefig(picture, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def draw_talk(picture: Path) -> None:
    """Draw the seconds of each stage, by the number of nodes."""
    sizes = {
        name: found for name, found in baseline.load()["talk"].items() if isinstance(found, dict) and "-on-" in name
    }
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, len(STAGES), figsize=(10, 3), layout="constrained")
        for panel, (stage, title) in zip(panels, STAGES.items(), strict=True):
            for kind, colour in zip(("peloton", "kubernetes"), COLOURS, strict=False):
                ended = {name: found[kind][stage] for name, found in sizes.items() if stage in found.get(kind, {})}
                nodes = [int(name.partition("-on-")[2]) for name in ended]
                panel.plot(nodes, [found["seconds"] for found in ended.values()], "o-", color=colour, label=kind)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(f"seconds: {title}", loc="left")
            panel.set_xlabel("nodes")
            panel.legend(frameon=False, loc="upper left")
        figure.savefig(picture, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _at(found: Any, path: tuple[str, ...]) -> float:
    for key in path:
        found = found[key]
    return float(found)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) / "scale.svg")
    draw_talk(Path(sys.argv[1]) / "talk.svg")
