"""Topic of a page of the job table."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, Parse, ParseError

from peloton.api.v0.table import table_pb2
from peloton.errors import InvalidArgument
from services.web.api import TIMEOUT_S, Api

ASKED_CHARS_MAX = 8_000


async def read(api: Api, asked: str) -> Any:
    """Return the answer to ``asked``, a ListJobs request in JSON, without counts, which are too expensive to poll."""
    if len(asked) > ASKED_CHARS_MAX:
        raise InvalidArgument(f"the filters have {len(asked)} characters, at most {ASKED_CHARS_MAX} are allowed")
    try:
        request = Parse(asked, table_pb2.ListJobsRequest())
    except ParseError as error:
        raise InvalidArgument(f"not a request of ListJobs: {error}") from error
    request.count = False
    return MessageToDict(await api.job_table.ListJobs(request, timeout=TIMEOUT_S))
