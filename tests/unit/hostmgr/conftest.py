"""Fixtures of the host manager's unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.hostmgr.hosts.host_owner import HostOwner


@pytest.fixture(scope="package", autouse=True)
def validation() -> Iterator[None]:
    """Validate the state of the hosts after each event."""
    HostOwner.validates = True
    yield
    HostOwner.validates = False
