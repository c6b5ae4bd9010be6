"""Three separate clusters or one: simulates a day of services, databases and batch jobs, and compares the hosts.

    python examples/shared-cluster/run.py

It prints a table, and leaves in the folder of --out: figures.json, and the plot shared-cluster.svg if matplotlib is
installed. README.md describes the day, the rules, and what they leave out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cluster import HOST, Cluster, Figures, least_hosts
from day import BATCH, BEST_EFFORT, DATABASES, SERVICES, STEPS, Amounts, Work, draw_best_effort, draw_day

CORES = HOST.cpu_milli // 1000
HEAD = f"{'':28}{'hosts':>6}{'held':>8}{'in use':>8}{'batch waits: half, 95 %':>26}{'evicted':>9}{'lost':>9}"


def smallest(works: Sequence[Work], reserve_percent: int = 0) -> Figures:
    """Return the day of the smallest cluster that is large enough for these works."""
    failing = least_hosts(works, reserve_percent) - 1
    enough, step = failing + 1, 1
    while (figures := Cluster(works, enough).run()).too_small:
        failing, enough, step = enough, enough + step, 2 * step
    while enough - failing > 1:
        middle = (failing + enough) // 2
        tried = Cluster(works, middle).run()
        if tried.too_small:
            failing = middle
        else:
            enough, figures = middle, tried
    return figures


def percent(amounts: Sequence[int], hosts: int) -> float:
    """Return the mean over the day, in percent of the cpu of the hosts."""
    return 100 * sum(amounts) / (STEPS * hosts * HOST.cpu_milli)


def add_up(days: Sequence[Figures]) -> Figures:
    """Return the figures of several clusters as those of one."""
    total = Figures(sum(one.hosts for one in days))
    for one in days:
        for kind, amounts in one.held.items():
            total.held[kind] = [sum(pair) for pair in zip(amounts, total.held[kind] or [0] * STEPS, strict=True)]
        total.used = [sum(pair) for pair in zip(one.used, total.used or [0] * STEPS, strict=True)]
        total.waits_s += one.waits_s
        total.evicted += one.evicted
        total.lost_core_h += one.lost_core_h
    return total


def row(name: str, day: Figures) -> str:
    held = percent([sum(kinds) for kinds in zip(*day.held.values(), strict=True)], day.hosts)
    waits = ""
    if day.waits_s:
        in_order = sorted(day.waits_s)
        half, most = (in_order[len(in_order) * part // 100] / 60 for part in (50, 95))
        waits = f"{half:.0f} min, {most:.0f} min"
    use = percent(day.used, day.hosts)
    return f"{name:28}{day.hosts:6}{held:6.0f} %{use:6.0f} %{waits:>26}{day.evicted:9}{day.lost_core_h:7.0f} h"


def compare(seed: int, amounts: Amounts, reserve_percent: int) -> Iterator[tuple[str, Figures]]:
    """Yield the name and the figures of each arrangement, as soon as it is simulated."""
    works = draw_day(seed, amounts)
    apart = []
    for kind in (SERVICES, DATABASES, BATCH):
        apart.append(smallest([work for work in works if work.kind == kind], reserve_percent))
        yield f"  {kind}", apart[-1]
    yield "three separate clusters", add_up(apart)
    shared = smallest(works, reserve_percent)
    yield "one shared cluster", shared
    yield "  and best-effort on slack", Cluster([*works, *draw_best_effort(seed)], shared.hosts).run()


def lines(day: Figures) -> dict[str, Any]:
    """Return what the plot shows."""
    return {"hosts": day.hosts, "held": day.held, "used": day.used}


def summarize(days: dict[str, Figures]) -> str:
    batch, separate, shared, oversubscribed = (
        days[name]
        for name in (f"  {BATCH}", "three separate clusters", "one shared cluster", "  and best-effort on slack")
    )
    fewer = 100 * (separate.hosts - shared.hosts) / separate.hosts
    done = oversubscribed.done_core_h[BEST_EFFORT]
    hosts = done / (24 * CORES * percent(batch.held[BATCH], batch.hosts) / 100)
    both = 100 * (separate.hosts + hosts - shared.hosts) / (separate.hosts + hosts)
    text = (
        f"One shared cluster needs {fewer:.0f} % fewer hosts: {shared.hosts} instead of {separate.hosts}.\n"
        f"Best-effort pods on slack did {done:,.0f} core-hours on the same hosts, the work of {hosts:.1f} more hosts "
        f"of the batch cluster: with them it needs {both:.0f} % fewer."
    )
    if oversubscribed.too_small:
        text += f"\nWith them the cluster is too small: {oversubscribed.too_small}."
    return text


def draw(figures: Path, picture: Path) -> None:
    try:
        import plot
    except ModuleNotFoundError as error:
        print(f"no plot, because {error.name} is not installed. To get it:")
        print(f"  {sys.executable} -m pip install matplotlib")
        print(f"  {sys.executable} {Path(__file__).with_name('plot.py')} {figures} {picture}")
        return
    plot.draw(figures, picture)
    print(f"the plot is in {picture}")


def main() -> None:
    usual = Amounts()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the day")
    parser.add_argument("--services", metavar="CORES", type=int, default=usual.services_cores, help="at the peak")
    parser.add_argument("--databases", metavar="CORES", type=int, default=usual.databases_cores, help="at all times")
    parser.add_argument("--batch", metavar="HOURS", type=int, default=usual.batch_core_hours, help="core-hours a day")
    parser.add_argument(
        "--reserve", metavar="PERCENT", type=int, default=0, help="of services' peak, kept for a failover"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("data/shared-cluster"), help="for the results"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"hosts of {CORES} cores; seed {options.seed}\n{HEAD}", flush=True)
    days = {}
    amounts = Amounts(options.services, options.databases, options.batch)
    for name, day in compare(options.seed, amounts, options.reserve):
        days[name] = day
        print(row(name, day), flush=True)
    print(summarize(days))
    figures = options.out / "figures.json"
    figures.write_text(json.dumps({name: lines(day) for name, day in days.items()}) + "\n")
    print(f"the figures are in {figures}")
    draw(figures, options.out / "shared-cluster.svg")


if __name__ == "__main__":
    main()
