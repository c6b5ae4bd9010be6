"""Names of jobs of other pools stay hidden from a caller who knows their ids."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from peloton.access.caller import Caller, CallerKind, Grant, Role
from peloton.api import error_details
from peloton.api.error_details import Trailing
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.errors import InvalidArgument, NotFound, PelotonError, ResourceExhausted
from services.access.access import Access, Authenticators
from services.access.caller import CALLER
from services.access.methods import make_rules
from services.access.pools import PoolFinder
from services.access.redaction_gate import Redact
from services.servers.grpc_errors import details_of, status_of, trailing_of

METHOD = "/peloton.api.v0.explain.ExplainService/JobWhy"
MINE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
REQUEST = explain_pb2.JobWhyRequest(jobId=JobID(value=MINE))


class TwoPools:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def paths_of_jobs(self, ids: list[str]) -> dict[str, str]:
        self.asked += ids
        return {job_id: path for job_id, path in ((MINE, "/a"), (OTHER, "/b")) if job_id in ids}


def answer_reader(behaviour: Any, method: str = METHOD, pools: TwoPools | None = None) -> Any:
    """Return the behaviour as the api calls it for a reader of one of the pools."""
    CALLER.set(Caller("rita", CallerKind.USER, grants=(Grant(Role.READER, "/a"),)))
    gate = Redact(Access(Authenticators()), make_rules({}), cast(PoolFinder, pools or TwoPools()))
    return gate.wrap(method, grpc.unary_unary_rpc_method_handler(behaviour)).unary_unary


async def test_an_id_within_a_request_reveals_no_name() -> None:
    """A request may have ids of other jobs in fields that its method does not read, or that no message has."""

    async def why(request: Any, context: Any) -> Any:
        return explain_pb2.JobWhyResponse(text="held by job canary", jobNames={OTHER: "canary"})

    request = explain_pb2.JobWhyRequest.FromString(REQUEST.SerializeToString() + b"\xfa\x7f\x24" + OTHER.encode())

    answer = explain_pb2.JobWhyResponse.FromString(await answer_reader(why)(request, None))

    assert OTHER.encode() in request.SerializeToString()
    assert "canary" not in str(answer)


async def test_the_answer_to_a_creation_takes_no_look_at_the_database() -> None:
    """The caller knows the job that it has created; a job that an error names is looked up."""
    exists = job_pb2.CreateResponse.Error(alreadyExists=job_pb2.JobAlreadyExists(id=JobID(value=OTHER)))
    answers = (
        job_pb2.CreateResponse(jobId=JobID(value=MINE)),
        job_pb2.CreateResponse(error=exists, jobId=JobID(value=OTHER)),
    )
    asked = []
    for found in answers:

        async def create(request: Any, context: Any, found: Any = found) -> Any:
            return found

        pools = TwoPools()
        await answer_reader(create, "/peloton.api.v0.job.JobManager/Create", pools)(job_pb2.CreateRequest(), None)
        asked.append(pools.asked)

    assert [[], [OTHER]] == asked


async def test_a_refusal_repeats_the_id_that_was_asked_for() -> None:
    """A refusal says no more about the job than the caller knew."""

    async def why(request: Any, context: Any) -> Any:
        raise NotFound(f"job {OTHER} does not exist, nor {MINE}")

    with pytest.raises(NotFound, match=OTHER):
        await answer_reader(why)(explain_pb2.JobWhyRequest(jobId=JobID(value=OTHER)), None)
    with pytest.raises(NotFound) as caught:
        await answer_reader(why)(REQUEST, None)
    assert OTHER not in str(caught.value)


class Sent(Exception):
    """The refusal that a context has sent."""

    def __init__(self, text: str, trailing: Trailing) -> None:
        super().__init__(text)
        self.text, self.trailing = text, trailing


class SendingContext:
    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Trailing = ()) -> None:
        raise Sent(details, trailing_metadata)

    def time_remaining(self) -> float:
        return 5.0


async def refuse_as_another_role(error: PelotonError, request: Any = REQUEST, more: Trailing = ()) -> Sent:
    """Return what a reader gets when another role has refused the call with an error, and the api passes it on."""

    async def forward(_: Any, context: Any) -> Any:
        assert context.time_remaining() == 5.0
        await context.abort(status_of(error), details_of(error), (*trailing_of(error), *more))

    with pytest.raises(Sent) as caught:
        await answer_reader(forward)(request, SendingContext())
    return caught.value


async def test_a_refusal_of_another_role_names_no_job_of_another_pool() -> None:
    """Text, details, metadata of the reason and other headers are redacted alike."""
    error = ResourceExhausted(f"pod {OTHER}-3-1 is in front of job {MINE}", 2.0).because(
        ResourceExhausted.reason, job=OTHER, rule="queue"
    )

    sent = await refuse_as_another_role(
        error, more=(("note", OTHER), ("unknown-bin", f"\xff{OTHER}".encode("latin-1")))
    )

    assert sent.text == f"a pod of another pool is in front of job {MINE}"
    assert OTHER not in str(sent.trailing)
    details = error_details.details_of(sent.trailing)
    assert (details.reason, details.metadata["rule"], details.retry_after_s) == (error.reason, "queue", 2.0)
    assert dict(sent.trailing)["grpc-retry-pushback-ms"] == "2000"


async def test_a_refusal_of_another_role_without_other_jobs_stays_byte_for_byte() -> None:
    """A refusal that repeats the id which was asked for stays as it is, too."""
    own = InvalidArgument(f"job {MINE} has no such pod")
    asked = NotFound(f"job {OTHER} not found")

    assert (await refuse_as_another_role(own)).trailing == trailing_of(own)
    sent = await refuse_as_another_role(asked, explain_pb2.JobWhyRequest(jobId=JobID(value=OTHER)))
    assert (sent.text, sent.trailing) == (asked.message, trailing_of(asked))
