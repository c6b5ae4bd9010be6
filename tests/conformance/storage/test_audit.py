"""The audit log: one chain of hashes over all writers, which shows what was changed or removed in the database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from peloton.access.audit import Draft, Note, Verification
from services.storage.audit.audit_log import AuditFilter
from services.storage.storage import Storage
from services.storage.tables import AUDIT
from tests.conformance.storage.builders import NOW, SECOND

UNRESTRICTED = AuditFilter()


def a_draft(number: int, writer: str = "w1", method: str = "JobManager/Stop", result: str = "OK") -> Draft:
    named = f"job {number}"
    return Draft(NOW + number * SECOND, writer, number, method, result, caller="alice", object=named, reason="100 %\n“")


def verify(storage: Storage) -> Verification:
    anchor_seq, anchor_hash, head_seq = storage.audit.ends()
    check = Verification(anchor_seq, anchor_hash)
    for entry in storage.audit.page(UNRESTRICTED):
        check.add(entry)
    check.finish(head_seq)
    return check


def test_entries_of_all_writers_are_one_chain(storage: Storage) -> None:
    """Writers at the same time continue one chain."""

    def write(writer: str) -> None:
        for first in range(1, 9, 2):
            storage.audit.append([a_draft(first, writer), a_draft(first + 1, writer)])

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, ("w1", "w2", "w3")))

    check = verify(storage)
    assert ("", 24) == (check.fault, check.seq)
    assert {"w1", "w2", "w3"} == set(check.find_running())
    assert (8, 0) == (storage.audit.last_number("w2", 0), storage.audit.last_number("w2", 24))


CHANGES = {
    "a changed result": (sa.update(AUDIT).where(AUDIT.c.seq == 3).values(result="OK"), "entry 3 is not what"),
    "a changed time": (sa.update(AUDIT).where(AUDIT.c.seq == 2).values(at_ns=1), "entry 2 is not what"),
    "a removed entry": (sa.delete(AUDIT).where(AUDIT.c.seq == 4), "entry 4 is missing"),
    "a removed beginning": (sa.delete(AUDIT).where(AUDIT.c.seq <= 2), "entry 1 is missing"),
    "a removed end": (sa.delete(AUDIT).where(AUDIT.c.seq >= 5), "entry 5 is missing: 6 have been written"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_tampering_is_detected(storage: Storage, name: str) -> None:
    """The first broken entry is named."""
    change, fault = CHANGES[name]
    storage.audit.append([a_draft(number, result="NOT_FOUND") for number in range(1, 7)])
    storage.db.write(lambda conn: conn.execute(change))

    assert fault in verify(storage).fault


def test_an_entry_that_is_appended_after_a_removal_does_not_hide_it(storage: Storage) -> None:
    """The chain shows a removed last entry also when more entries follow."""
    storage.audit.append([a_draft(1), a_draft(2)])
    storage.db.write(lambda conn: conn.execute(sa.delete(AUDIT).where(AUDIT.c.seq == 2)))
    storage.audit.append([a_draft(3)])

    assert "entry 2 is missing" in verify(storage).fault


def test_the_chain_continues_after_old_entries_are_deleted(storage: Storage) -> None:
    """The last deleted entry is the anchor, also when none is left."""
    storage.audit.append([a_draft(number) for number in range(1, 6)])
    assert 2 == storage.audit.prune(NOW + 4 * SECOND, 2)
    assert 1 == storage.audit.prune(NOW + 4 * SECOND, 2)
    assert ("", 5) == (verify(storage).fault, verify(storage).seq)
    assert 2 == storage.audit.prune(NOW + 100 * SECOND, 10)
    assert 0 == storage.audit.prune(NOW + 100 * SECOND, 10)
    storage.audit.append([a_draft(6)])
    assert ("", 6) == (verify(storage).fault, verify(storage).seq)


def test_entries_are_filtered_and_paged(storage: Storage) -> None:
    """Users and results match whole, methods and objects in part."""
    drafts = [a_draft(1), a_draft(2, method="JobManager/Create"), a_draft(3, result="PERMISSION_DENIED")]
    storage.audit.append(drafts)

    def numbers(wanted: AuditFilter, after: int = 0, limit: int = 10, is_newest_first: bool = False) -> list[int]:
        page = storage.audit.page(wanted, after, limit=limit, is_newest_first=is_newest_first)
        return [entry.draft.number for entry in page]

    assert drafts == [entry.draft for entry in storage.audit.page(UNRESTRICTED)]
    assert [3, 2] == numbers(UNRESTRICTED, limit=2, is_newest_first=True)
    assert [2] == numbers(AuditFilter(method="Create"))
    assert [] == numbers(AuditFilter(method="%"))
    assert [3] == numbers(AuditFilter(result="PERMISSION_DENIED", user="alice"))
    assert [2] == numbers(AuditFilter(object="job 2"))
    assert [2] == numbers(AuditFilter(since_ns=NOW + 2 * SECOND, until_ns=NOW + 3 * SECOND))
    assert [] == numbers(AuditFilter(user="ali"))
    assert [1] == [entry.draft.number for entry in storage.audit.page(UNRESTRICTED, before=2)]


def test_a_writer_that_skips_a_number_is_named(storage: Storage) -> None:
    """The numbers of each process have no gap, and a process that has stopped is known."""
    storage.audit.append([a_draft(1), a_draft(2, method=Note.STOPPED), a_draft(1, "w2"), a_draft(3, "w2")])

    check = verify(storage)
    assert ("entry 4 is number 3 of process w2, after its number 1", ["w2"]) == (check.fault, check.find_running())
