"""Preemption in the admission loop, against a real store: its commits, the jobs it wakes, and its
state after kill -9.
"""

from __future__ import annotations

from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId
from peloton.model.pod import PodState, PodStatus
from services.resmgr.audit import faults
from services.resmgr.loop import AdmissionLoop
from services.resmgr.preemption import PreemptionRounds
from services.resmgr.recovery import rebuild
from services.resmgr.state import ResmgrState
from services.storage.pods.host_pods import LaunchRow
from tests.reasons import HOT
from tests.unit.resmgr.test_loop import running, until
from tests.unit.resmgr.world import LICENSE, World, facts, fast

PENDING, READY, PREEMPTING, RUNNING = PodState.PENDING, PodState.READY, PodState.PREEMPTING, PodState.RUNNING
ROUNDS = fast(preemption_period_s=0.05, sustained_over_count=2)


def start(world: World, job_id: JobId) -> None:
    """Start the admitted pods of a job on hosts."""
    rows: list[LaunchRow] = [
        (instance, run, "h1", "a1", {})
        for gang in world.storage.pods.ready_gangs(job_id, 1000)
        for instance, run in gang.pods
    ]
    taken = world.storage.host_pods.mark_launched(job_id, rows, world.now_ns)
    pods = [pod.pod_id for pod in world.storage.pods.page(job_id, 0, 1000) if pod.instance_id in taken]
    world.storage.host_pods.apply_status([PodStatus(pod, RUNNING, world.now_ns, "h1", "a1") for pod in pods])


def end(world: World, job_id: JobId) -> None:
    """End the pods of a job that are to be killed, as hosts do, and settle the job."""
    reported = world.storage.host_pods.mark_killing(job_id, 1000)
    world.storage.host_pods.apply_status(
        [PodStatus(row[0], PodState.KILLED, world.now_ns, "h1", "a1") for row in reported]
    )
    world.settle(job_id)


def two_pools(world: World) -> tuple[JobId, JobId]:
    """Create a job for all of the cluster, and one for the half that is its pool's."""
    a, b = world.pool("a", 50, 100), world.pool("b", 50, 100)
    return world.job(a, 10, cpu=10), world.job(b, 5, cpu=10)


async def lend(world: World, loop: AdmissionLoop, borrower: JobId, owner: JobId, is_running: bool = True) -> None:
    """Fill the hosts with the pods of one pool, and queue demand of the other pool for its half."""
    await loop.enqueue(borrower, 10)
    await until(lambda: world.states(borrower) == {READY: list(range(10))})
    if is_running:
        start(world, borrower)
    await loop.enqueue(owner, 5)


async def test_a_pool_gets_back_what_it_lent(world: World) -> None:
    """The youngest half leaves its hosts, its jobs are woken, and the owner's pods are admitted when it has left."""
    borrower, owner = two_pools(world)
    async with running(world, ROUNDS) as loop:
        await lend(world, loop, borrower, owner)
        world.lifecycles.woken.clear()
        await until(lambda: borrower in world.lifecycles.woken)

        assert world.states(borrower) == {RUNNING: [0, 1, 2, 3, 4], PREEMPTING: [5, 6, 7, 8, 9]}
        evicted = world.storage.pods.get(borrower, 9)
        assert evicted is not None
        assert evicted.message == (
            f"evicting running task: preempted for job {owner} of /b, which wants cpu 10: /a holds 100 and is entitled "
            f"to 50"
        )
        assert facts(rebuild(world.storage)) == facts(loop.state)
        end(world, borrower)
        await loop.enqueue(borrower, 10)
        await until(lambda: world.states(owner) == {READY: [0, 1, 2, 3, 4]})
        assert [] == list(faults(loop.state))
        assert world.states(borrower) == {RUNNING: [0, 1, 2, 3, 4], PENDING: [5, 6, 7, 8, 9]}


async def test_a_pool_gets_back_licenses_that_it_lent(world: World) -> None:
    """Pods with borrowed licenses leave although hosts have free resources; the accounts survive a rebuild."""
    a, b = (world.pool(name, 50, 100, licenses=(5, 10)) for name in "ab")
    borrower, owner = world.job(a, 10, licenses=1), world.job(b, 4, licenses=1)
    async with running(world, ROUNDS) as loop:
        await lend(world, loop, borrower, owner)
        world.lifecycles.woken.clear()
        await until(lambda: borrower in world.lifecycles.woken)

        assert world.states(borrower) == {RUNNING: list(range(6)), PREEMPTING: [6, 7, 8, 9]}
        evicted = world.storage.pods.get(borrower, 9)
        assert evicted is not None
        assert evicted.message.endswith(f"which wants {LICENSE} 1: /a holds 10 and is entitled to 6")
        assert facts(rebuild(world.storage)) == facts(loop.state)
        end(world, borrower)
        await until(lambda: world.states(owner) == {READY: [0, 1, 2, 3]})
        assert [] == list(faults(loop.state))


async def test_a_new_kind_of_a_pool_keeps_queues_and_accounts(world: World) -> None:
    """A pool that begins to name a kind while pods wait and run changes nothing of them."""
    pool = world.pool("p", 1, 1)
    job = world.job(pool, 2)
    async with running(world) as loop:
        await loop.enqueue(job, 2)
        await until(lambda: world.states(job) == {READY: [0], PENDING: [1]})
        world.pool("p", 1, 2, licenses=(1, 1))
        changed = next(spec for spec in world.storage.pools.specs() if spec.respool_id == pool)
        await loop.change_pools(lambda: (lambda: None, lambda: loop.state.put_pool(changed)))

        await until(lambda: world.states(job) == {READY: [0, 1]})
        assert [] == list(faults(loop.state))
        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))


async def test_admitted_pods_go_back_in_their_place(world: World) -> None:
    """Admitted pods that have not been launched wait again, ahead of later ones."""
    borrower, owner = two_pools(world)
    async with running(world, ROUNDS) as loop:
        await lend(world, loop, borrower, owner, is_running=False)
        await until(lambda: world.states(owner) == {READY: [0, 1, 2, 3, 4]})

        assert world.states(borrower) == {READY: [0, 1, 2, 3, 4], PENDING: [5, 6, 7, 8, 9]}
        assert [] == list(faults(loop.state))
        await until(lambda: facts(rebuild(world.storage)) == facts(loop.state))  # memory follows the commit


async def test_one_deficit_evicts_once_even_after_a_crash(world: World) -> None:
    """A new resource manager finds the leaving pods in storage, and evicts no others for the same gangs."""
    borrower, owner = two_pools(world)
    async with running(world, ROUNDS) as loop:
        await lend(world, loop, borrower, owner)
        await until(lambda: len(world.states(borrower).get(PREEMPTING, [])) == 5)

    async with running(world, ROUNDS) as loop:
        rounds = 0
        real, begin = loop._rounds, PreemptionRounds.begin

        def count_rounds(state: ResmgrState) -> frozenset[int]:
            nonlocal rounds
            rounds += 1
            return begin(real, state)

        loop._rounds.begin = count_rounds  # type: ignore[method-assign]
        await until(lambda: rounds >= 6)
        assert len(world.states(borrower)[PREEMPTING]) == 5
        assert loop.state.evicted == {borrower}


async def test_priority_inside_a_pool(world: World) -> None:
    """A gang of higher priority evicts lower ones of its pool in the next round, and takes their resources."""
    pool = world.pool("p", 10, 10)
    low, high = world.job(pool, 10), world.job(pool, 3, gang=3, priority=5)
    async with running(world, ROUNDS) as loop:
        await loop.enqueue(low, 10)
        await until(lambda: world.states(low) == {READY: list(range(10))})
        start(world, low)
        await loop.enqueue(high, 3)
        await until(lambda: world.states(low) == {RUNNING: list(range(7)), PREEMPTING: [7, 8, 9]})

        end(world, low)
        await loop.enqueue(low, 10)
        await until(lambda: world.states(high) == {READY: [0, 1, 2]})
        assert world.states(low) == {RUNNING: list(range(7)), PENDING: [7, 8, 9]}


async def test_disabled(world: World) -> None:
    """No pod is evicted without preemption, however long the other pool waits."""
    borrower, owner = two_pools(world)
    async with running(world, fast(preemption_period_s=0.01, sustained_over_count=1, preempts=False)) as loop:
        await lend(world, loop, borrower, owner)
        for _ in range(5):
            await loop.run_cycle()

        assert world.states(borrower) == {RUNNING: list(range(10))}
        assert world.states(owner) == {PENDING: [0, 1, 2, 3, 4]}


async def test_disabled_frees_the_reservation(world: World) -> None:
    """Pods that may not be evicted may use lent resources if preemption is off; the setting survives a rebuild."""
    pool = world.pool("p", 2, 5)
    job = world.job(pool, 6, preemptible=False)
    async with running(world, fast(preempts=False)) as loop:
        loop._is_stale = True
        await loop.enqueue(job, 6)
        await until(lambda: world.states(job) == {READY: [0, 1, 2, 3, 4], PENDING: [5]})


async def test_evictions_that_others_want(world: World) -> None:
    """Pods that the host manager evicts are leaving in memory as in storage, their jobs are woken, and they come back;
    orders for ended or superseded runs are ignored.
    """
    job = world.job(world.pool("p", 10, 10), 3)
    async with running(world, ROUNDS) as loop:
        await loop.enqueue(job, 3)
        await until(lambda: world.states(job) == {READY: [0, 1, 2]})
        start(world, job)
        world.lifecycles.woken.clear()
        orders = [EvictionOrder(job, i, 1, False, HOT, i) for i in (1, 2)]

        assert await loop.evict(orders) == 1

        assert world.states(job) == {RUNNING: [0, 2], PREEMPTING: [1]}
        assert (set(world.lifecycles.woken), loop.state.evicted) == ({job}, {job})
        assert [] == list(faults(loop.state))
        assert facts(rebuild(world.storage)) == facts(loop.state)
        assert await loop.evict(orders) == 0
        end(world, job)
        await loop.enqueue(job, 3)
        await until(lambda: world.states(job) == {RUNNING: [0, 2], READY: [1]})
        assert loop.state.evicted == set()
        assert [] == list(faults(loop.state))
