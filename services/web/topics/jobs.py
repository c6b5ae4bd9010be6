"""A page of the table of jobs."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, Parse, ParseError

from peloton.api.v0.table import table_pb2
from peloton.errors import InvalidArgument
from services.web.api import TIMEOUT_S, Api

ASKED_CHARS_MAX = 8_000


async def look(api: Api, asked: str) -> Any:
    """The answer to ``asked``, a request of ListJobs in JSON. Nothing is counted: that is not done again and again."""
    if len(asked) > ASKED_CHARS_MAX:
        raise InvalidArgument(f"the filters have {len(asked)} characters, at most {ASKED_CHARS_MAX} are allowed")
    try:
        request = Parse(asked, table_pb2.ListJobsRequest())
    except ParseError as error:
        raise InvalidArgument(f"not a request of ListJobs: {error}") from error
    request.count = False
    return MessageToDict(await api.job_table.ListJobs(request, timeout=TIMEOUT_S))
