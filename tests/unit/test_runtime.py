"""The composition root, for roles that need the API alone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from services import runtime
from services.settings import Settings, load


@pytest.fixture
def collector() -> Iterator[None]:
    """Disable the garbage collector, as the command line does before it loads roles; restore it afterwards."""
    thresholds = gc.get_threshold()
    gc.disable()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_roles_that_need_the_api_alone_collect_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector works while such roles run, without a database."""
    seen: dict[str, bool] = {}
    for role in runtime.CLIENTS:

        async def serve(
            settings: Settings, stop: asyncio.Event, serves: object, transport: object, role: str = role
        ) -> None:
            await asyncio.sleep(0.01)
            seen[role] = gc.isenabled()

        monkeypatch.setattr(f"services.{role}.server.run", serve)

    asyncio.run(runtime._run(load({"PELOTON_API": "127.0.0.1:1"}), [*runtime.CLIENTS], False))

    assert {"web": True, "aurorabridge": True} == seen
