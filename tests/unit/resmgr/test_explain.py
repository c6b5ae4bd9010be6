"""ExplainService over gRPC, on a real store: its answers, and that it changes nothing."""

from __future__ import annotations

from dataclasses import replace

import grpc
import grpc.aio
import pytest

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.job import job_pb2
from peloton.lifecycle.backoff import Backoff
from peloton.model.ids import PodId
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import PodState, PodStatus, Termination, TerminationReason
from peloton.model.resources import Resources
from peloton.model.update import UpdateAct, UpdateSpec
from peloton.ports import PERSON
from services.resmgr.explain.text import failure_line
from tests.reasons import REQUEUED, lacking_capacity
from tests.unit.lifecycle.pods import service_pod
from tests.unit.resmgr.asked import asking, job_config
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.world import World, fast

REASON = TerminationReason.KILLED_HOST_MAINTENANCE


async def test_a_waiting_job(world: World) -> None:
    """The answer has queue, position, rule, numbers and holder; running instances are counted."""
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
    headline, line, held_by = second.text.splitlines()
    assert headline == "Job job is INITIALIZED in pool /p: 1 PENDING"
    assert ": waits behind job job in the queue of /p; that one: cpu 1 wanted, 0 left" in line
    assert "  held by job job: cpu 8; job job: cpu 2" == held_by.removeprefix("  ")
    assert {holder: "job", waiter: "job", last: "job"} == dict(second.jobNames)


async def test_a_job_without_hosts(world: World) -> None:
    """The answer has the last placement failure, with hosts per rule, and the strategy, while instances are READY."""
    job = world.job(world.pool("p", 10, 10), 1)

    async with asking(world) as asked:
        await asked.queue(job)
        before = await asked.why(job)
        asked.server.loop.note_unplaced(job, 1, lacking_capacity(1, 2))
        answer = await asked.why(job)
        (reason,) = answer.reasons

    recipe = "of the hosts that take a pod PACK_HOST chooses the one in use that it leaves with least free"
    assert (False, True) == (recipe in before.text, recipe in answer.text)
    assert (reason.rule, reason.wanted) == (pb.RULE_NO_HOST, 1)
    assert [(one.hostCount, one.rule) for one in reason.refusingHosts] == [(2, "less than 2 gpu free, 1 at most")]


async def test_the_reason_of_a_stuck_workflow_comes_first(world: World) -> None:
    """The answer about a job that has not ended begins with it."""

    class Stuck:
        async def why(self, job: JobRecord) -> list[str]:
            return [f"no worker takes the work of {job.name}"]

    job = world.job(world.pool("p", 10, 10), 1)

    async with asking(world, workflows=Stuck()) as asked:
        lines = (await asked.why(job)).text.splitlines()
        world.storage.jobs.set_goal(job, JobState.KILLED, 1)
        world.storage.jobs.settle(job, 1)
        ended = (await asked.why(job)).text

    assert ["  no worker takes the work of job", "  1 instance about to be queued"] == lines[1:]
    assert "no worker" not in ended


async def test_hosts_are_searched_for_again(world: World) -> None:
    """The placement failure of earlier instances is not the reason of instances that are admitted later."""
    job = world.job(world.pool("p", 1, 1), 2)

    async with asking(world) as asked:
        await asked.queue(job)
        asked.server.loop.note_unplaced(job, 1, lacking_capacity(1, 2))
        world.finish(job, [0])
        await until(lambda: PodState.READY in world.states(job))
        (reason,) = (await asked.why(job)).reasons

    assert reason.text == "1 instance admitted; a host is being looked for"


async def test_launches_are_locked(world: World) -> None:
    """An older placement failure is not the reason of waiting instances while launches are locked."""
    job = world.job(world.pool("p", 1, 1), 1)
    world.storage.lockdowns.set("Launch", True)

    async with asking(world) as asked:
        await asked.queue(job)
        asked.server.loop.note_unplaced(job, 1, lacking_capacity(1, 2))
        answer = await asked.why(job)

    assert [one.text for one in answer.reasons] == ["1 instance admitted; a host is being looked for"]
    assert answer.text.splitlines()[-1].endswith("no pod is started before peloton admin unlock Launch")


async def test_a_service(world: World) -> None:
    """The answer has the rollout, evictions that the SLA allowed and rejected, and locked steps; instances that the
    update adds later are not shown as about to be queued.
    """
    job = world.service(world.pool("p", 10, 10), 3, UpdateSpec(batch_size=1), maximum_unavailable=1)
    world.storage.updates.advance(job, world.now_ns)
    for checks_sla in (False, True):
        world.storage.disruptions.disrupt(
            job, [0, 1], reason=REASON, message="maintenance of host h1", checks_sla=checks_sla, now_ns=4 * 10**18
        )
    world.storage.lockdowns.set("Launch", True)
    world.storage.lockdowns.set("Kill", True)

    async with asking(world) as asked:
        lines = (await asked.why(job)).text.splitlines()

    assert lines[1:] == [
        "  1 instance about to be queued",
        "  the update is rolling out: 0 of 3 done, waits for instance 0 to run and be healthy",
        "  the SLA, at most 1 unavailable, was asked last:",
        "    2096-10-02T07:06:40Z refused instance 1, KILLED_HOST_MAINTENANCE: 1 of at most 1 instances are unavailable"
        " already",
        "    2096-10-02T07:06:40Z granted instance 0, KILLED_HOST_MAINTENANCE: maintenance of host h1",
        "    2096-10-02T07:06:40Z granted instance 0, KILLED_HOST_MAINTENANCE: maintenance of host h1",
        "  an administrator has locked Launch: no pod is started before peloton admin unlock Launch",
        "  an administrator has locked Kill: no pod is ended before peloton admin unlock Kill",
    ]


async def test_an_update_that_a_user_has_paused(world: World) -> None:
    """The line names the user; after the update was resumed it does not."""
    job = world.service(world.pool("p", 10, 10), 1, UpdateSpec())
    token = PERSON.set("bob")
    world.storage.updates.steer(job, None, UpdateAct.PAUSE, None, world.now_ns)
    async with asking(world) as asked:
        paused = (await asked.why(job)).text.splitlines()[-1]
        world.storage.updates.steer(job, None, UpdateAct.RESUME, None, world.now_ns)
        resumed = (await asked.why(job)).text.splitlines()[-1]
    PERSON.reset(token)

    assert paused.startswith("  the update is paused by bob: 0 of 1 done")
    assert "bob" not in resumed


async def test_an_update_that_waits_for_a_pulse_of_aurora(world: World) -> None:
    """The lines say that it waits for the client that started it, and not for an operator, and name that client's words
    and the owner.
    """
    opaque = '{"update_id":"u-1","update_actions":["start_pulsed"],"start_job_update_msg":"deploy 42"}'
    paused = UpdateSpec(start_paused=True)
    job = world.service(world.pool("p", 10, 10), 1, paused, opaque=opaque, owner="ann")
    world.storage.updates.advance(job, world.now_ns)

    async with asking(world) as asked:
        lines = (await asked.why(job)).text.splitlines()

    assert lines[-2:] == [
        "  the update is paused: 0 of 1 done, waits for the first pulse of Aurora's update u-1",
        "  Aurora's update u-1 'deploy 42', owner ann",
    ]


async def test_an_update_that_has_stalled(world: World) -> None:
    """The lines count the failed runs, since no instance counts as failed, and show the output of the last one."""
    job = world.service(world.pool("p", 10, 10), 1, UpdateSpec(progress_deadline_s=60))
    world.storage.updates.advance(job, world.now_ns)

    async with asking(world) as asked:
        await asked.queue(job)
        world.finish(job, [0], PodState.FAILED)
        world.storage.host_pods.add_output([(PodId(job, 0, 1), "no such\ntable")])
        world.storage.updates.advance(job, world.now_ns + 61 * 10**9)
        lines = (await asked.why(job)).text.splitlines()

    assert lines[1].startswith("  instance 0 FAILED on h1, stderr: no such table; it runs again at ")
    assert [line.strip() for line in lines[2:]] == [
        "the update is rolling out: 0 of 1 done, 1 run failed, waits for instance 0 to run and be healthy",
        "the update has stalled: no instance has become done for 60 seconds or more: instance 0 fails again and again, "
        "last on h1: stderr: no such table",
    ]


@pytest.mark.parametrize("state", [PodState.FAILED, PodState.KILLED, PodState.SUCCEEDED])
async def test_an_instance_of_a_service_that_fails(world: World, state: PodState) -> None:
    """The answer says how and where the instance ended, when it runs again and why not earlier; a failed health check
    kills it, and a service whose program exits with 0 counts as failed.
    """
    job = world.service(world.pool("p", 10, 10), 1, UpdateSpec())
    world.storage.updates.advance(job, world.now_ns)

    async with asking(world) as asked:
        await asked.queue(job)
        world.finish(job, [0], state)
        answer = await asked.why(job)

    due = rfc3339_seconds(world.storage.pods.list_failed(job, 1)[0].due_ns)
    reported = f"instance 0 {state} on h1; it runs again at {due}: it has ended 1 time, and each time doubles the wait"
    assert answer.text.splitlines()[1:3] == [
        f"  {reported}",
        "  the update is rolling out: 0 of 1 done, 1 run failed, waits for instance 0 to run and be healthy",
    ]
    assert [(one.rule, one.bound, one.text) for one in answer.reasons] == [(pb.RULE_BACK_OFF, 1, reported)]


async def test_an_instance_of_a_batch_job_that_waits_for_its_retry(world: World) -> None:
    """A batch instance in backoff is part of the answer as for a service; a permanently failed one is not."""
    world.storage.host_pods.batch_backoff = Backoff(10, 600)
    pool = world.pool("p", 10, 10)
    again, resting = world.job(pool, 1, max_failures=2), world.job(pool, 2)

    async with asking(world) as asked:
        for job in (again, resting):
            await asked.queue(job)
            world.finish(job, [0], PodState.FAILED, no_other_host=True)
        answers = [(await asked.why(job)).text.splitlines() for job in (again, resting)]

    (failed,) = world.storage.pods.list_failed(again, 9, only_waiting=True)
    due = rfc3339_seconds(failed.due_ns)
    why = "no other host could take it, and each failure doubles the wait"
    reported = f"instance 0 FAILED on h1; it runs again at {due}: {why}"
    assert [f"  {reported}"] == answers[0][1:]
    assert "FAILED on" not in "".join(answers[1][1:])


async def test_instances_whose_containers_cannot_be_started(world: World) -> None:
    """The first instances are named, with the messages of their hosts; "nothing waits" would be wrong."""
    job = world.job(world.pool("p", 10, 10), 7)

    async with asking(world) as asked:
        await asked.queue(job)
        world.launch(job, 7)
        waits = PodStatus(
            PodId(job, 0, 1), PodState.LAUNCHED, 1, "h1", "a1", "x:1:\nnot found", "ErrImagePull", waits=True
        )
        pods = [PodId(job, instance, 1) for instance in range(7)]
        world.storage.host_pods.apply_status([replace(waits, pod_id=pod) for pod in pods])
        answer = await asked.why(job)

    reported = [f"instance {i} on h1 cannot be started yet: ErrImagePull, x:1: not found" for i in range(5)]
    assert [*reported, "2 more instances wait on their hosts for their containers"] == [
        line.strip() for line in answer.text.splitlines()[1:]
    ]
    assert [(pb.RULE_CONTAINER_NOT_STARTED, text) for text in reported] == [
        (one.rule, one.text) for one in answer.reasons
    ]


def test_how_an_instance_failed() -> None:
    """The line has the exit code or the signal, else the reason, else the cause in the message."""
    due_ns = 1_700_000_000 * 10**9
    pod = service_pod(
        0, state=PodState.FAILED, failure_count=2, host="h1", due_ns=due_ns, message="Task throttled due to failure"
    )
    cases = (
        (Termination(TerminationReason.FAILED, exit_code=3), "", ", exit code 3"),
        (Termination(TerminationReason.FAILED, signal="Killed"), "OTHER", ", signal Killed"),
        (Termination(TerminationReason.FAILED), "REASON_MEMORY", ", REASON_MEMORY"),
        (None, "InvalidImageName", ", InvalidImageName"),
        (None, "", ""),
    )

    then = "it runs again at 2023-11-14T22:13:20Z: it has ended 2 times, and each time doubles the wait"
    assert [
        failure_line(replace(pod, termination=ended, reason=reason), JobType.SERVICE) for ended, reason, _ in cases
    ] == [f"instance 0 FAILED on h1{reported}; {then}" for _, _, reported in cases]


def test_a_batch_pod_that_fails_quickly_says_so() -> None:
    """The backoff is due to the failures of the pod, whichever host it runs on next."""
    due_ns = 1_700_000_000 * 10**9
    pod = service_pod(0, state=PodState.FAILED, failure_count=3, host="h1", due_ns=due_ns)

    why = "it has failed 3 times, now within 10 s of its start, and each time doubles the wait"
    reported = f"instance 0 FAILED on h1; it runs again at 2023-11-14T22:13:20Z: {why}"
    assert reported == failure_line(pod, JobType.BATCH)


def test_an_instance_that_need_not_wait() -> None:
    """An instance that lost its host has not failed, and runs again at once."""
    pod = service_pod(0, state=PodState.LOST, host="h1")

    assert "instance 0 LOST on h1; it runs again at once" == failure_line(pod, JobType.SERVICE)


async def test_a_job_that_waits_for_slack(world: World) -> None:
    """The answer and the plan of a revocable job show the slack of the hosts and the part of it that is taken."""
    pool = world.pool("p", 10, 10)
    world.hosts.answer = (Resources.of(10), Resources(cpu_milli=1_500))
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
    """The answer has the final state, with the first instances that failed."""
    job = world.job(world.pool("p", 10, 10), 2)

    async with asking(world) as asked:
        await asked.queue(job)
        await until(lambda: PodState.READY in world.states(job))
        world.finish(job, [0])
        world.finish(job, [1], PodState.FAILED)
        world.settle(job)
        answer = await asked.why(job)

    assert answer.text.splitlines() == [
        "Job job ended FAILED in pool /p: 1 SUCCEEDED, 1 FAILED",
        "  instance 1: FAILED",
    ]
    assert (answer.state, len(answer.waiting)) == (job_pb2.FAILED, 0)


REFUSED = {
    "an unknown job": ("a1a1a1a1-0000-4000-8000-000000000000", grpc.StatusCode.NOT_FOUND, "not found"),
    "no id at all": ("x", grpc.StatusCode.INVALID_ARGUMENT, "JobID must be valid UUID, not 'x'"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_jobs_that_are_not_there(world: World, case: str) -> None:
    """The status of the call says what is wrong with the id."""
    job, code, text = REFUSED[case]
    async with asking(world) as asked:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.why(job)

    assert (caught.value.code(), text in (caught.value.details() or "")) == (code, True)


async def test_a_pool(world: World) -> None:
    """The answer has the head of each queue in and below a pool, and its loans."""
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


async def test_an_unknown_pool_is_quoted_within_a_bound(world: World) -> None:
    """The error has the beginning of a path of 50 MB, and its length."""
    async with asking(world) as asked:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.why_pool("/" + "n" * 50_000_000)

    assert f"resource pool /{'n' * 79}... (50,000,001 characters) not found" == caught.value.details()


@pytest.mark.parametrize(
    ("preempts", "how"),
    [
        (True, "instances in /b may be evicted within 5 rounds of preemption (300 s)"),
        (False, "it comes back as instances in /b end, for preemption is off"),
    ],
)
async def test_a_pool_that_borrows_what_its_owner_wants(world: World, preempts: bool, how: str) -> None:
    """The answer says how much each lender claims back, and when it is returned."""
    world.hosts.answer = (Resources.of(12, 1000, 1000), Resources())
    owner, borrower = world.pool("a", 6, 12), world.pool("b", 6, 12)

    async with asking(world, fast(preempts=preempts)) as asked:
        await asked.queue(world.job(borrower, 12))
        alone = await asked.why_pool("/b")
        await asked.queue(world.job(owner, 12))
        answer = await asked.why_pool("/b")

    assert "  borrows cpu 6, left unused by /a (6)" in alone.text.splitlines()
    assert "back" not in alone.text
    assert [(one.poolPath, one.amount, one.wantedBack) for one in answer.lenders] == [("/a", 6, 6)]
    assert answer.text.splitlines()[-1] == f"  /a wants cpu 6 of that back: {how}"


async def test_a_job_whose_pool_is_gone(world: World) -> None:
    """The text says that the pool is gone; it does not present the pool's id as a name."""
    job = world.job(world.pool("p", 10, 10), 1)

    async with asking(world) as asked:
        await asked.queue(job)
        await until(lambda: PodState.READY in world.states(job))
        world.finish(job, [0])
        world.settle(job)
        asked.server.loop.state.drop_pool(asked.server.loop.state.tree.ids[1])
        answer = await asked.why(job)

    assert (answer.text, answer.poolPath) == (
        "Job job ended SUCCEEDED in a pool that is gone: 1 SUCCEEDED",
        "",
    )


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


async def test_without_a_cluster(world: World) -> None:
    """The call fails with UNAVAILABLE while the capacity, and so every entitlement, is unknown."""
    async with asking(world) as asked:
        world.hosts.answer, asked.server.loop.state.capacity = None, None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked.stub.PoolTree(pb.PoolTreeRequest())

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_gang_between_admission_and_hosts(world: World) -> None:
    """A gang waits for hosts for all its members; it is in backoff after failed launches, with the numbers, and delays
    no other gang; and it gathers while members have not ended.
    """
    gang, other = world.job(world.pool("p", 5, 5), 5, gang=4), world.job(world.pool("q", 4, 4), 1)

    async with asking(world) as asked:
        await asked.queue(gang, other)
        asked.server.loop.note_unplaced(gang, 4, lacking_capacity(4, 2, is_gang=True))
        waits = await asked.why(gang)
        await asked.server.loop.requeue_gang(gang, REQUEUED)
        held, pool = await asked.why(gang), await asked.why_pool("/p")
        world.now_ns = asked.server.loop.clock_ns()
        asked.server.loop.clock_ns = lambda: world.now_ns + 31 * 10**9
        await asked.server.loop.run_cycle()
        world.finish(gang, [0])
        world.storage.pods.want_new_runs(gang, [(1, 1)])
        world.settle(gang)
        gang_incomplete = await asked.why(gang)

    (no_host,) = waits.reasons
    found = "gang of 4 without a host (2 hosts: less than 2 gpu free, 1 at most)"
    assert f"gang of 4 waits for hosts for all of it; admitted, but {found}" == no_host.text
    by_gang = {waiting.gangSize: waiting for waiting in held.waiting}
    reason = by_gang[4].reason
    assert (pb.RULE_HELD_BACK, 1, 4) == (reason.rule, reason.bound, reason.gangSize)
    assert 0 < reason.available <= 30
    assert (
        f"gang of 4: in backoff for {reason.available:.0f} s after 1 failed launch; later gangs may be admitted first"
        == reason.text
    )
    assert (pool.pool.queuedGangs, pool.pool.queuedInstances) == (1, 4)
    assert "in backoff" in pool.text
    (gathering,) = [reason for reason in gang_incomplete.reasons if reason.rule == pb.RULE_GANG_GATHERS]
    assert (1, 4) == (gathering.wanted, gathering.bound)
    assert "1 instance of the gang of 4 not queued before the others have ended: it starts whole" == gathering.text
