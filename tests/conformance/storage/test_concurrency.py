"""Races of threads, storages and processes that write the same pods."""

from __future__ import annotations

import fcntl
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.errors import AlreadyExists, Unavailable
from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.job import JobState
from peloton.model.pod import PodStatus
from services.storage.engine import WriterTurn
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.another_process import report_success
from tests.conformance.storage.builders import LAUNCHED, NOW, READY, F, I, K, R, S

ROUNDS = 8


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Return the results of calls that all start at the same moment."""
    barrier = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [done.result() for done in [pool.submit(one, call) for call in calls]]


def test_a_pod_is_launched_or_killed_in_the_queue_never_both(
    storage: Storage, open_storage: Callable[[], Storage]
) -> None:
    """Each READY pod is either launched or killed when launch and kill race for it."""
    other = open_storage()
    for _ in range(ROUNDS):
        job_id = world.a_job(storage, 20)
        world.admit(storage, job_id)
        storage.pods.set_goals(job_id, [(0, 10)], K, NOW, "stop")
        rows: list[LaunchRow] = [(i, 1, "host", "agent", {}) for i in range(20)]

        def stop_and_kill(job_id: JobId = job_id) -> list[tuple[int, int, Any]]:
            other.pods.set_goals(job_id, [(10, 5)], K, NOW, "stop")
            return other.admission.kill_queued(job_id, NOW)

        launched, killed = together(lambda: storage.host_pods.mark_launched(job_id, rows, NOW), stop_and_kill)  # noqa: B023

        in_queue = {i for start, count, _ in killed for i in range(start, start + count)}
        assert set(range(20)) == launched | in_queue
        assert set() == launched & in_queue
        assert {*range(10)} <= in_queue
        assert {*range(15, 20)} <= launched
        assert [LAUNCHED if i in launched else K for i in range(20)] == world.states(storage, job_id)


def test_a_run_is_launched_by_one_of_many(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """Each run is taken by exactly one of several concurrent launches."""
    job_id = world.a_job(storage, 30)
    world.admit(storage, job_id)
    storages = [storage, open_storage(), open_storage()]

    taken = together(
        *(
            lambda g=g, n=n: g.host_pods.mark_launched(job_id, [(i, 1, f"h{n}", "a", {}) for i in range(30)], NOW)
            for n, g in enumerate(storages)
        )
    )

    assert list(range(30)) == sorted(i for part in taken for i in part)
    assert [READY, LAUNCHED] == [event.state for event in reversed(storage.pods.events(job_id, 0))][-2:]


def test_settles_at_once_make_one_new_run(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """An ended pod has one next run, however many settles race, and the job's counts are right."""
    other = open_storage()
    for _ in range(ROUNDS):
        job_id = world.a_running_job(storage, 10, retries=5)
        world.report(storage, job_id, range(10), F)

        together(
            lambda: world.settle_all(storage, job_id),  # noqa: B023
            lambda: world.settle_all(other, job_id),  # noqa: B023
            lambda: world.settle_all(storage, job_id),  # noqa: B023
        )

        assert [(I, 2)] * 10 == [(p.state, p.run_id) for p in world.pods(storage, job_id)]
        assert {"INITIALIZED": 10} == world.settle_all(storage, job_id).counts


def test_a_restart_that_races_with_the_end_is_not_lost(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """A restart before the end of its job counts, and one after it is refused."""
    other = open_storage()
    for _ in range(ROUNDS):
        job_id = world.a_running_job(storage, 1)
        world.report(storage, job_id, [0], S)

        _, wanted = together(
            lambda: world.settle_all(storage, job_id),  # noqa: B023
            lambda: other.pods.want_new_runs(job_id, [(0, 1)]),  # noqa: B023
        )

        finished = world.settle_all(storage, job_id).is_finished
        assert finished == (wanted == [])
        assert (S, 1) if finished else (I, 2) == (world.pod(storage, job_id).state, world.pod(storage, job_id).run_id)


def test_status_batches_of_crossing_jobs_do_not_block_each_other(
    storage: Storage, open_storage: Callable[[], Storage]
) -> None:
    """Batches with the same jobs in different orders all succeed, and the log has every end once, in order."""
    other = open_storage()
    jobs = [world.a_running_job(storage, 40) for _ in range(4)]

    def apply(writer: Storage, order: list[JobId], instances: range) -> None:
        for i in instances:
            writer.host_pods.apply_status([PodStatus(PodId(job, i, 1), S, NOW) for job in order], "cluster")

    together(
        lambda: apply(storage, jobs, range(20)),
        lambda: apply(other, jobs[::-1], range(20, 40)),
        lambda: [storage.jobs.settle(job, NOW) for job in jobs * 5],
    )

    log = storage.admission.status_log(0, 1000)
    assert list(range(1, 161)) == [row[0] for row in log]
    assert {(job, i) for job in jobs for i in range(40)} == {(row[1], row[2]) for row in log}
    assert [JobState.SUCCEEDED] * 4 == [world.settle_all(storage, job).state for job in jobs]


def test_one_of_two_creations_wins(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """One of two jobs that are created under one id at the same time is stored, and the other is refused."""
    other, job_id = open_storage(), new_job_id()

    def attempt(writer: Storage, count: int) -> bool:
        try:
            world.create(writer, world.a_config(count), job_id)
        except AlreadyExists:
            return False
        return True

    first, second = together(lambda: attempt(storage, 1), lambda: attempt(other, 2))

    job = storage.jobs.get(job_id)
    assert job is not None
    assert first != second
    assert (1 if first else 2) == job.instance_count


def test_pods_are_created_once_by_many(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """Two workers that create the pods of one job create each pod once."""
    job_id = world.create(storage, world.a_config(12_000))
    other = open_storage()

    counts = together(*(lambda g=g: g.pods.create(job_id, lambda _: None) for g in (storage, other)))

    assert [12_000, 12_000] == counts
    assert list(range(12_000)) == [p.instance_id for p in world.pods(storage, job_id)]


def test_a_role_has_one_leader_however_many_ask(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """One of several processes that acquire a free role at once holds it."""
    storages = [storage, open_storage(), open_storage()]

    got = together(
        *(lambda g=g, n=n: g.leases.acquire("role", f"o{n}", f"a{n}", 10, 1.0) for n, g in enumerate(storages))
    )

    assert 1 == got.count(True)
    assert f"a{got.index(True)}" == storage.leases.leader("role", 2.0)


def test_processes_share_one_database(storage: Storage, url: str) -> None:
    """Two processes and this one write the same job. Nothing is lost, and no process fails."""
    job_id = world.a_running_job(storage, 60)
    context = multiprocessing.get_context("spawn")
    parts = [list(range(0, 30)), list(range(30, 50))]
    processes = [context.Process(target=report_success, args=(url, job_id, part, NOW)) for part in parts]
    for process in processes:
        process.start()

    while any(process.is_alive() for process in processes):
        world.settle_all(storage, job_id)
        processes[0].join(0.01)
    world.report(storage, job_id, range(50, 60), R)
    world.report(storage, job_id, range(50, 60), S)

    assert [0, 0] == [process.exitcode for process in processes]
    assert JobState.SUCCEEDED == world.settle_all(storage, job_id).state
    assert list(range(1, 61)) == [row[0] for row in storage.admission.status_log(0, 100)]


@pytest.mark.parametrize("states_", [(R, S), (S, F)])
def test_a_reader_sees_one_moment(
    storage: Storage, open_storage: Callable[[], Storage], states_: tuple[Any, Any]
) -> None:
    """A snapshot contains all of a concurrent batch or nothing of it, and its log position agrees."""
    other, job_id = open_storage(), world.a_running_job(storage, 50)
    everything = list(range(50))

    def read() -> list[tuple[int, int]]:
        seen = []
        for _ in range(20):
            snapshot = other.admission.snapshot()
            allocated = sum(r.count for job in snapshot.jobs for r in job.allocated)
            seen.append((allocated, snapshot.log_cursor))
        return seen

    _, seen = together(lambda: world.report(storage, job_id, everything, states_[1]), read)

    assert {(50, 0), (0, 50)} >= set(seen)
    assert world.queue(storage, job_id) == 0
    assert world.launch(storage, job_id) == set()


def test_who_waits_to_write_is_next(tmp_path: Path) -> None:
    """A process that has just written an SQLite file does not overtake another process that waits for it."""
    path = str(tmp_path / "file.db")
    busy, patient = WriterTurn(path), WriterTurn(path)
    order: list[str] = []

    def write() -> None:
        with patient.hold():
            order.append("patient")

    waiting = threading.Thread(target=write)
    with busy.hold():
        order.append("busy")
        waiting.start()
        _wait_for(lambda: _is_held(f"{path}-gate"))
    with busy.hold():
        order.append("busy")
    waiting.join()
    busy.close()
    patient.close()

    assert order == ["busy", "patient", "busy"]


def _is_held(path: str) -> bool:
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_a_connection_that_breaks_is_unavailable(storage: Storage) -> None:
    """A query whose connection is cut raises Unavailable. The next query connects again."""
    if storage.db.is_sqlite:
        pytest.skip("there is no connection to break")
    with pytest.raises(Unavailable, match="storage does not answer"):
        storage.db.read(lambda conn: conn.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())")))

    assert storage.db.read(lambda conn: conn.execute(sa.text("SELECT 1")).scalar()) == 1
