"""The official time-skipping server of Temporal: a process for each test, on a free port, in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client, FetchWorkflowHistoryEventsInput, Interceptor, OutboundInterceptor
from temporalio.testing import WorkflowEnvironment

from tests.workflow.server import STARTUP_TIMEOUT
from workflows.attributes import SEARCH_ATTRIBUTES

SETTING = "PELOTON_TEST_SERVER"
INSTALLED = Path(sys.executable).parent / "temporal-test-server"


class _RepeatedPoll(Interceptor):
    """Polls again for the end of a workflow. This server ends a long poll without a page token, where others return
    one.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Patient(next)


class _Patient(OutboundInterceptor):
    def fetch_workflow_history_events(self, input: FetchWorkflowHistoryEventsInput) -> Any:
        events = super().fetch_workflow_history_events
        return _until_one(lambda: events(input)) if input.wait_new_event else events(input)


async def _until_one(poll: Any) -> AsyncIterator[Any]:
    found = False
    while not found:
        async for event in poll():
            found = True
            yield event


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a server of its own, whose clock jumps to the next timer while a result is awaited."""
    binary = Path(os.environ.get(SETTING) or INSTALLED)
    if not binary.is_file():
        pytest.skip(f"no time-skipping server at {binary}: name one by {SETTING}")
    environment = await WorkflowEnvironment.start_time_skipping(
        interceptors=[_RepeatedPoll()],
        test_server_existing_path=str(binary),
        test_server_startup_timeout=STARTUP_TIMEOUT,
    )
    async with environment:
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        attributes = {attribute.name: keyword for attribute in SEARCH_ATTRIBUTES}
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=environment.client.namespace, search_attributes=attributes)
        )
        yield environment.client
