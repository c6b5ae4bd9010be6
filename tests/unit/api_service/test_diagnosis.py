"""Diagnosis: a check that hangs or has a bug delays and hides no other one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from peloton.errors import Unavailable
from peloton.model.diagnosis import Check, CheckResult
from services.api.backlog import Bounds
from services.api.calls import Calls
from services.api.channels import AsyncLeaderChannels
from services.api.diagnosis import Diagnosis
from services.storage import migrate
from services.storage.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    url = f"sqlite:///{tmp_path / 'peloton.db'}"
    migrate.upgrade(url)
    return Storage(url)


async def run(storage: Storage, **more: Any) -> dict[str, Check]:
    calls, channels = Calls(), AsyncLeaderChannels(lambda _: None)

    async def no_problems() -> list[Any]:
        return []

    given = {"workflow_problems": no_problems, "expires_at": lambda: None, "check_s": 2.0, **more}
    diagnosis = Diagnosis(storage, channels, calls, Bounds(), **given)
    try:
        first, second = await asyncio.gather(diagnosis.run(), diagnosis.run())
    finally:
        await channels.close()
    assert first is second
    storage.close()
    return {one.name: one for one in first}


async def test_a_check_that_hangs_has_a_deadline(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a database that does not answer fails at its deadline, and all others have their results."""
    release = threading.Event()
    monkeypatch.setattr(storage.diagnosis, "broken_rules", release.wait)

    found = await run(storage, check_s=0.5)
    release.set()

    assert (CheckResult.FAIL, "no result within 0.5 s") == (
        found["rules between rows"].result,
        found["rules between rows"].text,
    )
    assert CheckResult.OK is found["schema"].result


async def test_errors_are_results(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an expected error is shown, and a bug is in the log."""

    def refuse() -> float:
        raise Unavailable("storage does not answer")

    async def break_down() -> list[Any]:
        raise KeyError("x")

    monkeypatch.setattr(storage.diagnosis, "clock_s", refuse)

    found = await run(storage, workflow_problems=break_down)

    assert "storage does not answer" == found["database"].text
    assert "KeyError: see the log of the api" == found["Temporal and workflows"].text
    assert CheckResult.FAIL is found["resmgr"].result


@pytest.mark.parametrize(
    ("expires_s", "result"),
    [(1_000.0 + 90 * 86_400, CheckResult.OK), (1_000.0 + 86_400, CheckResult.WARN), (999.0, CheckResult.FAIL)],
)
async def test_the_certificate_is_renewed_in_time(storage: Storage, expires_s: float, result: CheckResult) -> None:
    """A certificate that expires within two weeks is a warning, and an expired one a failure."""
    found = await run(storage, expires_at=lambda: expires_s, wall_s=lambda: 1_000.0)

    assert result is found["certificate of the api"].result
