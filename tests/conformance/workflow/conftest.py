"""One dev server per test process, on a free port, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from services.local.temporal_server import DYNAMIC_CONFIG
from tests.workflow.server import STARTUP_TIMEOUT, TEMPORAL
from workflows.attributes import SEARCH_ATTRIBUTES


@contextmanager
def dev_server() -> Iterator[str]:
    """Its address."""
    environment = asyncio.run(
        WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL),
            dev_server_startup_timeout=STARTUP_TIMEOUT,
            search_attributes=SEARCH_ATTRIBUTES,
            dev_server_log_level="error",
            dev_server_extra_args=[word for value in DYNAMIC_CONFIG for word in ("--dynamic-config-value", value)],
        )
    )
    yield environment.client.service_client.config.target_host
    asyncio.run(environment.shutdown())


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    with dev_server() as address:
        yield address


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)
