"""Placement in the pure core: mixed pods on mixed hosts, by speed and by number of hosts."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from peloton.lifecycle.constraints import host_labels
from peloton.model.ids import Hostname
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, HostPreference, Label, PodLabel, PodShape
from peloton.model.resources import Resources
from peloton.scheduling.bin_packing import PodRequest, pack_requests
from peloton.scheduling.fit import label_misfit
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.rows import HostRow
from peloton.scheduling.tree import Ints
from tests.bench.figures import Times

PLACEMENTS_PER_S = 20_000
HOSTS_OVER_ORACLE = 0.02
BATCH = 1_000
SIZES = [Resources.of(32, 128_000, 500_000), Resources.of(64, 256_000, 1_000_000), Resources.of(48, 384_000, 500_000)]
GPU_SIZE = Resources.of(96, 512_000, 2_000_000, 8)
ON_SSD, NOT_ZONE_A = HostLabel("disk", "ssd"), HostLabel("zone", "a", "<", 1)
PREFERENCES = HostPreference(80, ON_SSD), HostPreference(20, NOT_ZONE_A)
APP: Label = ("app", "web")


def placement_mixed(host_count: int = 50_000, batches: int = 30, small_count: int = 2_000) -> dict[str, Any]:
    """Batches on hosts of which half are in use, each to another degree, with and without preferences for hosts; then
    batches on a smaller, empty cluster until it is half full, compared with a slow placement of one pod after another.
    """
    random, others = Random(1), Random(2)
    fleet = Fleet(hosts(random, host_count, in_use=0.5))
    times, preferring, placed, asked = Times(), Times(), 0, 0
    for _ in range(batches):
        wants = batch(random)
        asked += BATCH
        placed += sum(len(rows) for rows in times.take(lambda wants=wants: pack_requests(fleet, wants)))
        mark = fleet.mark
        fond = [replace(each, shape=replace(each.shape, preferences=PREFERENCES)) for each in batch(others)]
        preferring.take(lambda wants=fond: pack_requests(fleet, wants))
        fleet.back_to(mark)
    per_s = BATCH / (float(np.median(times.cpu_ms)) / 1000)
    return {
        "hosts": host_count,
        "batches": batches,
        "pods_per_batch": BATCH,
        **times.figures(),
        "placements_per_cpu_second": round(per_s),
        "ratio_to_target": round(PLACEMENTS_PER_S / per_s, 3),
        "preferring_cpu_ratio": round(float(np.median(preferring.cpu_ms)) / float(np.median(times.cpu_ms)), 3),
        "unplaced": asked - placed,
        **compare_with_oracle(random, small_count),
    }


def hosts(random: Random, count: int, in_use: float) -> list[HostRow]:
    """Three sizes, one host in fifty with gpus, one in a hundred exclusive; racks of fifty in zones of twenty racks."""
    rows = []
    for number in range(count):
        total = GPU_SIZE if number % 50 == 0 else SIZES[random.randrange(3)]
        free = total
        if random.random() < in_use:
            cpu, memory, disk, gpu = total
            free = Resources(
                random.randrange(cpu),
                random.randrange(memory),
                random.randrange(disk),
                gpu and random.randrange(9) * 1000,
            )
        rack = number // 50
        labels = [
            ("disk", "ssd" if random.random() < 0.5 else "hdd"),
            ("rack", f"r{rack}"),
            ("zone", "abcdef"[rack // 20 % 6]),
        ]
        if number % 100 == 7:
            labels.append(("peloton/exclusive", "ml"))
        ports = random.randrange(1_000)
        rows.append(HostRow(Hostname(f"h{number}"), free, total, 0, ports, 110, tuple(sorted(labels)), number))
    return rows


def batch(random: Random) -> list[PodRequest]:
    """Return about thirty shapes of pods, a third of them with constraints."""
    counts: dict[tuple[PodShape, tuple[Label, ...]], int] = {}
    sorts = [pods(random) for _ in range(30)]
    for _ in range(BATCH):
        key = sorts[min(int(random.expovariate(0.1)), 29)]
        counts[key] = counts.get(key, 0) + 1
    return [PodRequest(shape, labels, count) for (shape, labels), count in counts.items()]


def pods(random: Random) -> tuple[PodShape, tuple[Label, ...]]:
    resources = Resources.of(
        random.choice([0.5, 1, 1, 2, 2, 4, 8]),
        random.choice([1, 2, 2, 4, 8, 16, 32]) * 1_000,
        random.choice([0, 0, 10_000]),
    )
    draw = random.random()
    constraint: Constraint | None = None
    labels: tuple[Label, ...] = ()
    if draw < 0.10:
        constraint = ON_SSD
    elif draw < 0.20:
        constraint = NOT_ZONE_A
    elif draw < 0.26:
        racks = random.randrange(40)
        constraint = AnyOf(tuple(HostLabel("rack", f"r{racks + each}") for each in range(8)))
    elif draw < 0.30:
        constraint, labels = AllOf((ON_SSD, PodLabel(*APP, "<", 3))), (APP,)
    elif draw < 0.33:
        resources = replace(resources, gpu_milli=random.choice([1_000, 2_000, 4_000]))
    elif draw < 0.35:
        constraint = HostLabel("peloton/exclusive", "ml")
    return PodShape(resources, random.choice([0, 0, 1]), constraint=constraint), labels


def compare_with_oracle(random: Random, count: int) -> dict[str, Any]:
    """Place the same batches one pod after the other, the largest first, each on the host in use with least left, or
    else on the unused one that takes most of it.
    """
    rows = hosts(random, count, in_use=0)
    fleet, oracle = Fleet(rows), Oracle(rows)
    while np.count_nonzero(fleet.is_used) < count / 2:
        wants = batch(random)
        pack_requests(fleet, wants)
        oracle.put(wants)
    ours, best = int(np.count_nonzero(fleet.is_used)), oracle.used_count
    over = ours / best - 1
    return {
        "small_cluster_hosts": count,
        "hosts_used": ours,
        "oracle_hosts_used": best,
        "over_oracle_percent": round(100 * over, 2),
        "over_ratio_to_target": round(over / HOSTS_OVER_ORACLE, 3),
    }


class Oracle:
    """Best fit decreasing, slow and obvious, which shares only the rules on labels with Peloton."""

    def __init__(self, rows: list[HostRow]) -> None:
        self.rows = rows
        self.free = np.array([(*row.free, row.port_count, row.pod_slots) for row in rows], np.int64)
        self.total = np.array([tuple(row.total) for row in rows], np.int64)
        self.mean = np.maximum(self.total.mean(axis=0), 1)
        self.is_used = np.zeros(len(rows), np.bool_)
        self.webs = np.zeros(len(rows), np.int64)

    @property
    def used_count(self) -> int:
        return int(self.is_used.sum())

    def put(self, wants: list[PodRequest]) -> None:
        wants = sorted(wants, key=lambda want: -float((np.array(tuple(want.shape.resources)) / self.mean).max()))
        for want in wants:
            need = np.array((*want.shape.resources, want.shape.port_count, 1), np.int64)
            may = np.array(
                [label_misfit(want.shape.constraint, host_labels("", row.kind)) is None for row in self.rows]
            )
            if want.shape.resources.gpu_milli == 0:
                may &= (self.total[:, 3] == 0) | ~(
                    may & (self.total[:, 3] == 0) & (self.free >= need).all(axis=1)
                ).any()
            for left in range(want.count, 0, -1):
                self._put_one(left, need, may & (self.webs < 3) if want.labels else may, bool(want.labels))

    def _put_one(self, count: int, need: Ints, may: Any, is_web: bool) -> None:
        fits = may & (self.free >= need).all(axis=1)
        if not fits.any():
            return
        left = ((self.free[:, :4] - need[:4]) / self.mean).sum(axis=1)
        if (fits & self.is_used).any():
            at = int(np.argmin(np.where(fits & self.is_used, left, np.inf)))
        else:
            fit_counts = (self.free[:, need > 0] // need[need > 0]).min(axis=1)
            at = int(np.argmin(np.where(fits, left / 1e6 - np.minimum(fit_counts, count), np.inf)))
        self.free[at] -= need
        self.is_used[at] = True
        self.webs[at] += is_web
