"""One dev server for all tests of this folder, which run in one process, on a free port, in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from services.lab.local.temporal_server import DYNAMIC_CONFIG
from tests.workflow.server import STARTUP_TIMEOUT, TEMPORAL
from workflows.attributes import SEARCH_ATTRIBUTES

WATCHED, RESTARTED, *VERSIONED = NAMESPACES = ["watched", "restarted", *(f"versioned-{number}" for number in range(6))]
"""Namespaces of tests that read or change what holds for all workers of a namespace."""
GROUP = pytest.mark.xdist_group("workflow-server")
FOLDER = f"{Path(__file__).parent}{os.sep}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(FOLDER):
            item.add_marker(GROUP)


@pytest.fixture(scope="package")
def temporal_address() -> Iterator[str]:
    config = [word for value in DYNAMIC_CONFIG for word in ("--dynamic-config-value", value)]
    namespaces = [word for name in NAMESPACES for word in ("--namespace", name)]
    environment = asyncio.run(
        WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL),
            dev_server_startup_timeout=STARTUP_TIMEOUT,
            search_attributes=SEARCH_ATTRIBUTES,
            dev_server_log_level="error",
            dev_server_extra_args=[*config, *namespaces],
        )
    )
    yield environment.client.service_client.config.target_host
    asyncio.run(environment.shutdown())


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)
