"""A day of two host pools, simulated: python examples/host-pools/day.py [docs/host-pools.svg]

Traffic rises twice. Requests take longer as the hosts of the services fill, hosts are marked, the mover takes hosts
from batch jobs and returns them at night. The mover's own code decides; hosts, requests and pods are simulated, and the
same every time. It prints each move with its reason, and draws the day when a file is named (needs matplotlib).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peloton.scheduling.mover import HostPoolLoad, MoverPolicy, PastShift, Shift, TakerState, plan, shift_text

STEP_S, DAY_S = 30, 24 * 3_600
CORES = 32  # of a host
SERVICES, BATCH, SERVICES_MINIMUM, BATCH_MINIMUM = 20, 60, 20, 25  # hosts
DRAIN_S = 180  # until a host has left its host pool
PODS_PER_HOST = 16  # batch pods of two cores
BASE_MS, ORANGE_MS, RED_MS = 20.0, 100.0, 200.0  # of the 99th percentile
POLICY = MoverPolicy(hosts_at_a_time=4)


@dataclass
class Day:
    """Results by step; ``moves`` with their seconds."""

    p99_ms: list[float] = field(default_factory=list)
    fixed_p99_ms: list[float] = field(default_factory=list)  # had no host moved
    services: list[int] = field(default_factory=list)  # hosts
    batch: list[int] = field(default_factory=list)
    moving: list[int] = field(default_factory=list)
    used_hosts: list[float] = field(default_factory=list)  # that the services fill
    preempted: list[int] = field(default_factory=list)  # batch pods so far
    moves: list[tuple[int, Shift]] = field(default_factory=list)


def traffic_cores(second: int) -> float:
    """Return the traffic: a low night, a peak before noon, a higher one in the evening."""
    hour = second / 3_600

    def hill(at: float, width: float) -> float:
        return math.exp(-(((hour - at) / width) ** 2))

    return CORES * (7 + 10 * hill(11, 2.6) + 22 * hill(19.5, 1.9))


def p99_ms(used: float, hosts: int) -> float:
    """Return the latency of a queue, which grows as idle capacity shrinks, up to ten times the limit."""
    idle = 1 - used / (hosts * CORES)
    return min(BASE_MS / max(idle, 0.01), 10 * RED_MS)


def simulate() -> Day:
    day, watch = Day(), TakerState()
    hosts = {"services": SERVICES, "batch": BATCH}
    past = list[PastShift]()
    lent, arriving = 0, list[tuple[int, Shift]]()
    preempted = 0
    for second in range(0, DAY_S, STEP_S):
        for due, shift in [one for one in arriving if one[0] <= second]:
            hosts[shift.destination] += shift.count
            lent += shift.count if shift.destination == "services" else -shift.count
            arriving.remove((due, shift))
        used = traffic_cores(second)
        took_ms = p99_ms(used, hosts["services"])
        marked = hosts["services"] if took_ms > ORANGE_MS else 0
        red = hosts["services"] if took_ms > RED_MS else 0
        services = HostPoolLoad("services", hosts["services"], SERVICES_MINIMUM, int(used), CORES, marked, red)
        batch = HostPoolLoad("batch", hosts["batch"], BATCH_MINIMUM)
        under_way = sum(shift.count for _, shift in arriving)
        now_s, loans = float(second), {"batch": lent}
        watch, shifts = plan(watch, past, services, [batch], loans, under_way, now_s, POLICY)
        for shift in shifts:
            past.append(PastShift(now_s, shift.count, is_return=shift.source == "services"))
            hosts[shift.source] -= shift.count
            arriving.append((second + DRAIN_S, shift))
            preempted += shift.count * PODS_PER_HOST if shift.source == "batch" else 0
            day.moves.append((second, shift))
        day.p99_ms.append(took_ms)
        day.fixed_p99_ms.append(p99_ms(used, SERVICES))
        day.services.append(hosts["services"])
        day.batch.append(hosts["batch"])
        day.moving.append(sum(shift.count for _, shift in arriving))
        day.used_hosts.append(used / CORES)
        day.preempted.append(preempted)
    return day


def report(day: Day) -> list[str]:
    lines = [
        f"{second // 3_600:02}:{second % 3_600 // 60:02}  {shift.count} from {shift.source} to {shift.destination}: "
        f"{shift_text(shift, POLICY)}"
        for second, shift in day.moves
    ]
    orange, fixed = (minutes_above(took, ORANGE_MS) for took in (day.p99_ms, day.fixed_p99_ms))
    lines.append(f"p99 above {ORANGE_MS:.0f} ms: {orange} minutes; {fixed} minutes had no host moved")
    lines.append(f"batch pods preempted: {day.preempted[-1]}; hosts at the end: {day.services[-1]}, {day.batch[-1]}")
    return lines


def minutes_above(took_ms: Sequence[float], bound_ms: float) -> int:
    return sum(ms > bound_ms for ms in took_ms) * STEP_S // 60


STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",  # letters stay letters: small, and they can be searched
    "svg.hashsalt": "host-pools",  # the same day makes the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}
GREEN, ORANGE, RED, GREY = "#2a9d8f", "#e07a3f", "#c1352b", "0.55"


def draw(day: Day, picture: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    every = slice(None, None, 10)  # a point each five minutes
    hours = [second / 3_600 for second in range(0, DAY_S, STEP_S)][every]
    with pyplot.rc_context(STYLE):
        figure, (above, middle, below) = pyplot.subplots(3, 1, sharex=True, figsize=(8.5, 7), layout="constrained")
        above.set_title("Latency of the services", loc="left", fontweight="bold")
        above.plot(hours, day.fixed_p99_ms[every], color=GREY, linestyle=":", label="had no host moved")
        above.plot(hours, day.p99_ms[every], color=GREEN, linewidth=2, label="p99")
        above.axhline(ORANGE_MS, color=ORANGE, linestyle="--", linewidth=1, label="orange")
        above.axhline(RED_MS, color=RED, linestyle="--", linewidth=1, label="red")
        above.set_yscale("log")
        above.set_ylabel("milliseconds")
        middle.set_title("Hosts", loc="left", fontweight="bold")
        tops = [day.services[every], day.moving[every], day.batch[every]]
        labels = ("services", "on their way", "batch")
        middle.stackplot(hours, *tops, colors=[GREEN, "0.8", ORANGE], alpha=0.6, labels=labels, step="post")
        middle.plot(hours, day.used_hosts[every], color="black", linewidth=1, label="that services fill")
        middle.set_ylabel("hosts")
        below.set_title("Batch pods preempted", loc="left", fontweight="bold")
        below.step(hours, day.preempted[every], where="post", color=ORANGE, linewidth=2)
        below.set_ylabel("pods so far")
        below.set_xlabel("hour of the day")
        below.set_xticks(range(0, 25, 3))
        below.set_xlim(0, 24)
        for panel in (above, middle):
            panel.legend(loc="upper left", ncols=4, frameon=False)
        middle.set_ylim(0, (SERVICES + BATCH) * 1.25)
        figure.savefig(picture, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


if __name__ == "__main__":
    found = simulate()
    print("\n".join(report(found)))
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))
