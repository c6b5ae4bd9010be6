"""Jobs whose deletion was interrupted by the death of an api."""

from __future__ import annotations

import logging

import pytest

from peloton.model.job import JobState
from services.roles import api
from services.storage.storage import Storage
from tests.conformance.storage import builders


def half_deleted(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a deletion that stops after its mark."""
    job_id = builders.a_job(storage, 3)
    storage.jobs.set_goal(job_id, JobState.KILLED, builders.NOW)
    builders.settle_all(storage, job_id)
    writes = iter([storage.db.write])
    with monkeypatch.context() as patch:
        patch.setattr(storage.db, "write", lambda work: next(writes)(work))
        with pytest.raises(StopIteration):
            storage.jobs.delete(job_id)


async def test_an_api_that_starts_continues_deletions(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The api deletes the rest of the jobs at its start."""
    for _ in range(2):
        half_deleted(storage, monkeypatch)
    assert 2 == len(storage.jobs.half_deleted())

    await api._end_deletions(storage.jobs)

    assert [] == storage.jobs.half_deleted()


async def test_an_api_starts_without_storage(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, and the deletions remain for the next start."""
    half_deleted(storage, monkeypatch)
    monkeypatch.setattr(storage.jobs, "delete", lambda job_id: 1 / 0)

    with caplog.at_level(logging.WARNING):
        await api._end_deletions(storage.jobs)

    assert "interrupted deletions not resumed, retrying: division by zero" in caplog.text
