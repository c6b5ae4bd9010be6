"""The job table: its pages agree with an oracle that reads all jobs, for every filter, in bounded steps."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from peloton.api import convert
from peloton.errors import NotFound
from peloton.model.ids import JobId, RespoolId, new_job_id
from peloton.model.job import JobRecord, JobState, JobType
from services.storage.jobs import job_table
from services.storage.jobs.job_table import JobCount, JobFilter, JobPage, Position
from services.storage.storage import Storage
from services.storage.tables import OWNER_INDEXED_MAX
from tests.conformance.storage.builders import DATABASES, NOW, SECOND, S, a_config, a_running_job, create, report
from tests.conformance.storage.plans import plans_of
from tests.nightly import nightly

POOLS = tuple(f"p{number}" for number in range(40))
STATES = (JobState.RUNNING, JobState.FAILED, JobState.SUCCEEDED, JobState.DELETED)
LONG_OWNER = "o" * (OWNER_INDEXED_MAX + 1)


def a_table(storage: Storage, count: int = 60, seed: int = 1) -> list[JobRecord]:
    """Store jobs of all types, some of them with equal creation times, and return them newest first."""
    draw = random.Random(seed)
    jobs = []
    for number in range(count):
        config = a_config(1, type_=draw.choice((JobType.BATCH, JobType.BATCH, JobType.SERVICE, JobType.DAEMON)))
        record = convert.new_job_record(_id(draw), config, NOW + number // 3 * SECOND)
        record = replace(
            record,
            name=draw.choice(("etl", "tiles", "retile", "Tiles%")) + str(number % 7),
            owning_team=draw.choice(("maps", "eats", LONG_OWNER)),
            respool_id=RespoolId(draw.choice(POOLS)),
            state=draw.choice(STATES),
            labels=(("tier", draw.choice(("a", "b"))), ("q", '["tier", "a"]')),
        )
        storage.jobs.create(record, config, NOW)
        jobs.append(record)
    return sorted(jobs, key=lambda job: (job.created_ns, job.job_id), reverse=True)


def _id(draw: random.Random) -> JobId:
    return JobId(str(uuid.UUID(int=draw.getrandbits(128), version=4)))


def matches(job: JobRecord, wanted: JobFilter) -> bool:
    return all(
        (
            job.state is not JobState.DELETED,
            wanted.pools is None or job.respool_id in wanted.pools,
            not wanted.owner or job.owning_team == wanted.owner,
            not wanted.states or job.state in wanted.states,
            not wanted.types or job.type in wanted.types,
            set(wanted.labels) <= set(job.labels),
            wanted.name_part in job.name,
            job.name.startswith(wanted.name_prefix),
            wanted.created is None or wanted.created[0] <= job.created_ns <= wanted.created[1],
        )
    )


FILTERS = {
    "all": JobFilter(),
    "one pool": JobFilter(pools=frozenset({"p3"})),
    "no pool": JobFilter(pools=frozenset()),
    "some pools": JobFilter(pools=frozenset(POOLS[:9])),
    "more pools than are scanned in parallel": JobFilter(pools=frozenset(POOLS[2:])),
    "owner": JobFilter(owner="maps"),
    "an owner that the index does not know": JobFilter(owner=LONG_OWNER),
    "states": JobFilter(states=frozenset({JobState.RUNNING, JobState.FAILED})),
    "services and daemons": JobFilter(types=frozenset({JobType.SERVICE, JobType.DAEMON})),
    "batch jobs": JobFilter(types=frozenset({JobType.BATCH})),
    "label": JobFilter(labels=(("tier", "a"),)),
    "labels": JobFilter(labels=(("tier", "a"), ("q", '["tier", "a"]'))),
    "part of a name": JobFilter(name_part="tile"),
    "a prefix": JobFilter(name_prefix="Tiles%"),
    "a time": JobFilter(created=(NOW + 4 * SECOND, NOW + 9 * SECOND)),
    "several": JobFilter(
        pools=frozenset(POOLS[:25]), owner="maps", states=frozenset({JobState.RUNNING, JobState.FAILED}), name_part="t"
    ),
    "nothing": JobFilter(name_part="nosuch"),
}


def pages(storage: Storage, wanted: JobFilter, size: int, at: Position | None, oldest_first: bool) -> Iterator[JobPage]:
    while True:
        page = storage.job_table.page(wanted, size, at, oldest_first)
        yield page
        at = page.previous if at is not None and at.back else page.next
        if at is None:
            return


@pytest.mark.parametrize(
    ("url", "rows", "count"),
    [("sqlite", 10_000, 60), ("sqlite", 7, 30), ("postgres", 7, 30), nightly("postgres", 10_000, 60)]
    + [nightly(url, 7, 60) for url in DATABASES],
    indirect=["url"],
)
@pytest.mark.parametrize("oldest_first", [False, True])
def test_pages_are_what_an_oracle_finds(
    storage: Storage, oldest_first: bool, rows: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every matching job is listed once and in order, even if a page reads few rows. Pages backwards have the same
    jobs."""
    monkeypatch.setattr(job_table, "SCAN_ROWS_MAX", rows)
    table = a_table(storage, count)
    for name, wanted in FILTERS.items():
        expected = [job.job_id for job in table if matches(job, wanted)]
        expected = expected[::-1] if oldest_first else expected
        forward = list(pages(storage, wanted, 4, None, oldest_first))

        assert expected == [job.job_id for page in forward for job in page.jobs], name
        assert all(len(page.jobs) == 4 or page.is_cut or page.next is None for page in forward), name
        end = forward[-1].previous
        if end is None:
            assert len(forward) == 1
            continue
        back = list(pages(storage, wanted, 4, end, oldest_first))
        before = expected[: len(expected) - len(forward[-1].jobs)]
        assert before == [job.job_id for page in reversed(back) for job in page.jobs], name


def test_no_call_reads_more_rows_than_the_bound(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that matches nothing ends in steps of that many rows, each of which reports that it was cut."""
    monkeypatch.setattr(job_table, "SCAN_ROWS_MAX", 10)
    table = a_table(storage, 35)

    found = list(pages(storage, JobFilter(name_part="nosuch"), 50, None, False))

    assert [True, True, True, False] == [page.is_cut for page in found]
    cut = found[0].next
    assert cut is not None
    assert table[9].created_ns == cut.created_ns
    assert cut.job_id not in {job.job_id for job in table}, "the position names a job that does not match"


def test_new_jobs_do_not_shift_pages(storage: Storage) -> None:
    """The second page is the same, whatever was created after the first."""
    a_table(storage, 12)
    first = storage.job_table.page(JobFilter(), 5)
    before = storage.job_table.page(JobFilter(), 5, first.next)
    newer = convert.new_job_record(new_job_id(), a_config(1), NOW + 3_600 * SECOND)
    storage.jobs.create(newer, a_config(1), NOW)

    assert before == storage.job_table.page(JobFilter(), 5, first.next)
    assert before.previous is not None
    assert first.jobs == storage.job_table.page(JobFilter(), 5, before.previous).jobs


def test_what_matches_is_counted_up_to_a_bound(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is exact up to the bound. Above the bound it reports that there may be more."""
    table = a_table(storage)
    for name, wanted in FILTERS.items():
        count = sum(matches(job, wanted) for job in table)
        assert JobCount(count, is_exact=True) == storage.job_table.count(wanted), name
    monkeypatch.setattr(job_table, "COUNT_MAX", 3)

    assert JobCount(3, is_exact=False) == storage.job_table.count(JobFilter())
    monkeypatch.setattr(job_table, "SCAN_ROWS_MAX", 10)
    assert JobCount(0, is_exact=False) == storage.job_table.count(JobFilter(name_part="nosuch"))


@pytest.mark.usefixtures("new_tables")
@pytest.mark.parametrize("states", [frozenset[JobState](), frozenset({JobState.FAILED})])
def test_an_index_alone_counts_the_jobs_of_pools(storage: Storage, states: frozenset[JobState]) -> None:
    """The query reads no row of a job for its state."""
    a_table(storage)
    wanted = JobFilter(pools=frozenset({"p3"}), states=states)

    plans = plans_of(storage, lambda: storage.job_table.count(wanted))

    counts = [plan for query, plan in plans if query.startswith("SELECT count(")]
    assert counts
    alone = "COVERING INDEX" if storage.db.is_sqlite else "Index Only Scan"
    assert all(alone in plan for plan in counts), counts


def test_a_byte_is_the_state_of_an_instance(storage: Storage) -> None:
    """The bytes have the numbers of the wire: 0 means no pod, and an admitted pod is PENDING to clients."""
    job_id = a_running_job(storage, 4)
    report(storage, job_id, [2], S)
    running, succeeded = 8, 9
    pod_less = create(storage, a_config(3))

    assert (bytes([running, running, succeeded, running]), 4) == storage.pods.states(job_id, 0, 100)
    assert (bytes([succeeded]), 4) == storage.pods.states(job_id, 2, 1)
    assert (b"", 4) == storage.pods.states(job_id, 4, 10)
    assert (bytes(3), 3) == storage.pods.states(pod_less, 0, 100)
    with pytest.raises(NotFound, match="not found"):
        storage.pods.states(JobId(new_job_id()), 0, 1)
