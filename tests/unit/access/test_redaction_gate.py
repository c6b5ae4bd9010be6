"""Names of jobs of other pools stay hidden from a caller who knows their ids."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from peloton.access.caller import Caller, CallerKind, Grant, Role
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.errors import NotFound
from services.access.access import Access, Authenticators
from services.access.caller import CALLER
from services.access.methods import make_rules
from services.access.pools import PoolFinder
from services.access.redaction_gate import Redact

METHOD = "/peloton.api.v0.explain.ExplainService/JobWhy"
MINE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
REQUEST = explain_pb2.JobWhyRequest(jobId=JobID(value=MINE))


class TwoPools:
    async def paths_of_jobs(self, ids: list[str]) -> dict[str, str]:
        return {job_id: path for job_id, path in ((MINE, "/a"), (OTHER, "/b")) if job_id in ids}


def answer_reader(behaviour: Any) -> Any:
    """Return the behaviour as the api calls it for a reader of one of the pools."""
    CALLER.set(Caller("rita", CallerKind.USER, grants=(Grant(Role.READER, "/a"),)))
    gate = Redact(Access(Authenticators()), make_rules({}), cast(PoolFinder, TwoPools()))
    return gate.wrap(METHOD, grpc.unary_unary_rpc_method_handler(behaviour)).unary_unary


async def test_an_id_within_a_request_reveals_no_name() -> None:
    """A request may have ids of other jobs in fields that its method does not read, or that no message has."""

    async def why(request: Any, context: Any) -> Any:
        return explain_pb2.JobWhyResponse(text="held by job canary", jobNames={OTHER: "canary"})

    request = explain_pb2.JobWhyRequest.FromString(REQUEST.SerializeToString() + b"\xfa\x7f\x24" + OTHER.encode())

    answer = explain_pb2.JobWhyResponse.FromString(await answer_reader(why)(request, None))

    assert OTHER.encode() in request.SerializeToString()
    assert "canary" not in str(answer)


async def test_a_refusal_repeats_the_id_that_was_asked_for() -> None:
    """A refusal says no more about the job than the caller knew."""

    async def why(request: Any, context: Any) -> Any:
        raise NotFound(f"job {OTHER} does not exist, nor {MINE}")

    with pytest.raises(NotFound, match=OTHER):
        await answer_reader(why)(explain_pb2.JobWhyRequest(jobId=JobID(value=OTHER)), None)
    with pytest.raises(NotFound) as caught:
        await answer_reader(why)(REQUEST, None)
    assert OTHER not in str(caught.value)
