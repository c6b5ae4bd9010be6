"""Migrations and rebalancing are woken periodically: their workflows may be lost without a trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from services.revival import Revival
from workflows.policies import Policies


class EmptyTemporal:
    """A server that lists no workflow."""

    async def list_workflows(self, query: str, **options: Any) -> AsyncIterator[Any]:
        for nothing in ():
            yield nothing


async def woken_in_looks(others_period_s: float) -> int:
    """Return how often the others were woken in at least 20 polls."""
    woken, looks = 0, 0

    async def wake_others() -> None:
        nonlocal woken
        woken += 1

    def look() -> str:
        nonlocal looks
        looks += 1
        return ""

    temporal: Any = EmptyTemporal()
    waker: Any = None
    policies = Policies()
    revival = Revival(
        temporal, waker, policies, 0.001, current_version=look, wake_others=wake_others, others_period_s=others_period_s
    )
    async with asyncio.timeout(60):
        while looks < 20:
            await asyncio.sleep(0.001)
    await revival.close()
    return woken


async def test_others_are_woken_once_a_period() -> None:
    """Each poll may be the one that is due; none is before the period is over."""
    assert 19 <= await woken_in_looks(0.0)
    assert 0 == await woken_in_looks(3600.0)
