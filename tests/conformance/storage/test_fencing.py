"""Writes of a leading role are fenced: one that was frozen past its lease writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.errors import LeadershipLost, Unavailable
from services.fence import Fence
from services.storage.engine import Repository
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, K

ROLE, TTL_S = "resmgr", 10.0
A, B = "a:1", "b:1"


def lead(storage: Storage, owner: str, now_s: float, lost: Callable[[str], None] = lambda _: None) -> Fence:
    """Return the fence of a process that becomes the leader."""
    fence = Fence(ROLE, owner, TTL_S, lambda: False, lost)
    epoch = storage.leases.acquire(ROLE, owner, "", TTL_S, now_s)
    assert epoch
    fence.begin(epoch)
    return fence


def test_an_epoch_rises_with_each_owner(storage: Storage) -> None:
    """Epochs outlive expiries and releases, and a leader that acquires again keeps its own."""
    acquire = storage.leases.acquire
    assert 1 == acquire(ROLE, A, "", TTL_S, 0.0)
    assert 1 == acquire(ROLE, A, "", TTL_S, 5.0)
    assert 0 == acquire(ROLE, B, "", TTL_S, 14.0)
    assert 2 == acquire(ROLE, B, "", TTL_S, 15.0)
    assert storage.leases.release(ROLE, B)
    assert 3 == acquire(ROLE, A, "", TTL_S, 16.0)
    assert 1 == acquire("hostmgr/local", A, "", TTL_S, 16.0)


def test_a_replaced_leader_writes_nothing(storage: Storage) -> None:
    """The transaction that finds another epoch fails before it reads, and the process learns it once."""
    reasons: list[str] = []
    fence = lead(storage, A, 0.0, reasons.append)
    stale = storage.with_fence(fence)
    job_id = world.a_job(stale, 3)
    lead(storage, B, TTL_S)

    for _ in range(2):
        with pytest.raises(LeadershipLost, match="resmgr: another process leads, epoch 1 is over"):
            stale.pods.set_goals(job_id, [(0, 3)], K, NOW, "stop")

    assert K not in [pod.goal for pod in storage.pods.page(job_id)]
    assert 1 == len(reasons)


def test_an_owner_of_the_last_release_fences_too(storage: Storage) -> None:
    """Release 0.1 takes the role over without an epoch: the owner differs."""
    stale = storage.with_fence(lead(storage, A, 0.0))
    storage.db.write(lambda conn: conn.execute(sa.text("UPDATE lease SET owner = 'old'")))
    with pytest.raises(LeadershipLost):
        world.a_job(stale, 1)


def test_a_late_leader_that_was_not_replaced_writes(storage: Storage) -> None:
    """An expired lease that no other process has acquired has missed no decision."""
    fence = lead(storage, A, 0.0)
    assert world.a_job(storage.with_fence(fence), 1)


def test_a_process_that_resigned_ends_nothing(storage: Storage) -> None:
    """A write of a thread that is late fails, and does not end the process, which ends in order."""
    reasons: list[str] = []
    fence = lead(storage, A, 0.0, reasons.append)
    fence.end()
    lead(storage, B, TTL_S)
    with pytest.raises(LeadershipLost):
        world.a_job(storage.with_fence(fence), 1)
    assert [] == reasons


def test_the_next_leader_begins_after_the_last_commit(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """A transaction between its decision and its commit holds the next leader up: it then reads what was committed."""
    stale, rival = storage.with_fence(lead(storage, A, 0.0)), open_storage()
    decided, go_on = threading.Event(), threading.Event()

    def write(conn: sa.Connection) -> None:
        conn.execute(sa.text("UPDATE counter SET value = value + 7 WHERE name = 'watch_log'"))
        decided.set()
        assert go_on.wait(20)

    def succeed() -> int:
        lead(rival, B, TTL_S)
        return rival.db.read(lambda conn: conn.execute(value).scalar()) or 0

    value = sa.text("SELECT value FROM counter WHERE name = 'watch_log'")
    before = storage.db.read(lambda conn: conn.execute(value).scalar()) or 0
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(stale.db.write, write)
        assert decided.wait(20)
        succeeding = pool.submit(succeed)
        time.sleep(0.2)
        assert not succeeding.done()
        go_on.set()
        writing.result()
        assert before + 7 == succeeding.result()


def test_a_frozen_transaction_does_not_hold_the_next_leader_up(
    storage: Storage, open_storage: Callable[[], Storage]
) -> None:
    """PostgreSQL ends the transaction of a process that stands still in it for the time of a lease."""
    if storage.db.is_sqlite:
        pytest.skip("a process that stands still while it writes a file of SQLite stops all writers")
    fence = lead(storage, A, 0.0)
    fence.ttl_s = 0.3
    stale, rival, taken = storage.with_fence(fence), open_storage(), threading.Event()

    def write(conn: sa.Connection) -> None:
        if fence.is_raised:
            conn.execute(sa.text("UPDATE counter SET value = value + 7 WHERE name = 'watch_log'"))
            assert taken.wait(20)
            conn.execute(sa.text("SELECT 1"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(stale.db.write, write)
        while not storage.db.read(lambda conn: conn.execute(sa.text(_IN_TRANSACTION)).scalar()):
            time.sleep(0.01)
        lead(rival, B, TTL_S)
        taken.set()
        with pytest.raises(Unavailable):
            writing.result()
    with pytest.raises(LeadershipLost):
        world.a_job(stale, 1)


def test_a_frozen_renewal_does_not_hold_the_next_leader_up(
    storage: Storage, open_storage: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may freeze in the transaction that renews its lease, too."""
    if storage.db.is_sqlite:
        pytest.skip("a process that stands still while it writes a file of SQLite stops all writers")
    rival, renewed, taken = open_storage(), threading.Event(), threading.Event()
    storage.leases.acquire(ROLE, A, "", 0.3, 0.0)
    write = storage.db.write

    def freeze(work: Callable[[sa.Connection], Any]) -> Any:
        def stand_still(conn: sa.Connection) -> Any:
            done = work(conn)
            renewed.set()
            taken.wait(20)
            return done

        return write(stand_still)

    monkeypatch.setattr(storage.db, "write", freeze)
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(storage.leases.renew, ROLE, A, "", 0.3, 0.0)
        assert renewed.wait(20)
        lead(rival, B, TTL_S)
        taken.set()
        with pytest.raises(Unavailable):
            renewing.result()


_IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database() "
    "AND query LIKE 'UPDATE counter%'"
)


def test_each_write_of_a_leader_begins_with_its_lease(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """All repositories of a leader but leases write through its fence: each such transaction reads the lease first."""
    fenced = storage.with_fence(lead(storage, A, 0.0))
    repositories = {name: one for name, one in vars(fenced).items() if isinstance(one, Repository)}
    assert ["leases"] == [name for name, one in repositories.items() if one._db is not fenced.db]
    assert vars(storage).keys() == vars(fenced).keys()

    transactions: list[list[str]] = []
    note_end: Any = lambda conn: transactions.append([])  # noqa: E731
    note: Any = lambda conn, cursor, statement, *_: transactions[-1].append(statement)  # noqa: E731
    note_end(None)
    check = fenced.db._check
    assert check is not None

    def check_and_note(conn: sa.Connection) -> None:
        transactions[-1].append("the lease")
        check(conn)

    monkeypatch.setattr(fenced.db, "_check", check_and_note)
    sa.event.listen(storage.db.engine, "commit", note_end)
    sa.event.listen(storage.db.engine, "rollback", note_end)
    sa.event.listen(storage.db.engine, "before_cursor_execute", note)
    try:
        job_id = world.a_job(fenced, 3)
        world.admit(fenced, job_id)
        fenced.host_pods.mark_launched(job_id, [(0, 1, "host", "agent", {})], NOW)
    finally:
        sa.event.remove(storage.db.engine, "commit", note_end)
        sa.event.remove(storage.db.engine, "rollback", note_end)
        sa.event.remove(storage.db.engine, "before_cursor_execute", note)

    changes = "INSERT", "UPDATE", "DELETE", "WITH"
    statements = [[one for one in each if not one.startswith(("BEGIN", "SET"))] for each in transactions]
    writes = [each for each in statements if any(one.lstrip().startswith(changes) for one in each)]
    assert len(writes) > 2
    assert [] == [each for each in writes if each[0] != "the lease"]
