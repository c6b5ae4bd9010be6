"""ExplainService over gRPC, on a real store: what it tells, and that it changes nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
import grpc.aio
import pytest

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.explain import explain_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig, ResourcePoolPath
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from services.resmgr.pools import pool_spec, with_defaults
from services.resmgr.server import ResmgrServer, serve
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.world import FAST, World, facts, pool_config


class Asked(NamedTuple):
    server: ResmgrServer
    stub: explain_pb2_grpc.ExplainServiceAsyncStub

    async def queue(self, *jobs: JobId) -> None:
        for job in jobs:
            await self.server.loop.enqueue(job, 1000)
            await self.server.loop.run_cycle()

    async def why(self, job: str) -> pb.JobWhyResponse:
        return await self.stub.JobWhy(pb.JobWhyRequest(jobId=JobID(value=job)))

    async def why_pool(self, path: str) -> pb.PoolWhyResponse:
        return await self.stub.PoolWhy(pb.PoolWhyRequest(path=ResourcePoolPath(value=path)))

    async def plan(self, config: ResourcePoolConfig) -> pb.PoolPlanResponse:
        return await self.stub.PoolPlan(pb.PoolPlanRequest(config=config))


@asynccontextmanager
async def asking(world: World) -> AsyncIterator[Asked]:
    server = await serve(world.gateway, world.lifecycles, world.hosts, "127.0.0.1:0", FAST)
    try:
        await until(lambda: server.loop.state.capacity is not None)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Asked(server, explain_pb2_grpc.ExplainServiceStub(channel))  # type: ignore[arg-type]
    finally:
        await server.stop()


def job_config(pool: str, count: int, cpu: float, **sla: int) -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="planned", type=job_pb2.BATCH, instanceCount=count)
    config.respoolID.value = pool
    config.sla.CopyFrom(job_pb2.SlaConfig(preemptible=True, **sla))  # type: ignore[arg-type]
    config.defaultConfig.resource.cpuLimit = cpu
    return config


async def test_a_waiting_job(world: World) -> None:
    """Queue, position, rule, numbers and holder; instances that run are counted."""
    pool = world.pool("p", 10, 10)
    holder, waiter, last = (world.job(pool, count) for count in (8, 5, 1))

    async with asking(world) as asked:
        await asked.queue(holder, waiter, last)
        first, second = await asked.why(waiter), await asked.why(last)

    (waiting,) = first.waiting
    assert (waiting.queue, waiting.firstInstance, waiting.gangCount, waiting.gangsAhead) == (pb.QUEUE_ORDINARY, 2, 3, 0)
    reason = waiting.reason
    assert (reason.rule, reason.poolPath, reason.kind) == (pb.RULE_POOL_LIMIT, "/p", "cpu")
    assert (reason.wanted, reason.available, reason.bound) == (1, 0, 10)
    assert [(one.jobId.value, one.amount) for one in reason.holders] == [(holder, 8), (waiter, 2)]
    assert dict(first.instanceCounts) == {"READY": 2, "PENDING": 3}
    behind = second.waiting[0]
    assert (behind.gangsAhead, behind.reason.rule, behind.reason.blockingJobId.value) == (
        3,
        pb.RULE_HEAD_OF_LINE,
        waiter,
    )
    assert behind.reason.blockingReason.rule == pb.RULE_POOL_LIMIT
    assert second.text.splitlines()[0] == f"Job {last} (job) is INITIALIZED in pool /p: 1 PENDING"


async def test_a_job_without_hosts(world: World) -> None:
    """What placement noted is told with hosts per rule, while instances are READY."""
    job = world.job(world.pool("p", 10, 10), 1)

    async with asking(world) as asked:
        await asked.queue(job)
        asked.server.loop.note_unplaced(job, 1, "1 pod without a host (2 hosts: less than 2 gpu free)")
        (reason,) = (await asked.why(job)).reasons

    assert (reason.rule, reason.wanted) == (pb.RULE_NO_HOST, 1)
    assert [(one.hostCount, one.rule) for one in reason.refusingHosts] == [(2, "less than 2 gpu free")]


async def test_a_job_that_waits_for_slack(world: World) -> None:
    """Of a revocable job it is said how much slack the hosts have and how much is taken, in its answer and its plan."""
    pool = world.pool("p", 10, 10)
    world.hosts.answer = (Resources.of_capacity(10), Resources(cpu_milli=1_500))
    first, job = (world.job(pool, count, revocable=True) for count in (1, 2))

    async with asking(world) as asked:
        await until(lambda: asked.server.loop.state.slack_cpu == 1_500)
        await asked.queue(first, job)
        answer = await asked.why(job)
        plan = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(pool, 1, 1, revocable=True)))

    assert answer.waiting[0].reason.rule == pb.RULE_SLACK_ENTITLEMENT
    line = (
        "  revocable instances run on slack, what others hold and do not use: the hosts have cpu 1.5 of it, "
        "admitted revocable instances hold 1"
    )
    assert answer.text.splitlines()[-1] == line
    assert "cpu 1 wanted, 0.5 left of the slack entitlement of /p: 1.5" in answer.text
    assert plan.text.splitlines()[0] == "In pool /p 0 of 1 instances would be admitted now."


async def test_a_job_that_has_ended(world: World) -> None:
    """How it ended is told, with the first instances that failed."""
    job = world.job(world.pool("p", 10, 10), 2)

    async with asking(world) as asked:
        await asked.queue(job)
        await until(lambda: PodState.READY in world.states(job))
        world.finish(job, [0])
        world.finish(job, [1], PodState.FAILED)
        world.settle(job)
        answer = await asked.why(job)

    assert answer.text.splitlines() == [
        f"Job {job} (job) ended FAILED in pool /p: 1 SUCCEEDED, 1 FAILED",
        "  instance 1: FAILED",
    ]
    assert (answer.state, len(answer.waiting)) == (job_pb2.FAILED, 0)


REFUSED = {
    "an unknown job": ("a1a1a1a1-0000-4000-8000-000000000000", grpc.StatusCode.NOT_FOUND, "not found"),
    "no id at all": ("x", grpc.StatusCode.INVALID_ARGUMENT, "JobID must be valid UUID, not 'x'"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_jobs_that_are_not_there(world: World, case: str) -> None:
    """The call's status says what is wrong with the id."""
    job, code, text = REFUSED[case]
    async with asking(world) as asked:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.why(job)

    assert (caught.value.code(), text in (caught.value.details() or "")) == (code, True)


async def test_a_pool(world: World) -> None:
    """The head of each queue in and below a pool, and its loans."""
    eng = world.pool("eng", 10, 10)
    maps, search = world.pool("maps", 4, 10, eng), world.pool("search", 6, 10, eng)
    holder, waiter = world.job(maps, 8), world.job(search, 4)

    async with asking(world) as asked:
        await asked.queue(holder, waiter)
        answer, inner = await asked.why_pool("/eng/search"), await asked.why_pool("/eng")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.why_pool("/none")

    (queue,) = answer.queues
    assert (queue.gangCount, queue.instanceCount, queue.head.jobId.value) == (2, 2, waiter)
    assert queue.head.reason.text == "cpu 1 wanted, 0 left of the pool limit of /eng: 10"
    assert [(one.poolPath, one.amount) for one in (*answer.lent, *answer.borrowers)] == [
        ("/eng/search", 4),
        ("/eng/maps", 4),
    ]
    assert "lends cpu 4, held above their reservations by /eng/maps (4)" in answer.text
    assert [one.poolPath for one in inner.queues] == ["/eng/search"]
    assert caught.value.details() == "resource pool /none not found"


async def test_the_tree(world: World) -> None:
    """Parents come first; inner pools are sums; the root's limit is the capacity; lengths of queues are there."""
    eng = world.pool("eng", 10, 10)
    job = world.job(world.pool("maps", 4, 6, eng), 8)

    async with asking(world) as asked:
        await asked.queue(job)
        pools = (await asked.stub.PoolTree(pb.PoolTreeRequest())).pools

    assert [(one.path, one.depth, one.isLeaf, one.queuedInstances) for one in pools] == [
        ("/", 0, False, 2),
        ("/eng", 1, False, 2),
        ("/eng/maps", 2, True, 2),
    ]
    cpu = [one.amounts[0] for one in pools]
    assert [(one.reservation, one.limit, one.allocation, one.demand) for one in cpu] == [
        (100, 100, 6, 2),
        (10, 10, 6, 2),
        (4, 6, 6, 2),
    ]
    assert cpu[2].entitlement == 6


async def test_a_plan_of_a_changed_pool(world: World) -> None:
    """A higher limit admits waiting gangs, a lower one leaves the pool above its entitlement; neither is done."""
    pool = world.pool("p", 0, 4)
    job = world.job(pool, 6)

    async with asking(world) as asked:
        await asked.queue(job)
        before = facts(asked.server.loop.state)
        more, less = await asked.plan(pool_config("p", 0, 5)), await asked.plan(pool_config("p", 0, 3))
        after = facts(asked.server.loop.state)

    assert [(one.gangCount, one.gangCountBefore, one.jobId.value) for one in more.admitted] == [(1, 0, job)]
    assert ("/p", "cpu", 4, 5) in [(one.poolPath, one.kind, one.before, one.after) for one in more.entitlements]
    assert [(one.allocation, one.entitlement) for one in less.aboveEntitlement] == [(4, 3)]
    assert (more.isNew, after) == (False, before)


async def test_a_plan_of_a_new_pool(world: World) -> None:
    """A new pool takes entitlement from the others; what could not be created is refused in the same words."""
    world.pool("p", 0, 100)

    async with asking(world) as asked:
        answer = await asked.plan(pool_config("q", 40, 100))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.plan(pool_config("q", 0, 1000))
        assert len(asked.server.loop.state.pools) == 1

    assert answer.isNew
    assert answer.text.splitlines()[:4] == [
        "Pool /q would be created.",
        "Entitlements that would change:",
        "  /p cpu: 100 -> 50",
        "  /q cpu: 0 -> 50",
    ]
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "resource cpu, limit 1000 exceeds parent limit 100",
    )


async def test_a_plan_of_a_job(world: World) -> None:
    """What would be admitted, wait, and be held back; the queue is as it was."""
    pool = world.pool("p", 0, 4)
    holder = world.job(pool, 3)

    async with asking(world) as asked:
        await asked.queue(holder)
        before = facts(asked.server.loop.state)
        config = job_config(pool, 6, 1, maximumRunningInstances=5)
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
        after = facts(asked.server.loop.state)

    assert (answer.admittedInstances, answer.waitingInstances, answer.heldBackInstances) == (1, 4, 1)
    assert answer.text.splitlines() == [
        "In pool /p 1 of 6 instances would be admitted now.",
        "  instances 1-4 in the ordinary queue of /p, 1 gang ahead: cpu 1 wanted, 0 left of the pool limit of /p: 4",
        f"    held by job {holder}: cpu 3",
        "  1 instance held back: at most 5 may run at a time, 5 are queued or running",
    ]
    assert after == before


async def test_plans_come_true(world: World) -> None:
    """What was planned for a job and for a pool is what happens when they are created."""
    pool = world.pool("p", 0, 9)
    world.hosts.answer = (Resources.of_capacity(12, 1000, 1000), Resources())
    other = pool_config("q", 6, 12)

    async with asking(world) as asked:
        await asked.queue(world.job(pool, 5))
        planned_job = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(pool, 6, 1)))
        job = world.job(pool, 6)
        await asked.queue(job)
        planned_pool = await asked.plan(other)
        other_id = RespoolId(str(uuid.uuid4()))
        asked.server.loop.state.put_pool(pool_spec(other_id, with_defaults(other)))
        tree = (await asked.stub.PoolTree(pb.PoolTreeRequest())).pools

    assert planned_job.admittedInstances == len(world.states(job)[PodState.READY]) == 4
    found = {one.path: one.amounts[0].entitlement for one in tree}
    changed = {one.poolPath: one.after for one in planned_pool.entitlements if one.kind == "cpu"}
    assert found == {"/": 12, "/p": 9, **changed}
    assert changed == {"/q": 3}


async def test_a_plan_of_a_gang_with_overrides(world: World) -> None:
    """A gang is planned whole: the needs of its members add up, each with its own configuration."""
    pool = world.pool("p", 0, 4)
    config = job_config(pool, 3, 1, minimumRunningInstances=3)
    config.instanceConfig[1].resource.cpuLimit = 3

    async with asking(world) as asked:
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))

    (waiting,) = answer.waiting
    assert (waiting.gangSize, waiting.reason.wanted, waiting.reason.isFinal) == (3, 5, True)


async def test_plans_of_jobs_that_have_no_place(world: World) -> None:
    """A pool that takes no jobs and a job without instances are refused."""
    pool = world.pool("p", 0, 4)

    async with asking(world) as asked:
        texts = []
        for config in (job_config(ROOT_POOL_ID, 1, 1), job_config(pool, 0, 1)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
            texts.append((caught.value.details() or "").partition(" of job")[0])

    assert texts == ["resource pool root", "instanceCount is 0, want 1 to 100000"]


async def test_without_a_cluster(world: World) -> None:
    """As long as nobody knows the capacity there are no entitlements to tell of: UNAVAILABLE, try again."""
    async with asking(world) as asked:
        world.hosts.answer, asked.server.loop.state.capacity = None, None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.stub.PoolTree(pb.PoolTreeRequest())

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# -- who would be evicted -------------------------------------------------------------------------------------------


def told(evictions: Iterable[pb.PlannedEviction]) -> list[tuple[str, int, int, int, float]]:
    """Job, first instance, how many, rounds, seconds."""
    return [(one.jobId.value, one.firstInstance, one.instanceCount, one.rounds, one.withinS) for one in evictions]


async def test_a_plan_of_a_job_says_who_would_leave(world: World) -> None:
    """Between pools after the rounds that a pool may be above its entitlement, inside a pool in the next one; what is
    planned changes nothing."""
    lends, owner = world.pool("a", 50, 100), world.pool("b", 50, 100)
    lent = world.job(lends, 10, cpu=10)

    async with asking(world) as asked:
        await asked.queue(lent)
        await until(lambda: world.states(lent) == {PodState.READY: list(range(10))})
        before = facts(asked.server.loop.state)
        back = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(owner, 3, 10)))
        urgent = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(lends, 2, 10, priority=4)))
        humble = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(lends, 2, 10)))
        after = facts(asked.server.loop.state)

    assert told(back.evictions) == [(lent, 7, 3, 5, 300)]
    assert back.text.splitlines()[-1] == (
        f"  after 5 rounds of preemption (300 s), instances 7-9 of job {lent}: preempted for this job of /b, "
        "which wants cpu 10: /a holds 100 and is entitled to 70"
    )
    assert told(urgent.evictions) == [(lent, 8, 2, 1, 60)]
    assert urgent.evictions[0].text.startswith("preempted for this job of /a, which wants cpu 10: its priority is 4")
    assert (told(humble.evictions), after) == ([], before)


async def test_a_plan_of_a_pool_says_who_would_leave(world: World) -> None:
    """Those whom the change evicts, without those who must go anyway, and for which job."""
    lends, owner = world.pool("a", 50, 100), world.pool("b", 0, 10)
    lent, waits = world.job(lends, 10, cpu=10), world.job(owner, 5, cpu=10)

    async with asking(world) as asked:
        await asked.queue(lent, waits)
        await until(lambda: world.states(lent) == {PodState.READY: list(range(10))})
        same, more = await asked.plan(pool_config("b", 0, 10)), await asked.plan(pool_config("b", 50, 50))

    assert told(same.evictions) == []
    assert told(more.evictions) == [(lent, 5, 4, 5, 300)]
    assert {one.forJobId.value for one in more.evictions} == {waits}
    assert "Instances that would be evicted:" in more.text.splitlines()
    assert "No instance would be evicted." in same.text.splitlines()


async def test_a_gang_between_admission_and_hosts(world: World) -> None:
    """It waits for hosts for all of it; is held back after launches in vain, with the numbers, and holds nobody up; and
    gathers while members have not ended."""
    gang, other = world.job(world.pool("p", 5, 5), 5, gang=4), world.job(world.pool("q", 4, 4), 1)

    async with asking(world) as asked:
        await asked.queue(gang, other)
        asked.server.loop.note_unplaced(gang, 4, "2 hosts have less than 1 cpu free")
        waits = await asked.why(gang)
        await asked.server.loop.requeue_gang(gang, "no hosts")
        held, pool = await asked.why(gang), await asked.why_pool("/p")
        world.now_ns = asked.server.loop.clock_ns()
        asked.server.loop.clock_ns = lambda: world.now_ns + 31 * 10**9
        await asked.server.loop.run_cycle()
        world.finish(gang, [0])
        world.gateway.want_new_runs(gang, [(1, 1)])
        world.settle(gang)
        gathers = await asked.why(gang)

    (no_host,) = waits.reasons
    assert "gang of 4 waits for hosts for all of it; admitted, but 2 hosts have less than 1 cpu free" == no_host.text
    by_gang = {waiting.gangSize: waiting for waiting in held.waiting}
    reason = by_gang[4].reason
    assert (pb.RULE_HELD_BACK, 1, 4) == (reason.rule, reason.bound, reason.gangSize)
    assert 0 < reason.available <= 30
    assert f"gang of 4: held back for {reason.available:.0f} s after 1 launch in vain; others pass it by" == reason.text
    assert (pool.pool.queuedGangs, pool.pool.queuedInstances) == (1, 4)
    assert "held back" in pool.text
    (gathering,) = [reason for reason in gathers.reasons if reason.rule == pb.RULE_GANG_GATHERS]
    assert (1, 4) == (gathering.wanted, gathering.bound)
    assert "1 instance of the gang of 4 not queued before the others have ended: it starts whole" == gathering.text
