"""A synthetic day of three kinds of work, drawn from a seed. README.md says where its shapes come from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from peloton.model.resources import Resources

STEP_S = 300
STEPS = 24 * 3600 // STEP_S
LAST_ARRIVAL_STEP = 20 * 3600 // STEP_S
PEAK_HOUR = 18.0
KINDS = SERVICES, DATABASES, BATCH, BEST_EFFORT = "services", "databases", "batch", "best-effort"


@dataclass(frozen=True, slots=True)
class Work:
    """One job. A service has ``counts``, its instances at each step; a batch job has ``run_steps``, one per pod."""

    name: str
    kind: str
    need: Resources  # of one pod
    used_percent: tuple[int, ...]  # cpu in use, of the request, by step
    counts: tuple[int, ...] = ()
    run_steps: tuple[int, ...] = ()
    arrives: int = 0

    def core_hours(self, instance: int) -> float:
        """Return the core-hours that a pod of a batch job requests."""
        return core_hours(self.need, self.run_steps[instance])


@dataclass(frozen=True, slots=True)
class Amounts:
    """The work of a day by kind."""

    services_cores: int = 800  # requested at the peak
    databases_cores: int = 300
    batch_core_hours: int = 12_000


def core_hours(need: Resources, steps: int) -> float:
    return need.cpu_milli / 1000 * steps * STEP_S / 3600


def draw_day(seed: int, amounts: Amounts) -> list[Work]:
    random = Random(seed)
    return [
        *_draw_services(random, amounts.services_cores),
        *_draw_databases(random, amounts.databases_cores),
        *_draw_batch(random, amounts.batch_core_hours),
    ]


def traffic(step: int, shift_h: float = 0.0, trough: float = 0.45) -> float:
    """Return the part of the day's peak traffic: a cosine between ``trough`` and 1."""
    angle = 2 * math.pi * (step * STEP_S / 3600 - PEAK_HOUR - shift_h) / 24
    return trough + (1 - trough) * (1 + math.cos(angle)) / 2


def _draw_services(random: Random, cores: int) -> list[Work]:
    """Services are scaled by their traffic, so the use of each pod stays near the target of its autoscaler."""
    found, left = list[Work](), cores
    while left > 0:
        cpu = random.choice((1, 2, 2, 4))
        peak = max(min(round(random.lognormvariate(2.3, 0.8)), left // cpu), 1)
        left -= peak * cpu
        shift_h, trough = random.gauss(0, 1.5), random.uniform(0.3, 0.6)
        counts = tuple(math.ceil(peak * traffic(step, shift_h, trough)) for step in range(STEPS))
        target = random.uniform(35, 60)
        used = tuple(round(min(max(random.gauss(target, 5), 5), 100)) for _ in range(STEPS))
        need = Resources.of(cpu=cpu, memory_mb=cpu * random.choice((2048, 3072, 4096)))
        found.append(Work(f"service-{len(found):03}", SERVICES, need, used, counts))
    return found


def _draw_databases(random: Random, cores: int) -> list[Work]:
    """Databases keep their number of instances and their memory; only their use of cpu follows the traffic."""
    found, left = list[Work](), cores
    while left > 0:
        cpu = random.choice((2, 4, 4, 8))
        count = max(min(random.choice((3, 3, 5, 7)), left // cpu), 1)
        left -= count * cpu
        peak = random.uniform(30, 60)
        used = tuple(round(peak * traffic(step)) for step in range(STEPS))
        need = Resources.of(cpu=cpu, memory_mb=cpu * 4096)
        found.append(Work(f"database-{len(found):03}", DATABASES, need, used, (count,) * STEPS))
    return found


def _draw_batch(random: Random, hours: int) -> list[Work]:
    """Half of the jobs arrive by the clock in the first two hours, half while people work; few jobs are most of it."""
    found, left = list[Work](), float(hours)
    while left > 0:
        cpu = random.choice((2, 2, 4))
        count = min(max(round(random.lognormvariate(2.0, 1.4)), 1), 600)
        median_s = min(random.lognormvariate(math.log(1800), 0.8), 7200)
        run_s = [min(median_s * random.lognormvariate(0, 0.3), 10_800) for _ in range(count)]
        run_steps = tuple(max(round(seconds / STEP_S), 1) for seconds in run_s)
        left -= core_hours(Resources.of(cpu=cpu), sum(run_steps))
        is_nightly = random.random() < 0.5
        arrives = random.randrange(2 * 3600 // STEP_S) if is_nightly else round(random.gauss(13, 3) * 3600 / STEP_S)
        need = Resources.of(cpu=cpu, memory_mb=cpu * random.choice((1536, 2048, 4096)))
        used = round(random.uniform(70, 95))
        found.append(
            Work(
                f"batch-{len(found):04}",
                BATCH,
                need,
                (used,) * STEPS,
                run_steps=run_steps,
                arrives=min(max(arrives, 0), LAST_ARRIVAL_STEP),
            )
        )
    return found


def draw_best_effort(seed: int, pod_count: int = 8_000) -> list[Work]:
    """Return a job of short pods that may run on slack only, more than a day has slack for."""
    random = Random(seed)
    run_steps = tuple(max(round(random.lognormvariate(math.log(1200), 0.5) / STEP_S), 1) for _ in range(pod_count))
    return [Work("best-effort", BEST_EFFORT, Resources.of(cpu=2, memory_mb=2048), (85,) * STEPS, run_steps=run_steps)]
