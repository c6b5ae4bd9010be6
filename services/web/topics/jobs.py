"""Topic with one page of the job table."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, Parse, ParseError

from peloton.api.v0.table import table_pb2
from peloton.errors import InvalidArgument
from services.web.api import TIMEOUT_S, Api

REQUEST_CHARS_MAX = 8_000


async def read(api: Api, request_json: str) -> Any:
    """Return the answer to a ListJobs request in JSON. Counts are left out: they are too expensive to poll."""
    if len(request_json) > REQUEST_CHARS_MAX:
        raise InvalidArgument(
            f"the filters have {len(request_json)} characters, at most {REQUEST_CHARS_MAX} are allowed"
        )
    try:
        request = Parse(request_json, table_pb2.ListJobsRequest())
    except ParseError as error:
        raise InvalidArgument(f"not a ListJobs request in JSON: {error}") from error
    request.count = False
    return MessageToDict(await api.job_table.ListJobs(request, timeout=TIMEOUT_S))
