"""Jobs under random events: pods stay legal, counts stay right, storage in memory agrees, resmgr's memory can follow,
and every job ends."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.gang import Step, evaluate
from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId, PodId
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.pod import ALLOCATED, ON_HOST, TERMINAL, PodRecord, PodState, PodStatus
from services.storage.jobs.settle_view import read_view
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import KILLING, NOW, READY, SECOND, F, I, K, L, P, R, S, postgres_nightly
from tests.conformance.storage.mirror import Mirrored
from tests.nightly import NIGHTLY
from tests.reasons import PREEMPTED, REQUEUED
from tests.unit.lifecycle.counting import count_pods

COUNT = 5
STEPS_MAX = 30
ROUNDS_TO_END_MAX = 60
WAITS = Backoff(3, 6)
"""Backoff of pods that fail on their only host, or repeatedly."""
BOUND = range(2)
"""Instances that no other host could take."""

instance = st.integers(0, COUNT - 1)
span = st.tuples(instance, st.integers(1, COUNT))
reported = st.sampled_from([PodState.STARTING, R, S, F, L, K, PodState.LAUNCHED])
step = st.one_of(
    st.tuples(st.just("settle")),
    st.tuples(st.just("queue"), st.integers(1, COUNT)),
    st.tuples(st.just("admit"), span),
    st.tuples(st.just("launch"), st.integers(1, COUNT)),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("find_no_host"), span),
    st.tuples(st.just("report"), st.lists(st.tuples(instance, reported, st.integers(-1, 1)), min_size=1, max_size=4)),
    st.tuples(st.just("stop"), span),
    st.tuples(st.just("start"), span),
    st.tuples(st.just("restart"), span),
    st.tuples(st.just("stop_job")),
    st.tuples(st.just("kill_queued")),
    st.tuples(st.just("evict"), span),
    st.tuples(st.just("kill"), st.integers(1, COUNT), st.booleans()),
)
slas = st.sampled_from(
    [
        {},
        {"maximumRunningInstances": 2},
        {"minimumRunningInstances": 3},
        {"minimumRunningInstances": 2, "maximumRunningInstances": 3},
        {"maxRunningTime": 5},
    ]
)


class Life:
    """A job, resmgr's memory of it, and the invariants after every step."""

    def __init__(self, storage: Storage, retries: int, sla: dict[str, Any]) -> None:
        self.mirrored = Mirrored(storage)
        for twin in (storage, self.mirrored.memory):
            twin.host_pods.batch_backoff = WAITS
        self.storage = cast(Storage, self.mirrored)
        self.job_id: JobId = world.create(self.storage, world.a_config(COUNT, retries=retries, **sla))
        self.storage.pods.create(self.job_id, lambda _: None)
        job = storage.jobs.get(self.job_id)
        assert job is not None
        self.gang_size = job.gang_size
        self.now_ns = NOW
        self.queue_seq = 0
        self.pending: set[int] = set()
        self.allocated: set[int] = set()
        self.cursor = storage.admission.snapshot().log_cursor
        self.before = {pod.instance_id: pod for pod in world.pods(storage, self.job_id)}
        self.ended_runs: set[tuple[int, int]] = set()

    def take(self, name: str, *args: Any) -> None:
        self.now_ns += SECOND
        getattr(self, name)(*args)
        self.tail()
        self.check()

    # -- steps

    def settle(self) -> None:
        progress = self.storage.jobs.settle(self.job_id, self.now_ns)
        now = world.pods(self.storage, self.job_id)
        if not progress.settle_again:
            assert world.counts([pod.state for pod in now]) == progress.counts
            job = self.storage.jobs.get(self.job_id)
            assert job is not None
            assert job.pod_counts == {state: n for state, n in job.pod_counts.items() if n}
            assert progress.counts == {state.value: n for state, n in job.pod_counts.items()}
        if progress.is_finished:
            assert all(pod.state in TERMINAL for pod in now)

    def queue(self, limit: int) -> None:
        ranges = self.storage.admission.queueable(self.job_id, limit)
        self.queue_seq += 1
        for _, start, count in self.storage.admission.mark_pending(self.job_id, ranges, self.queue_seq):
            self.pending |= set(range(start, start + count))

    def admit(self, where: tuple[int, int]) -> None:
        self.storage.admission.mark_ready([(self.job_id, *where)])
        admitted = self.pending & set(range(where[0], where[0] + where[1]))
        self.pending -= admitted
        self.allocated |= admitted

    def launch(self, limit: int) -> None:
        ready = world.ready_pods(self.storage, self.job_id, limit)
        rows = [(i, run, "host", "agent", {"http": 1}) for i, run in ready]
        assert {i for i, _ in ready} == self.storage.host_pods.mark_launched(self.job_id, rows, self.now_ns)
        assert set() == self.storage.host_pods.mark_launched(self.job_id, rows, self.now_ns)

    def requeue(self) -> None:
        """Queue the gang again, as the workflow of its launch does after a failed placement."""
        gone = self.storage.admission.requeue_gang(self.job_id, REQUEUED)
        assert gone.held_until_ns == 0 or gone.held_until_ns > self.storage.db.clock_ns()
        for _, start, count in gone.queued:
            self.pending |= set(range(start, start + count))
        for start, count in [*gone.unqueued, *((start, count) for _, start, count in gone.queued)]:
            self.allocated -= set(range(start, start + count))

    def find_no_host(self, where: tuple[int, int]) -> None:
        gone = self.storage.admission.requeue_pods(self.job_id, [where], REQUEUED)
        assert gone.in_backoff == [] or all(until_ns > self.storage.db.clock_ns() for *_, until_ns in gone.in_backoff)
        for _, start, count in gone.queued:
            self.pending |= set(range(start, start + count))
            self.allocated -= set(range(start, start + count))

    def evict(self, where: tuple[int, int]) -> None:
        """Evict a gang as a whole."""
        size = self.gang_size
        order = (0, size) if where[0] < size > 1 else where
        for gone in self.storage.admission.evict([EvictionOrder(self.job_id, *order, order == (0, size), PREEMPTED)]):
            for _, start, count in gone.queued:
                self.pending |= set(range(start, start + count))
            for start, count in [*gone.unqueued, *((start, count) for _, start, count in gone.queued)]:
                self.allocated -= set(range(start, start + count))

    def report(self, news: list[tuple[int, PodState, int]]) -> None:
        statuses = [
            PodStatus(PodId(self.job_id, i, self.before[i].run_id + off), state, self.now_ns, "host", "agent")
            for i, state, off in news
            if self.before[i].run_id + off > 0
        ]
        bound = {status.pod_id for status in statuses if status.pod_id.instance_id in BOUND}
        outcome = self.storage.host_pods.apply_status(statuses, "cluster", bound)
        again = self.storage.host_pods.apply_status(statuses, "cluster", bound)
        assert [] == again.ended
        assert {status.pod_id for status in statuses} >= set(outcome.orphans) | set(outcome.ended)

    def stop(self, where: tuple[int, int]) -> None:
        self.storage.pods.set_goals(self.job_id, [where], K, self.now_ns, "stop")
        assert [] == self.storage.pods.set_goals(self.job_id, [where], K, self.now_ns, "stop")

    def start(self, where: tuple[int, int]) -> None:
        self.storage.pods.set_goals(self.job_id, [where], S, self.now_ns, "start")
        assert [] == self.storage.pods.set_goals(self.job_id, [where], S, self.now_ns, "start")

    def restart(self, where: tuple[int, int]) -> None:
        wanted = self.storage.pods.want_new_runs(self.job_id, [where])
        assert wanted == self.storage.pods.want_new_runs(self.job_id, [where])

    def stop_job(self) -> None:
        self.storage.jobs.set_goal(self.job_id, JobState.KILLED, self.now_ns)

    def kill_queued(self) -> None:
        for start, count, was in self.storage.admission.kill_queued(self.job_id, self.now_ns):
            held = self.allocated if was is READY else self.pending
            killed = set(range(start, start + count))
            assert killed <= held
            held -= killed

    def kill(self, limit: int, again: bool) -> None:
        self.storage.host_pods.mark_killing(self.job_id, limit, again)

    # -- invariants

    def now(self) -> list[PodRecord]:
        return world.pods(self.storage, self.job_id)

    def tail(self) -> None:
        for seq, job_id, i, run, state in self.storage.admission.status_log(self.cursor, 1000):
            assert seq == self.cursor + 1
            self.cursor = seq
            assert (job_id, True) == (self.job_id, state in TERMINAL)
            assert (i, run) not in self.ended_runs
            self.ended_runs.add((i, run))
            self.allocated.discard(i)

    def check(self) -> None:
        now = self.now()
        for pod in now:
            self.check_pod(pod, self.before[pod.instance_id])
        assert self.pending == {pod.instance_id for pod in now if pod.state is P}
        assert self.allocated == {pod.instance_id for pod in now if pod.state in ALLOCATED}
        self.before = {pod.instance_id: pod for pod in now}
        job = self.storage.jobs.get(self.job_id)
        assert job is not None
        self.storage.admission.list_held([self.job_id])
        self.storage.pods.gang(self.job_id)
        mine = [one for one in self.mirrored.storage.admission.snapshot().jobs if one.job.job_id == self.job_id]
        assert mine == list(self.mirrored.memory.admission.snapshot().jobs)
        view = self.storage.db.read(partial(read_view, job=job, now_ns=self.now_ns))
        assert count_pods(job, now, self.now_ns) == view.pods

    def check_pod(self, pod: PodRecord, before: PodRecord) -> None:
        assert pod.desired_run_id >= pod.run_id > pod.prev_run_id >= 0
        assert pod.run_id >= before.run_id
        assert pod.revision == len(self.storage.pods.events(self.job_id, pod.instance_id, run_limit=0))
        assert (pod.state in TERMINAL) == (pod.completed_ns > 0)
        if pod.state in ON_HOST:
            assert "host" == pod.host
        if pod.state in (I, P, READY):
            assert ("", 0) == (pod.host, pod.started_ns)
        if pod.run_id == before.run_id and before.state in TERMINAL:
            assert before.state is pod.state
        if pod.run_id == before.run_id and before.state is KILLING:
            assert pod.state in TERMINAL | {KILLING}

    def end(self) -> JobState:
        """Acts as the services until the job has ended."""
        for _ in range(ROUNDS_TO_END_MAX):
            self.take("settle")
            job = self.storage.jobs.get(self.job_id)
            assert job is not None
            if job.state in JOB_TERMINAL:
                return job.state
            self.take("kill_queued")
            self.take("kill", COUNT, False)
            self.take("report", [(p.instance_id, K, 0) for p in self.now() if p.state is KILLING])
            self.take("queue", COUNT)
            self.take("admit", (0, COUNT))
            self.take("launch", COUNT)
            if evaluate(self.storage.pods.gang(self.job_id)).step is Step.REQUEUE:
                self.take("requeue")
            self.take("report", [(p.instance_id, S, 0) for p in self.now() if p.state in ON_HOST])
        raise AssertionError(f"job {self.job_id} does not end: {self.now()}")


LIVES = given(retries=st.integers(0, 4), sla=slas, steps=st.lists(step, max_size=STEPS_MAX))
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@postgres_nightly
@settings(max_examples=8, suppress_health_check=SHARED)
@LIVES
def test_random_lives(storage: Storage, retries: int, sla: dict[str, Any], steps: list[tuple[Any, ...]]) -> None:
    """Pods are legal and resmgr's memory agrees with storage after every step, and the job comes to its end."""
    live(storage, retries, sla, steps)


@NIGHTLY
@settings(max_examples=80, suppress_health_check=SHARED)
@LIVES
def test_many_random_lives(storage: Storage, retries: int, sla: dict[str, Any], steps: list[tuple[Any, ...]]) -> None:
    """More lives keep the same invariants."""
    live(storage, retries, sla, steps)


def live(storage: Storage, retries: int, sla: dict[str, Any], steps: list[tuple[Any, ...]]) -> None:
    life = Life(storage, retries, sla)
    for name, *args in steps:
        life.take(name, *args)

    ended = life.end()

    record = storage.jobs.get(life.job_id)
    life.take("settle")
    assert record == storage.jobs.get(life.job_id)
    assert ended in JOB_TERMINAL
