"""Endpoint of load balancers."""

from __future__ import annotations

from typing import Any, cast

from starlette.testclient import TestClient

from services.aurorabridge.app import create_app
from services.aurorabridge.server import HEALTH


def test_bridge_that_serves_is_healthy() -> None:
    """The path of the original's processes answers 200, and needs neither role api nor a method."""
    client = TestClient(create_app(cast(Any, None), {}, [HEALTH]))
    assert (200, "OK\n") == (client.get("/health").status_code, client.get("/health").text)
