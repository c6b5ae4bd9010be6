"""Copies of schedules, which are in Temporal alone: one line of JSON for each, as the server describes it."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message
from temporalio.api.common.v1 import Memo, SearchAttributes
from temporalio.api.schedule.v1 import Schedule
from temporalio.api.workflowservice.v1 import CreateScheduleRequest, DescribeScheduleRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from services.temporal.task_queues import RPC_TIMEOUT
from services.temporal.workflow_labels import SCHEDULE_TYPE
from workflows.attributes import TYPE

M = TypeVar("M", bound=Message)

NAME = "schedules.jsonl"
PAGE = 1_000
LINE_BYTES_MAX = 4 << 20


async def export(client: Client, folder: Path) -> int:
    """Write all schedules; return their number. Raises RPCError."""
    count = 0
    query = f"{TYPE.name} = '{SCHEDULE_TYPE}'"
    with (folder / NAME).open("w", encoding="ascii") as file:
        async for one in await client.list_schedules(query, page_size=PAGE, rpc_timeout=RPC_TIMEOUT):
            request = DescribeScheduleRequest(namespace=client.namespace, schedule_id=one.id)
            try:
                found = await client.workflow_service.describe_schedule(request, timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:  # deleted meanwhile
                    continue
                raise
            parts = {"schedule": found.schedule, "search_attributes": found.search_attributes, "memo": found.memo}
            line = {"id": one.id, **{name: _encode(part) for name, part in parts.items()}}
            file.write(json.dumps(line) + "\n")
            count += 1
    return count


async def load(client: Client, folder: Path) -> tuple[int, int]:
    """Create the missing schedules; return the number of created ones, and of existing ones. A time that was run before
    and after the backup has one job, as its id follows from schedule and time. Raises RPCError.
    """
    created = existing = 0
    with (folder / NAME).open(encoding="ascii") as file:
        while line := file.readline(LINE_BYTES_MAX):
            given = json.loads(line)
            request = CreateScheduleRequest(
                namespace=client.namespace,
                schedule_id=given["id"],
                schedule=_decode(Schedule, given["schedule"]),
                search_attributes=_decode(SearchAttributes, given["search_attributes"]),
                memo=_decode(Memo, given["memo"]),
                identity=client.identity,
                request_id=str(uuid.uuid4()),
            )
            try:
                await client.workflow_service.create_schedule(request, timeout=RPC_TIMEOUT)
                created += 1
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:
                    raise
                existing += 1
    return created, existing


def _encode(message: Message) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode(kind: type[M], text: str) -> M:
    message = kind()
    message.ParseFromString(base64.b64decode(text))
    return message
