"""Plans over gRPC: the effect of a change, without the change."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import grpc
import grpc.aio
import pytest

from peloton.api import convert_v1_spec
from peloton.api.convert_pool import pool_spec
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.errors import Unavailable
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host_pool import Workload
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.misfit import UnmetConstraint
from peloton.model.pod import PodState
from peloton.model.reason import RefusingHosts
from peloton.model.resources import Resources
from services.resmgr.pool_rules import with_defaults
from tests.reasons import lacking_capacity, too_large
from tests.unit.resmgr.asked import asking, job_config
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.world import World, facts, pool_config


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
    """A new pool takes entitlement from the others; an invalid pool is rejected with the message of its creation."""
    world.pool("p", 0, 100)

    async with asking(world) as asked:
        answer = await asked.plan(pool_config("q", 40, 100))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.plan(pool_config("q", 1000, 1000))
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
        "Aggregated child reservation 1000 of kind `cpu` exceed parent `root` reservations 100 "
        "(the parent is /, its other children have 0)",
    )


async def test_a_plan_of_a_job(world: World) -> None:
    """The plan counts instances that would be admitted, queued and kept out by the maximum; the queue is unchanged."""
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
        "  a host has free resources for it now",
        "  hosts have free resources now for all 4 that would wait in the queue",
        "  instances 1-4 in the ordinary queue of /p, 1 gang ahead: cpu 1 wanted, 0 left of the pool limit of /p: 4",
        "    held by job job: cpu 3",
        "  1 instance not queued yet: at most 5 may run at a time, 5 are queued or running",
    ]
    assert after == before


async def test_plans_come_true(world: World) -> None:
    """A plan of a job and a plan of a pool equal the result of their creation."""
    pool = world.pool("p", 0, 9)
    world.hosts.answer = (Resources.of(12, 1000, 1000), Resources())
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


async def test_a_plan_of_a_service(world: World) -> None:
    """The plan is the same by the spec of the service and by its v0 configuration."""
    pool = world.pool("p", 0, 4)
    spec = stateless_pb2.JobSpec(
        instance_count=6, respool_id=peloton_pb2.ResourcePoolID(value=pool), sla=stateless_pb2.SlaSpec(preemptible=True)
    )
    spec.default_spec.containers.add().resource.cpu_limit = 1

    async with asking(world) as asked:
        await asked.queue(world.job(pool, 1))
        answers = [
            await asked.stub.JobPlan(request)
            for request in (
                pb.JobPlanRequest(spec=spec), pb.JobPlanRequest(config=convert_v1_spec.job_config(spec)),
            )
        ]  # fmt: skip

    assert [(3, 3)] * 2 == [(one.admittedInstances, one.waitingInstances) for one in answers]
    assert "In pool /p 3 of 6 instances would be admitted now." == answers[0].text.splitlines()[0]


async def test_a_plan_of_a_stateful_service(world: World) -> None:
    """The disk for its volumes, which are to be made, is asked of hosts as it is of the pool, which has none here."""
    pool = world.pool("p", 9, 9)
    spec = stateless_pb2.JobSpec(instance_count=2, respool_id=peloton_pb2.ResourcePoolID(value=pool))
    spec.default_spec.containers.add().resource.cpu_limit = 1
    spec.default_spec.volume.container_path, spec.default_spec.volume.size_mb = "data", 500

    async with asking(world) as asked:
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(spec=spec))

    (each,), (waiting,) = world.hosts.asked_for, answer.waiting
    assert (2, 2, 2) == (answer.waitingInstances, answer.room.queuedFoundInstances, each.count)
    assert (pb.RULE_POOL_LIMIT, "disk", 500) == (waiting.reason.rule, waiting.reason.kind, waiting.reason.wanted)
    assert (500, Workload.STATEFUL) == (each.shape.resources.disk_mib, each.shape.workload)


async def test_plans_of_jobs_that_have_no_place(world: World) -> None:
    """A pool that takes no jobs and a job without instances are refused."""
    pool = world.pool("p", 0, 4)

    async with asking(world) as asked:
        texts = []
        for config in (job_config(ROOT_POOL_ID, 1, 1), job_config(pool, 0, 1)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
            texts.append(caught.value.details())

    assert texts == [
        "resource pool / takes no jobs: it is not a leaf",
        "instanceCount is 0, want 1 to 100000",
    ]


# -- free resources of hosts ------------------------------------------------------------------------------------------


async def test_a_plan_says_for_how_many_hosts_have_capacity(world: World) -> None:
    """The plan counts hosts for instances that would be admitted now, with the rules of hosts for the rest, and for
    instances that would wait.
    """
    pool = world.pool("p", 0, 4)
    world.hosts.room, world.hosts.why = 3, lacking_capacity(1)

    async with asking(world) as asked:
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(pool, 6, 1)))

    why = "1 pod without a host (3 hosts: less than 2 gpu free, 1 at most)"
    room, (reason,) = answer.room, answer.reasons
    assert (3, 1, 0, 0) == (
        room.foundInstances, room.hostlessInstances, room.queuedFoundInstances, room.uncheckedInstances
    )  # fmt: skip
    assert (pb.RULE_NO_HOST, 1, [3]) == (reason.rule, reason.wanted, [one.hostCount for one in reason.refusingHosts])
    assert f"would be admitted, but {why}" == reason.text
    reported = f"hosts have free resources for 3 of these now; 1 would wait for a host: {why}"
    assert [
        reported,
        "hosts have free resources now for none of the 2 that would wait in the queue",
    ] == room.text.splitlines()
    assert [f"  {line}" for line in room.text.splitlines()] == answer.text.splitlines()[1:3]
    assert [(4, 0), (2, 1)] == [(each.count, each.turn) for each in world.hosts.asked_for]


async def test_pods_that_fit_no_host_are_not_asked_about(world: World) -> None:
    """A pod that fits no empty host is reported as such, without a query."""
    world.hosts.unfit = {7_000: (too_large(7),)}
    config = job_config(world.pool("p", 0, 90), 2, 7)

    async with asking(world) as asked:
        none = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
        config.instanceConfig[1].resource.cpuLimit = 1
        one = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))

    assert [(0, 2), (1, 1)] == [(each.room.foundInstances, each.room.hostlessInstances) for each in (none, one)]
    assert "  hosts have free resources for none of these now" == none.text.splitlines()[1]
    assert [pb.RULE_FITS_NO_HOST] == [reason.rule for reason in none.reasons]
    assert [1_000] == [each.shape.resources.cpu_milli for each in world.hosts.asked_for]


async def test_a_plan_without_an_answer_of_the_host_manager(world: World) -> None:
    """The plan has the pool's part, and says that the hosts are unknown, and why."""
    pool = world.pool("p", 0, 4)

    async with asking(world) as asked:
        world.hosts.answer = None
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(pool, 2, 1)))

    why = "no host manager leads at present"
    assert (2, why, 0) == (answer.admittedInstances, answer.room.notKnown, answer.room.foundInstances)
    assert f"  free resources of hosts are unknown: {why}" in answer.text.splitlines()


async def test_a_plan_of_many_sorts_of_pods(world: World) -> None:
    """Free resources are checked for the first pod shapes; the plan says that the other shapes are unchecked."""
    config = job_config(world.pool("p", 90, 90), 130, 0.001)
    for instance in range(130):
        config.instanceConfig[instance].resource.cpuLimit = 0.001 * (instance + 1)

    async with asking(world) as asked:
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))

    assert (130, 100, 0, 30) == (
        answer.admittedInstances, answer.room.foundInstances, answer.room.hostlessInstances,
        answer.room.uncheckedInstances,
    )  # fmt: skip
    assert "30 instances were not compared with hosts: they have too many shapes" in answer.room.text


async def test_a_plan_of_a_daemon(world: World) -> None:
    """Each host counts once, by cluster; a cluster that does not answer is named. A pool that takes no jobs is refused,
    as for others."""
    not_edge = RefusingHosts.of(4, UnmetConstraint("label role=edge"))
    east = DaemonPlan(
        DaemonReach(9, (not_edge,), "east"), 1, 2, 1, 3, 4, 1, Resources.of(1.6, 128), Resources.of(16, 4096)
    )
    world.hosts.daemon = {"east": east, "west": Unavailable("the host manager is away")}
    config = job_config(world.pool("p", 0, 4), 0, 0.2)
    config.type = job_pb2.DAEMON

    async with asking(world) as asked:
        answer = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
        world.hosts.answer = None
        silent = await asked.stub.JobPlan(pb.JobPlanRequest(config=config))
        config.respoolID.value = ROOT_POOL_ID
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.stub.JobPlan(pb.JobPlanRequest(config=config))

    there, away = answer.daemon
    assert (13, 9, 1, 2, 1, 3, 4, 1) == (
        there.hosts, there.matchingHosts, there.hostsInMaintenance, there.hostsWithRoom, there.evictingHosts,
        there.evictedInstances, there.waitingHosts, there.uncheckedHosts,
    )  # fmt: skip
    assert [("cpu", 1.6, 16), ("memory", 128, 4096)] == [(o.kind, o.amount, o.capacity) for o in there.overhead]
    assert ("west", "the host manager is away", 0) == (away.cluster, away.notKnown, away.hosts)
    assert [pb.RULE_HOSTS_DO_NOT_MATCH] == [reason.rule for reason in answer.reasons]
    assert answer.text.splitlines() == [
        "The daemon of pool /p would not be queued: hosts decide where it runs.",
        "  cluster east: 9 of 13 hosts match; of the others 4 hosts: label role=edge not met",
        "    2 hosts with free resources: it would run there at once",
        "    1 host where 3 preemptible instances would be evicted for it after 10 s",
        "    4 hosts without free resources: it would wait there until pods end",
        "    1 host without free resources, evictions not evaluated",
        "    1 host in maintenance: it would run there afterwards",
        "    its overhead, which pools would have less: cpu 1.6 of 16, memory 128 MiB of 4096 MiB",
        "  cluster west: the free resources of hosts are unknown: the host manager is away",
    ]
    assert "  the free resources of hosts are unknown: no host manager leads at present" == silent.text.splitlines()[1]
    assert "resource pool / takes no jobs: it is not a leaf" == caught.value.details()


# -- planned evictions ---------------------------------------------------------------------------------------------


def list_evictions(evictions: Iterable[pb.PlannedEviction]) -> list[tuple[str, int, int, int, float]]:
    """Return job, first instance, count, rounds and seconds of each eviction."""
    return [(one.jobId.value, one.firstInstance, one.instanceCount, one.rounds, one.withinS) for one in evictions]


async def test_a_plan_of_a_job_says_who_would_leave(world: World) -> None:
    """Evictions between pools follow after the rounds that a pool may be above its entitlement, inside a pool in the
    next round; the plan changes nothing.
    """
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

    assert list_evictions(back.evictions) == [(lent, 7, 3, 5, 300)]
    assert back.text.splitlines()[-1] == (
        "  after 5 rounds of preemption (300 s), instances 7-9 of job job: preempted for this job of /b, "
        "which wants cpu 10: /a holds 100 and is entitled to 70"
    )
    assert list_evictions(urgent.evictions) == [(lent, 8, 2, 1, 60)]
    assert urgent.evictions[0].text.startswith("preempted for this job of /a, which wants cpu 10: its priority is 4")
    assert (list_evictions(humble.evictions), after) == ([], before)


async def test_a_plan_of_a_pool_says_who_would_leave(world: World) -> None:
    """The plan shows the pods that the change evicts, without pods that leave anyway, and the job that receives their
    resources.
    """
    lends, owner = world.pool("a", 50, 100), world.pool("b", 0, 10)
    lent, waits = world.job(lends, 10, cpu=10), world.job(owner, 5, cpu=10)

    async with asking(world) as asked:
        await asked.queue(lent, waits)
        await until(lambda: world.states(lent) == {PodState.READY: list(range(10))})
        same, more = await asked.plan(pool_config("b", 0, 10)), await asked.plan(pool_config("b", 50, 50))

    assert list_evictions(same.evictions) == []
    assert list_evictions(more.evictions) == [(lent, 5, 4, 5, 300)]
    assert {one.forJobId.value for one in more.evictions} == {waits}
    assert "Instances that would be evicted:" in more.text.splitlines()
    assert "No instance would be evicted." in same.text.splitlines()
