"""Pods that are admitted repeatedly although no host takes them leave time to others of their pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from peloton.lifecycle.failed_placements import find_failed_placements
from peloton.lifecycle.gang import Step, evaluate
from peloton.model.host import PlacementBatch, Unplaced
from peloton.model.ids import JobId, RespoolId
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from services.resmgr.loop import AdmissionLoop
from tests.nightly import nightly
from tests.reasons import REQUEUED, lacking_capacity
from tests.unit.resmgr.world import World, fast
from workflows.policies import Policies

pytestmark = pytest.mark.slow

HOUR_S, FLAP_S = 3_600, 30
LIMIT = 8
"""Cpus of the pool; each hopeless pod, or two of them, leave too few for an ordinary one."""
LARGE = LIMIT - 1.0
POLICIES = Policies()
BUSY = lacking_capacity(1)


@dataclass
class VirtualCluster:
    """A cluster in which jobs look for hosts when their workflows do. Ordinary pods find one at once, and end; hopeless
    pods never do.
    """

    world: World
    loop: AdmissionLoop
    ordinary: dict[JobId, float] = field(default_factory=dict)  # -> time since which the job waits, in seconds
    looks: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # hopeless jobs: next try, pause before it
    gangs: set[JobId] = field(default_factory=set)  # hopeless jobs that are gangs
    waits_s: list[float] = field(default_factory=list)  # waits of ordinary jobs that have found hosts
    now_s: float = 0

    def __post_init__(self) -> None:
        self.loop.clock_ns = self.world.storage.db.clock_ns = self.clock_ns

    def clock_ns(self) -> int:
        return 10**18 + int(self.now_s * 10**9)

    async def add(self, job: JobId) -> None:
        self.looks[job] = (math.inf, 0.0)
        if self.world.storage.pods.gang(job).size:
            self.gangs.add(job)
        await self.loop.enqueue(job, 10_000)

    async def run(self, pool: RespoolId, hours: int, flaps: bool) -> None:
        """Add an ordinary job every hour, optionally with hosts that flap all the time."""
        period_s = FLAP_S if flaps else HOUR_S
        while self.now_s < hours * HOUR_S:
            if self.now_s % HOUR_S == 0:
                job = self.world.job(pool, 1, cpu=2)
                self.ordinary[job] = self.now_s
                await self.loop.enqueue(job, 1)
            if self.now_s % period_s == 0:
                cpu = 100 + self.now_s // FLAP_S % 2
                self.world.hosts.answer = (Resources.of(cpu, 1e6, 1e6), Resources())
                await self.loop.learn_capacity()
            while await self.turn():
                pass
            soon_s = [(self.now_s // period_s + 1) * period_s, *(due_s for due_s, _ in self.looks.values())]
            self.now_s = min([*soon_s, self.now_s + self.backoff_s()])

    async def turn(self) -> bool:
        """Run a cycle and the steps of the jobs that follow; return whether there were any."""
        reported = await self.loop.run_cycle()
        for job in reported:
            if job in self.looks:
                self.looks[job] = (self.now_s, 0.0)
            else:
                self.world.finish(job, [0])
                self.waits_s.append(self.now_s - self.ordinary.pop(job))
        due = [(job, pause_s) for job, (due_s, pause_s) in self.looks.items() if due_s <= self.now_s]
        for job, pause_s in due:
            pause_s = min(pause_s * 2 or POLICIES.retry_s, POLICIES.retry_max_s)
            is_waiting = await self.search_hosts(job)
            self.looks[job] = (self.now_s + pause_s if is_waiting else math.inf, pause_s)
        return bool(reported or due)

    def backoff_s(self) -> float:
        """Return the time until the next gang in backoff may be admitted."""
        now_ns = self.clock_ns()
        held = self.loop.state.snapshot(1, now_ns).held
        return min((gang.reason.left for gang in held), default=HOUR_S)

    async def search_hosts(self, job: JobId) -> bool:
        """Look for hosts, and return whether the job waits for some after that."""
        storage, now_ns = self.world.storage, self.clock_ns()
        if job in self.gangs:
            gang = storage.pods.gang(job)
            waited_s = (now_ns - storage.pods.page(job, 0, 1)[0].updated_ns) / 1e9
            verdict = evaluate(gang, waited_s, POLICIES.gang_placement_s)
            if verdict.step is Step.REQUEUE:
                await self.loop.requeue_gang(job, verdict.reason or REQUEUED)
            return verdict.step is Step.PLACE
        gangs = storage.pods.ready_gangs(job, POLICIES.place_pods_max)
        unplaced = tuple(Unplaced((one.pods[0][0],)) for one in gangs)
        turns = self.loop.note_unplaced(job, len(gangs), BUSY)
        batch = PlacementBatch(job, "", unplaced_count=len(gangs), why=BUSY, unplaced=unplaced)
        given_up = find_failed_placements(gangs, batch, POLICIES.pod_placement_s, turns)
        return len(gangs) > await self.loop.requeue_pods(job, given_up.instances, given_up.reason)


Jobs = Callable[[World, RespoolId], list[JobId]]


def two_of_one_job(world: World, pool: RespoolId) -> list[JobId]:
    return [world.job(pool, 2, cpus=[LARGE, LARGE - 0.5])]


def two_hundred_of_one_shape(world: World, pool: RespoolId) -> list[JobId]:
    return [world.job(pool, 200, cpu=LARGE / 2)]


def two_jobs(world: World, pool: RespoolId) -> list[JobId]:
    return [world.job(pool, 1, cpu=LARGE) for _ in range(2)]


def twenty_jobs(world: World, pool: RespoolId) -> list[JobId]:
    return [world.job(pool, 1, cpu=LARGE) for _ in range(20)]


def two_gangs(world: World, pool: RespoolId) -> list[JobId]:
    return [world.job(pool, 2, gang=2, cpu=LARGE / 2) for _ in range(2)]


SETS = [two_of_one_job, two_hundred_of_one_shape, two_jobs, twenty_jobs, two_gangs]
OFTEN = [(two_of_one_job, True), (two_gangs, False)]
"""Sets that ``make test`` tries: pods of one job, and gangs. The others differ in numbers of jobs and pods."""
SELDOM = [nightly(jobs, flaps) for jobs in SETS for flaps in (False, True) if (jobs, flaps) not in OFTEN]


@pytest.mark.parametrize(("hopeless", "flaps"), [*OFTEN, *SELDOM])
async def test_others_of_the_pool_are_placed(world: World, hopeless: Jobs, flaps: bool) -> None:
    """Other jobs of the pool are placed after the first tries, and at once later on, even on a cluster with flapping
    hosts.
    """
    pool = world.pool("p", LIMIT, LIMIT)
    loop = world.loop(fast(preempts=False))
    cluster = VirtualCluster(world, loop)
    try:
        await loop.learn_capacity()
        for job in hopeless(world, pool):
            await cluster.add(job)
        await cluster.run(pool, 2, flaps)
    finally:
        await loop.stop()

    first, *later = cluster.waits_s
    assert first <= 2_700
    assert [second <= 60 for second in later] == [True]


async def test_what_is_in_backoff_is_tried_when_a_pod_of_its_job_has_ended(world: World) -> None:
    """Backoff ends when a pod of the job ends that was as large, and not repeatedly; pods of other
    jobs do not end it.
    """
    pool = world.pool("p", 10, 10)
    job, other = world.job(pool, 6, cpus=[2, 2, 1]), world.job(pool, 1, cpu=2)

    loop = world.loop(fast(preempts=False))
    try:
        await loop.learn_capacity()
        now_ns = loop.clock_ns()
        world.storage.db.clock_ns = loop.clock_ns = lambda: now_ns
        await loop.enqueue(job, 2)
        await loop.enqueue(other, 1)
        await loop.run_cycle()
        assert world.states(job)[PodState.READY] == [0, 1]
        world.launch(job, 2)
        await loop.enqueue(job, 6)
        await loop.run_cycle()
        assert world.states(job)[PodState.READY] == [2, 3, 4, 5]
        now_ns += 10**9
        assert await loop.requeue_pods(job, [(2, 4)], REQUEUED) == 4

        async def list_tried() -> list[int]:
            await loop.run_cycle()
            return world.states(job).get(PodState.READY, [])

        world.finish(other, [0])
        assert await list_tried() == []
        world.finish(job, [0])
        assert await list_tried() == [2, 3, 4, 5]
        await loop.requeue_pods(job, [(2, 4)], REQUEUED)
        world.finish(job, [1])
        assert await list_tried() == []
        now_ns += 60 * 10**9
        assert await list_tried() == [2, 3, 4, 5]
    finally:
        await loop.stop()
