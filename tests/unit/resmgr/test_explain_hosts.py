"""Answers of ExplainService about pods that fit no host, and about pods in backoff after that."""

from __future__ import annotations

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.model.advice import Mark, Marked
from peloton.model.daemon import DaemonReach
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import HostRule, LackingAmount, UnmetConstraint
from peloton.model.reason import RefusingHosts
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateSpec
from peloton.model.volume import VolumeSpec, VolumeState
from services.storage.pods.host_pods import LaunchRow
from tests.reasons import REQUEUED, lacking_capacity, too_large
from tests.unit.resmgr.asked import asking, job_config
from tests.unit.resmgr.world import World

TOO_LARGE = "no host has cpu 7: the largest of 3 hosts has 4"


async def test_pods_that_fit_no_host(world: World) -> None:
    """Pods that fit no host are shown with the numbers before any pod of the job is queued; a plan shows them too.
    Nothing is shown while hosts are unknown.
    """
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

    reported = [reason for reason in why.reasons if reason.rule == pb.RULE_FITS_NO_HOST]
    larger = TOO_LARGE.replace("7", "9")
    assert [(1, f"instance 3 fits no host, even an empty one: {larger}; it waits for one to join"),
            (2, f"instances 4-5 fit no host, even an empty one: {TOO_LARGE}; they wait for one to join"),
            ] == [(reason.wanted, reason.text) for reason in reported]  # fmt: skip
    assert reported[1].text in why.text
    assert "fit" not in others.text
    (planned,) = plan.reasons
    assert (pb.RULE_FITS_NO_HOST, 2) == (planned.rule, planned.wanted)
    assert planned.text in plan.text
    assert pb.RULE_FITS_NO_HOST not in [reason.rule for reason in silent.reasons]


async def test_pods_that_are_in_backoff(world: World) -> None:
    """The answers for the job and for the pool have the reason of the backoff, with the last placement failure."""
    job = world.job(world.pool("p", 5, 5), 3)

    async with asking(world) as asked:
        await asked.queue(job)
        asked.server.loop.note_unplaced(job, 3, lacking_capacity(3))
        await asked.server.loop.requeue_pods(job, [(0, 3)], REQUEUED)
        why, pool = await asked.why(job), await asked.why_pool("/p")

    (waiting,) = why.waiting
    assert (pb.RULE_HELD_BACK, 0, 3) == (waiting.reason.rule, waiting.reason.bound, waiting.gangCount)
    assert 0 < waiting.reason.available <= 30
    assert "after no host was found; later gangs may be admitted first" in waiting.reason.text
    assert "last result of placement: 3 pods without a host (3 hosts: less than 2 gpu free, 1 at most)" in why.text
    assert (3, 0) == (pool.pool.queuedInstances, pool.pool.amounts[0].demand)
    assert "in backoff" in pool.text


async def test_a_lost_volume_is_named(world: World) -> None:
    """The text names the volume, its host, the time of the loss, and possible actions."""
    job = world.service(world.pool("p", 5, 5), 1, UpdateSpec())
    world.storage.pods.create(job, lambda _: None)
    storage = world.storage

    async with asking(world) as asked:
        await asked.queue(job)
        storage.host_pods.mark_launched(job, [(0, 1, "h1", "a1", {})], 1, "east", {0: VolumeSpec("data", 500)})
        (volume,) = storage.volumes.page(job_id=job)
        found = await asked.why(job)
        storage.volumes.note({volume.volume_id: (VolumeState.LOST, "host h1 is not in cluster east")}, NS_PER_S)
        lost = await asked.why(job)

    assert "LOST" not in found.text
    assert (
        f"instance 0: volume {volume.volume_id} of 500 MB is LOST since 1970-01-01T00:00:01Z: host h1 is not in "
        "cluster east; the pod waits until it is back or given up" in lost.text
    )


async def test_hosts_of_a_daemon(world: World) -> None:
    """The answer has the number of matching hosts and the rules that exclude the others; it has neither while hosts are
    unknown.
    """
    job = world.daemon(world.pool("p", 5, 5))
    not_edge = RefusingHosts.of(4, UnmetConstraint("label role=edge"))
    small = RefusingHosts.of(1, LackingAmount(HostRule.SIZE, "cpu", 1_000, 500))
    world.hosts.reached = [DaemonReach(2, (not_edge, small), "east"), DaemonReach(1, (), "west")]

    async with asking(world) as asked:
        why = await asked.why(job)
        world.hosts.answer = None
        silent = await asked.why(job)

    rules = ["label role=edge not met", "less than 1 cpu even when empty, 0.5 at most"]
    (reported,) = why.reasons
    assert (pb.RULE_HOSTS_DO_NOT_MATCH, 2, 7) == (reported.rule, reported.available, reported.bound)
    assert list(zip([4, 1], rules, strict=True)) == [(hosts.hostCount, hosts.rule) for hosts in reported.refusingHosts]
    assert reported.text == f"cluster east: 2 of 7 hosts match; of the others 4 hosts: {rules[0]}; 1 host: {rules[1]}"
    assert reported.text in why.text
    assert "cluster west: 1 of 1 host matches" in why.text
    assert "match" not in silent.text


async def test_marks_of_a_service_and_of_its_hosts(world: World) -> None:
    """Marked hosts of the service are shown with their numbers, the worst first, up to a limit; hosts of other jobs are
    not, and no host manager needs to answer.
    """
    job = world.service(world.pool("p", 9, 9), 9, UpdateSpec())
    world.storage.pods.create(job, lambda _: None)
    hosts = [f"h{at}" for at in (1, 1, 2, 3, 4, 5, 6, 7, 8)]

    async with asking(world) as asked:
        await asked.queue(job)
        launched: list[LaunchRow] = [(at, 1, host, f"a{host}", {}) for at, host in enumerate(hosts)]
        world.storage.host_pods.mark_launched(job, launched, 1, "east")
        green = await asked.why(job)
        orange = Marked(Mark.ORANGE, "cpu 85 %, orange from 80 %")
        world.hosts.marked = {Hostname(f"h{at}"): orange for at in (1, 3, 4, 5, 6, 7, 99)}
        world.hosts.marked[Hostname("h2")] = Marked(Mark.RED, "memory 96 %, red from 90 %")
        world.hosts.slow = {job: Marked(Mark.RED, "p99 812 ms, red from 500 ms"), JobId("another"): orange}
        why = await asked.why(job)
        world.hosts.answer = None
        silent = await asked.why(job)

    assert [
        "  the service is marked RED: p99 812 ms, red from 500 ms",
        "  host h2, with 1 instance of it, is marked RED: memory 96 %, red from 90 %",
        "  host h1, with 2 instances of it, is marked ORANGE: cpu 85 %, orange from 80 %",
        *(f"  host h{at}, with 1 instance of it, is marked ORANGE: cpu 85 %, orange from 80 %" for at in (3, 4, 5)),
        "  2 more of its hosts are marked orange or red",
    ] == [line for line in why.text.splitlines() if "marked" in line]
    assert "marked" not in green.text + silent.text
