"""One dev server for all tests of this folder, which run in one process, on a free port, in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from services.lab.local.temporal_server import DYNAMIC_CONFIG
from tests.temporal_server import temporal_server
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
    with temporal_server([*config, *namespaces], [attribute.name for attribute in SEARCH_ATTRIBUTES]) as address:
        yield address


@pytest.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)
