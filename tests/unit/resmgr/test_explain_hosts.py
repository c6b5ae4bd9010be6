"""What ExplainService tells of pods that no host could take, and of those that are held back because of it."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2 as pb
from tests.reasons import REQUEUED, no_room, too_large
from tests.unit.resmgr.asked import asking, job_config
from tests.unit.resmgr.world import World

TOO_LARGE = "no host has cpu 7: the largest of 3 hosts has 4"


async def test_pods_that_fit_no_host(world: World) -> None:
    """Of a job it is said at once, before any of its pods was queued, which of them no host could take, with the
    numbers; and so in a plan. While hosts are not known nothing is said."""
    world.hosts.unfit = {7_000: (too_large(7),), 9_000: (too_large(9),)}
    job = world.job(world.pool("p", 90, 90), 6, cpu=7, cpus=[1, 1, 1, 9])
    fine = world.job(world.pool("q", 9, 9), 2)

    async with asking(world) as asked:
        why, others, plan = (
            await asked.why(job),
            await asked.why(fine),
            await asked.stub.JobPlan(pb.JobPlanRequest(config=job_config(world.pool("p", 90, 90), 2, 7))),
        )
        world.hosts.answer = None
        silent = await asked.why(job)

    told = [reason for reason in why.reasons if reason.rule == pb.RULE_FITS_NO_HOST]
    larger = TOO_LARGE.replace("7", "9")
    assert [(1, f"instance 3 fits no host, even an empty one: {larger}; it waits for one to join"),
            (2, f"instances 4-5 fit no host, even an empty one: {TOO_LARGE}; they wait for one to join"),
            ] == [(reason.wanted, reason.text) for reason in told]  # fmt: skip
    assert told[1].text in why.text
    assert "fit" not in others.text
    (planned,) = plan.reasons
    assert (pb.RULE_FITS_NO_HOST, 2) == (planned.rule, planned.wanted)
    assert planned.text in plan.text
    assert pb.RULE_FITS_NO_HOST not in [reason.rule for reason in silent.reasons]


async def test_pods_that_are_held_back(world: World) -> None:
    """What holds them back is said of the job and of the pool, with what placement said last."""
    job = world.job(world.pool("p", 5, 5), 3)

    async with asking(world) as asked:
        await asked.queue(job)
        asked.server.loop.note_unplaced(job, 3, no_room(3))
        await asked.server.loop.requeue_pods(job, [(0, 3)], REQUEUED)
        why, pool = await asked.why(job), await asked.why_pool("/p")

    (waiting,) = why.waiting
    assert (pb.RULE_HELD_BACK, 0, 3) == (waiting.reason.rule, waiting.reason.bound, waiting.gangCount)
    assert 0 < waiting.reason.available <= 30
    assert "because no host was found; others pass by" in waiting.reason.text
    assert "placement said last: 3 pods without a host (3 hosts: less than 2 gpu free, 1 at most)" in why.text
    assert (3, 0) == (pool.pool.queuedInstances, pool.pool.amounts[0].demand)
    assert "held back" in pool.text
