"""Searches of jobs by their names and by the beginnings of their ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.api import convert
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobState, JobType
from services.storage.jobs.search import FoundJob
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, SECOND, a_config


def create_named_job(
    storage: Storage, number: int, name: str, pool: str = "p1", start: str = "00", state: JobState = JobState.RUNNING
) -> JobId:
    """Create job ``number`` so many seconds after the others."""
    config = a_config(1)
    config.name, config.respoolID.value = name, pool
    job_id = JobId(f"{start}a1b2c3-0000-4000-8000-00000000000{number}")
    record = convert.new_job_record(job_id, config, NOW + number * SECOND)
    storage.jobs.create(replace(record, state=state), config, NOW)
    return job_id


def ids(found: list[FoundJob]) -> list[str]:
    return [job.job_id for job in found]


def test_names_are_compared_whole(storage: Storage) -> None:
    """A part of a name does not match, nor does a name in another pool."""
    create_named_job(storage, 1, "tile")
    here = create_named_job(storage, 2, "tiles", "p1")
    there = create_named_job(storage, 3, "tiles", "p2")

    assert [there, here] == ids(storage.search.jobs_named([("", "tiles")], 10))
    assert [here] == ids(storage.search.jobs_named([("p1", "tiles"), ("p2", "tile")], 10))
    assert [] == storage.search.jobs_named([("", "ile")], 10)
    assert [] == storage.search.jobs_named([], 10)


def test_jobs_that_have_not_ended_come_first(storage: Storage) -> None:
    """Jobs that have not ended come first, then the newest. A limit returns the first of them."""
    old, new = create_named_job(storage, 1, "etl"), create_named_job(storage, 2, "etl")
    ended = create_named_job(storage, 3, "etl", state=JobState.FAILED)

    assert [new, old, ended] == ids(storage.search.jobs_named([("", "etl")], 10))
    assert [new, old] == ids(storage.search.jobs_named([("", "etl")], 2))
    assert (
        FoundJob(new, "etl", RespoolId("p1"), JobState.RUNNING, NOW + 2 * SECOND, JobType.BATCH)
        == storage.search.jobs_named([("", "etl")], 1)[0]
    )


def test_ids_are_found_by_their_beginning(storage: Storage) -> None:
    """An id is found by any number of its first digits."""
    first, second = create_named_job(storage, 1, "a", start="0f"), create_named_job(storage, 2, "b", start="0f")
    create_named_job(storage, 3, "c", start="10")

    assert [second, first] == ids(storage.search.jobs_with_id_prefix("0fa1", 10))
    assert [first] == ids(storage.search.jobs_with_id_prefix(first.replace("-", ""), 10))
    assert [] == storage.search.jobs_with_id_prefix("0fa2", 10)


def test_deleted_jobs_have_no_name(storage: Storage) -> None:
    """A job that is being deleted is not found."""
    create_named_job(storage, 1, "gone", state=JobState.DELETED)

    assert [] == storage.search.jobs_named([("", "gone")], 10)
    assert [] == storage.search.jobs_with_id_prefix("00a1", 10)
    assert [] == storage.search.recent_jobs_beginning([("", "go")], 10)


def test_the_newest_jobs_are_searched_for_beginnings(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case and special characters count, and only a number of the newest jobs are searched."""
    monkeypatch.setattr("services.storage.jobs.search.RECENT_JOBS", 3)
    create_named_job(storage, 1, "tiles-old")
    create_named_job(storage, 2, "Tiles")
    low, other = create_named_job(storage, 3, "tiles%", "p1"), create_named_job(storage, 4, "tiles_x", "p2")

    assert [other, low] == ids(storage.search.recent_jobs_beginning([("", "tiles")], 10))
    assert [low] == ids(storage.search.recent_jobs_beginning([("", "tiles%")], 10))
    assert [other] == ids(storage.search.recent_jobs_beginning([("p2", "")], 10))
