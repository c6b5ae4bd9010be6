"""Finding jobs by their names and by the beginnings of their ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.api import convert
from peloton.model.ids import JobId
from peloton.model.job import JobState
from services.storage import lookup
from services.storage.gateway import Gateway
from services.storage.lookup import FoundJob
from tests.conformance.storage.builders import NOW, SECOND, a_config


def named(
    gateway: Gateway, number: int, name: str, pool: str = "p1", start: str = "00", state: JobState = JobState.RUNNING
) -> JobId:
    """Job ``number`` was created so many seconds after the others."""
    config = a_config(1)
    config.name, config.respoolID.value = name, pool
    job_id = JobId(f"{start}a1b2c3-0000-4000-8000-00000000000{number}")
    record = convert.new_job_record(job_id, config, NOW + number * SECOND)
    gateway.create_job(replace(record, state=state), config, NOW)
    return job_id


def ids(found: list[FoundJob]) -> list[str]:
    return [job.job_id for job in found]


def test_names_are_compared_whole(gateway: Gateway) -> None:
    """A part of a name, or a name in another pool, is not the name."""
    named(gateway, 1, "tile")
    here = named(gateway, 2, "tiles", "p1")
    there = named(gateway, 3, "tiles", "p2")

    assert [there, here] == ids(gateway.jobs_named([("", "tiles")], 10))
    assert [here] == ids(gateway.jobs_named([("p1", "tiles"), ("p2", "tile")], 10))
    assert [] == gateway.jobs_named([("", "ile")], 10)
    assert [] == gateway.jobs_named([], 10)


def test_jobs_that_have_not_ended_come_first(gateway: Gateway) -> None:
    """Then the newest; a limit takes the first of them."""
    old, new = named(gateway, 1, "etl"), named(gateway, 2, "etl")
    ended = named(gateway, 3, "etl", state=JobState.FAILED)

    assert [new, old, ended] == ids(gateway.jobs_named([("", "etl")], 10))
    assert [new, old] == ids(gateway.jobs_named([("", "etl")], 2))
    assert FoundJob(new, "etl", "p1", JobState.RUNNING, NOW + 2 * SECOND) == gateway.jobs_named([("", "etl")], 1)[0]  # type: ignore[arg-type]


def test_ids_are_found_by_their_beginning(gateway: Gateway) -> None:
    """By any number of digits, and no others."""
    first, second = named(gateway, 1, "a", start="0f"), named(gateway, 2, "b", start="0f")
    named(gateway, 3, "c", start="10")

    assert [second, first] == ids(gateway.jobs_with_id_prefix("0fa1", 10))
    assert [first] == ids(gateway.jobs_with_id_prefix(first.replace("-", ""), 10))
    assert [] == gateway.jobs_with_id_prefix("0fa2", 10)


def test_deleted_jobs_have_no_name(gateway: Gateway) -> None:
    """What is being deleted is not found."""
    named(gateway, 1, "gone", state=JobState.DELETED)

    assert [] == gateway.jobs_named([("", "gone")], 10)
    assert [] == gateway.jobs_with_id_prefix("00a1", 10)
    assert [] == gateway.recent_jobs_beginning([("", "go")], 10)


def test_the_newest_jobs_are_looked_through_for_beginnings(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case and special characters count, and jobs beyond a number of the newest are left out."""
    monkeypatch.setattr(lookup, "RECENT_JOBS", 3)
    named(gateway, 1, "tiles-old")
    named(gateway, 2, "Tiles")
    low, other = named(gateway, 3, "tiles%", "p1"), named(gateway, 4, "tiles_x", "p2")

    assert [other, low] == ids(gateway.recent_jobs_beginning([("", "tiles")], 10))
    assert [low] == ids(gateway.recent_jobs_beginning([("", "tiles%")], 10))
    assert [other] == ids(gateway.recent_jobs_beginning([("p2", "")], 10))
