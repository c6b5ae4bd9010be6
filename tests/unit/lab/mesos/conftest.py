"""Clusters and schedulers that are stopped when the test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.lab.mesos.server import Minicluster
from tests.unit.lab.mesos.scheduler import CAPABILITIES, Scheduler, settings

Start = Callable[..., Awaitable[tuple[Minicluster, Scheduler]]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a minicluster and one subscribed scheduler."""
    running: list[tuple[Minicluster, Scheduler]] = []

    async def starter(
        capabilities: tuple[str, ...] = CAPABILITIES,
        acknowledge: bool = True,
        roles: list[str] | None = None,
        **more: Any,
    ) -> tuple[Minicluster, Scheduler]:
        cluster = Minicluster(settings(tmp_path / f"data{len(running)}", **more))
        await cluster.start()
        scheduler = Scheduler(cluster.port, acknowledge)
        running.append((cluster, scheduler))
        await scheduler.subscribe(capabilities, roles=roles or ["*"])
        return cluster, scheduler

    yield starter
    for cluster, scheduler in running:
        await scheduler.close()
        await cluster.stop()
