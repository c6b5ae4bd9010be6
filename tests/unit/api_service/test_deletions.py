"""Jobs whose deletion was broken off by the death of an api."""

from __future__ import annotations

import logging

import pytest

from peloton.model.job import JobState
from services import runtime
from services.storage.gateway import Gateway
from tests.conformance.storage import builders


def half_deleted(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that gets no further than its mark."""
    job_id = builders.a_job(gateway, 3)
    gateway.set_job_goal(job_id, JobState.KILLED, builders.NOW)
    builders.settle_all(gateway, job_id)
    writes = iter([gateway.db.write])
    with monkeypatch.context() as patch:
        patch.setattr(gateway.db, "write", lambda work: next(writes)(work))
        with pytest.raises(StopIteration):
            gateway.delete_job(job_id)


async def test_an_api_that_starts_goes_on_with_deletions(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of their jobs."""
    for _ in range(2):
        half_deleted(gateway, monkeypatch)
    assert 2 == len(gateway.broken_deletions())

    await runtime._end_deletions(gateway)

    assert [] == gateway.broken_deletions()


async def test_an_api_starts_without_storage(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then they are left to the next one."""
    half_deleted(gateway, monkeypatch)
    monkeypatch.setattr(gateway, "delete_job", lambda job_id: 1 / 0)

    with caplog.at_level(logging.WARNING):
        await runtime._end_deletions(gateway)

    assert "deletions that were broken off have not ended: division by zero" in caplog.text
