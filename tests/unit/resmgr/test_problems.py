"""Problems that the resource manager reports for the overview: jobs that no host can take, and a
recorder that is behind.
"""

from __future__ import annotations

import grpc.aio

from peloton.api.private import resmgr_pb2, resmgr_pb2_grpc
from peloton.model.host import CLUSTER_LABEL
from peloton.model.ids import JobId
from peloton.model.pod import HostLabel, PodShape, ShapeRange
from peloton.model.resources import Resources
from services.api.lacking_pools import LackingPools
from services.resmgr.explain import unfit
from services.resmgr.explain.unfit import UnfitJobs, UnfitPods
from services.resmgr.recovery import rebuild
from tests.reasons import REQUEUED, lacking_capacity, too_large
from tests.unit.resmgr.asked import Asked, asking
from tests.unit.resmgr.world import World

TOO_LARGE = "no host has cpu 7: the largest of 3 hosts has 4"


async def list_problems(asked: Asked) -> list[tuple[str, str]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{asked.server.port}") as channel:
        stub = resmgr_pb2_grpc.ProblemsStub(channel)
        answer = await stub.FindProblems(resmgr_pb2.FindProblemsRequest())
    return [(one.subject_id, one.text) for one in answer.problems]


async def test_jobs_that_fit_no_host_are_reported(world: World) -> None:
    """Jobs that fit no host are reported while admitted and while in backoff, until a host registers that could take
    them. A job that found no free resources is not one of them.
    """
    world.hosts.unfit = {7_000: (too_large(7),)}
    large, fine = world.job(world.pool("p", 14, 14), 2, cpu=7), world.job(world.pool("q", 9, 9), 2)

    async with asking(world) as asked:
        assert [] == await list_problems(asked)
        await asked.queue(large, fine)
        asked.server.loop.note_unplaced(large, 2, lacking_capacity(2))
        asked.server.loop.note_unplaced(fine, 2, lacking_capacity(2))
        admitted = await list_problems(asked)
        await asked.server.loop.requeue_pods(large, [(0, 2)], REQUEUED)
        in_backoff = await list_problems(asked)
        world.hosts.unfit = {}
        after = await list_problems(asked)

    text = f"Job job in pool /p cannot run: 2 instances fit no host, even an empty one: {TOO_LARGE}"
    assert [(large, text)] == admitted == in_backoff
    assert [] == after


async def test_the_first_of_a_queue_is_read(world: World) -> None:
    """The first job of a queue is checked before placement has tried it."""
    world.hosts.unfit = {7_000: (too_large(7),)}
    pool = world.pool("p", 7, 7)
    first, second = world.job(pool, 1, cpu=7), world.job(pool, 1, cpu=7)

    async with asking(world) as asked:
        await asked.queue(first, second)
        ((job, _),) = await list_problems(asked)

    assert second == job


async def test_a_gang_that_fits_no_host(world: World) -> None:
    """The report has the size of the gang that does not start."""
    world.hosts.unfit = {7_000: (too_large(7),)}
    gang = world.job(world.pool("p", 99, 99), 3, gang=3, cpu=7)

    async with asking(world) as asked:
        await asked.queue(gang)
        asked.server.loop.note_unplaced(gang, 3, lacking_capacity(3, is_gang=True))
        ((job, text),) = await list_problems(asked)

    assert gang == job
    assert "its gang of 3 does not start, because 3 instances fit no host" in text


async def test_a_bounded_number_of_jobs_is_read(world: World) -> None:
    """One round checks a limited number of jobs; the next one checks the others, and jobs already found are checked
    each time.
    """
    pool = world.pool("p", 999, 999)
    many = [world.job(pool, 1) for _ in range(unfit.JOBS_MAX)]
    last = world.job(pool, 1, cpu=7)
    world.hosts.unfit = {7_000: (too_large(7),)}
    state = rebuild(world.storage)
    for job in [last, *many]:
        state.note_unplaced(JobId(job), 1, lacking_capacity(1))
    found = UnfitJobs(world.storage, UnfitPods(world.storage, world.hosts))

    rounds = [[one.job_id for one in await found.find(state)] for _ in range(4)]

    assert [[], [last], [last], [last]] == rounds


async def test_what_a_lender_waits_for_is_reported(world: World) -> None:
    """A lender is reported while another pool holds its reservation; a pool that demands more than
    its entitlement is not.
    """
    borrower, lender = world.pool("a", 50, 100), world.pool("b", 50, 100)
    everything, back, more = world.job(borrower, 100), world.job(lender, 10), world.job(borrower, 1)
    lacking = LackingPools()

    async with asking(world) as asked:
        for job in (everything, back, more):
            await asked.queue(job)
        answers = [await asked.why_pool("/") for _ in range(2)]
        first, second = (lacking.find(answer, 400.0 * at, 0) for at, answer in enumerate(answers))

    assert ["/a", "/b"] == [one.poolPath for one in answers[0].queues]
    assert [] == first
    assert [
        "Pool /b has waited for 6 min for what it is entitled to: cpu 1 wanted, 0 left of the cluster capacity of /: "
        "100; held by /a (cpu 100, 50 above its reservation)"
    ] == [one.text for one in second]


async def test_clusters_that_a_pod_excludes_are_no_reason(world: World) -> None:
    """The reason for a pod of one cluster is in its own hosts; where it excludes all clusters, they are the reason."""
    own, other = too_large(7).within("k8s"), too_large(7).within("mesos")
    world.hosts.unfit = {7_000: (own, other)}
    pods = UnfitPods(world.storage, world.hosts)
    bound, lost = (
        ShapeRange(0, 1, PodShape(Resources.of(7), constraint=HostLabel(CLUSTER_LABEL, name)))
        for name in ("k8s", "elsewhere")
    )
    found = await pods.evaluate([bound, lost])
    assert ((own,), (own, other)) == (found[bound.shape], found[lost.shape])
