"""Description of a day, drawn from one seed: hosts, a tree of pools, and jobs with their arrivals.

Every job fits its pool and the whole cluster, so that every job ends in a day at whose end all failures are healed.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from peloton.model.host import LeasedHost
from peloton.model.ids import ROOT_POOL_ID, Hostname, JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import Constraint, HostLabel, PodShape, ShapeRange, Strategy
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.model.respool import PoolResource, PoolSpec, ReservationType

HOUR_S = 3600
RUN_SIGMA = 1.0
"""Standard deviation of the logarithm of run times."""
RUN_MAX_S = 4 * HOUR_S
GIB = 1024
ZONES = ("a", "b", "c")
ARRIVAL_BINS = 288


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a day. ``load`` is the cpu time that jobs request, as a part of the hosts' cpu time."""

    hosts: int = 1_000
    pools: int = 50
    pods: int = 300_000
    hours: float = 24.0
    step_s: int = 10
    load: float = 0.85


@dataclass(frozen=True, slots=True)
class JobPlan:
    record: JobRecord
    shapes: tuple[ShapeRange, ...]
    arrives_s: int
    median_s: float  # of the run times of its pods
    attempts: int
    kind: str
    kills_on_preempt: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Sort of job: its frequency, its number of pods, and its run time compared with others."""

    name: str
    weight: float
    pods: tuple[int, int]
    cpus: tuple[float, ...]
    run_factor: float


KINDS = (
    Kind("batch", 0.48, (20, 2_000), (0.25, 0.5, 1, 2), 1),
    Kind("gang", 0.14, (2, 32), (0.5, 1, 2, 4), 3),
    Kind("controller", 0.08, (5, 50), (0.5, 1), 3),
    Kind("non-preemptible", 0.10, (1, 20), (0.5, 1, 2), 2),
    Kind("revocable", 0.12, (10, 300), (0.5, 1), 1),
    Kind("gpu", 0.08, (1, 8), (1, 2), 5),
)


def draw_hosts(random: Random, size: Size) -> list[LeasedHost]:
    """Return hosts: mostly 4 cpus, some 8; one in twenty has 4 gpus and comes last, so that other pods fill it last."""
    hosts = []
    gpu_hosts = max(size.hosts // 20, 1)
    for number in range(size.hosts):
        has_gpu = number >= size.hosts - gpu_hosts
        cpus = 8 if has_gpu or random.random() < 0.25 else 4
        free = Resources(cpus * 1000, cpus * 4 * GIB, 200 * GIB, 4000 if has_gpu else 0)
        name = Hostname(f"{'gpu' if has_gpu else 'host'}{number:05}")
        labels = (("hostname", name), ("zone", ZONES[number % len(ZONES)]))
        hosts.append(LeasedHost(name, free, Resources(cpu_milli=cpus * 250), labels=labels))
    return hosts


# -- pools ----------------------------------------------------------------------------------------------------------


def draw_pools(random: Random, size: Size, capacity: Resources) -> list[PoolSpec]:
    """Return three levels, parents first: organisations, three teams in each, and the rest as leaves below the
    teams.
    """
    org_count = max(size.pools // 12, 1)
    team_count = org_count * 3
    leaf_count = size.pools - org_count - team_count
    assert leaf_count >= team_count, f"{size.pools} pools are too few for three levels"
    orgs = list(_children(random, None, org_count, capacity, "org"))
    teams = [team for org in orgs for team in _children(random, org, 3, capacity, "team")]
    leaves: list[PoolSpec] = []
    for number, team in enumerate(teams):
        count = leaf_count // team_count + (number < leaf_count % team_count)
        leaves += _children(random, team, count, capacity, "pool")
    return [*orgs, *teams, *leaves]


def _children(
    random: Random, parent: PoolSpec | None, count: int, capacity: Resources, name: str
) -> Iterator[PoolSpec]:
    """Return pools whose reservations fit the parent's; most have a limit well above, so that they borrow."""
    weights = [random.uniform(0.5, 1.5) for _ in range(count)]
    factor = random.uniform(0.8, 0.95) / sum(weights)
    is_static = name == "pool" and random.random() < 0.1
    for number, weight in enumerate(weights):
        resources = []
        stretch, share = random.uniform(1.5, 4), random.choice([1000, 1000, 2000, 3000])
        for index, (kind, amount) in enumerate(zip(RESOURCE_KINDS, capacity, strict=True)):
            above = amount if parent is None else parent.resources[index].reservation
            most = amount if parent is None else parent.resources[index].limit
            reservation = int(above * weight * factor)
            limit = min(most, max(int(reservation * stretch), reservation))
            kind_type = ReservationType.STATIC if is_static else ReservationType.ELASTIC
            resources.append(PoolResource(kind, reservation, limit, share, kind_type))
        parent_id = ROOT_POOL_ID if parent is None else parent.respool_id
        own_id = RespoolId(str(uuid.UUID(int=random.getrandbits(128))))
        controller_limit = random.choice([None, 10.0, 30.0]) if name == "pool" else None
        yield PoolSpec(own_id, parent_id, f"{name}{number}", tuple(resources), controller_limit)


def leaves_of(pools: Sequence[PoolSpec]) -> list[PoolSpec]:
    parents = {pool.parent_id for pool in pools}
    return [pool for pool in pools if pool.respool_id not in parents]


# -- jobs -----------------------------------------------------------------------------------------------------------


def draw_jobs(random: Random, size: Size, pools: Sequence[PoolSpec], capacity: Resources) -> list[JobPlan]:
    """Return jobs with about ``size.pods`` pods by their arrival; run times are stretched to the requested load."""
    leaves = leaves_of(pools)
    popular = [leaf.resources[0].reservation * random.choice([0.5, 1, 1, 2]) for leaf in leaves]
    plans: list[JobPlan] = []
    pods = 0
    while pods < size.pods:
        kind = random.choices(KINDS, [kind.weight for kind in KINDS])[0]
        pool = random.choices(leaves, popular)[0]
        if kind.name == "gpu":
            pool = random.choice(sorted(leaves, key=lambda leaf: -leaf.resources[3].limit)[:5])
        plans.append(_job(random, size, kind, pool, len(plans)))
        pods += plans[-1].record.instance_count
    mean = math.exp(RUN_SIGMA**2 / 2)
    asked = sum(s.count * s.shape.resources.cpu_milli * plan.median_s * mean for plan in plans for s in plan.shapes)
    unit_s = size.load * capacity.cpu_milli * size.hours * HOUR_S / asked
    arrivals = sorted(_arrivals(random, size, len(plans)))
    return [
        replace(p, arrives_s=arrives_s, median_s=p.median_s * unit_s)
        for p, arrives_s in zip(plans, arrivals, strict=True)
    ]


def _job(random: Random, size: Size, kind: Kind, pool: PoolSpec, number: int) -> JobPlan:
    low, high = kind.pods
    count = round(math.exp(random.uniform(math.log(low), math.log(max(min(high, size.pods // 150), low)))))
    shape = _shape(random, kind, pool)
    gang_size = 0
    if kind.name == "gang" or (kind.name == "gpu" and random.random() < 0.5):
        count = min(count, *(r.limit // 2 // n for r, n in zip(pool.resources, shape.resources, strict=True) if n))
        count = max(count, 1)
        gang_size = count if random.random() < 0.7 else max(count // 2, 1)
    shapes = [ShapeRange(0, count, shape)]
    if kind.name == "controller":
        cpu, memory, disk, _ = (resource.reservation // 12 for resource in pool.resources)
        lead = PodShape(
            Resources(min(cpu, 2000), min(memory, 4 * GIB), min(disk, GIB)), preemptible=True, controller=True
        )
        shapes = [ShapeRange(0, 1, lead), ShapeRange(1, count - 1, shape)]
    sla = SlaSpec(
        priority=random.choice([0, 0, 0, 1, 2, 5]),
        preemptible=shape.preemptible,
        revocable=shape.revocable,
        minimum_running_instances=gang_size,
        maximum_running_instances=max(count // 2, gang_size, 1) if random.random() < 0.1 else 0,
    )
    record = JobRecord(
        JobId(str(uuid.UUID(int=random.getrandbits(128)))),
        f"{kind.name}-{number}",
        JobType.BATCH,
        "team",
        pool.respool_id,
        count,
        sla,
        JobState.INITIALIZED,
        JobState.SUCCEEDED,
        has_controller=kind.name == "controller",
    )
    attempts, is_mortal = random.choice([1, 2, 3]), random.random() < 0.05
    return JobPlan(record, tuple(shapes), 0, kind.run_factor, attempts, kind.name, is_mortal)


def _shape(random: Random, kind: Kind, pool: PoolSpec) -> PodShape:
    """Return a shape within the bounds of its kind: the reservation, the slack limit, the limit."""
    cpu_milli = round(random.choice(kind.cpus) * 1000)
    memory_mib = cpu_milli * random.choice([1, 2, 4]) * GIB // 1000
    is_revocable = kind.name == "revocable"
    is_preemptible = kind.name != "non-preemptible"
    cpu, memory = pool.resources[0], pool.resources[1]
    if is_revocable:
        memory_mib = min(memory_mib, memory.reservation // 50)
    elif not is_preemptible:
        cpu_milli, memory_mib = min(cpu_milli, cpu.reservation // 2), min(memory_mib, memory.reservation // 2)
    constraint: Constraint | None = None
    if kind.name == "batch" and random.random() < 0.1:
        constraint = HostLabel("zone", random.choice(ZONES))
    return PodShape(
        Resources(cpu_milli, memory_mib, random.choice([1, 2, 8]) * GIB, 1000 if kind.name == "gpu" else 0),
        revocable=is_revocable,
        preemptible=is_preemptible,
        strategy=Strategy.SPREAD_JOB if random.random() < 0.1 else Strategy.PACK_HOST,
        constraint=constraint,
    )


def _arrivals(random: Random, size: Size, count: int) -> Iterator[int]:
    """Return seconds: jobs always arrive, with peaks in the morning and in the afternoon."""
    hours = [24 * (number + 0.5) / ARRIVAL_BINS for number in range(ARRIVAL_BINS)]
    weights = [0.4 + math.exp(-(((h - 10) / 2) ** 2)) + 0.8 * math.exp(-(((h - 15) / 2) ** 2)) for h in hours]
    for hour in random.choices(hours, weights, k=count):
        at_s = (hour + random.uniform(-0.5, 0.5) * 24 / ARRIVAL_BINS) / 24 * size.hours * HOUR_S
        yield int(at_s) // size.step_s * size.step_s
