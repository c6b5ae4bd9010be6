"""Aurora's API over HTTP: encodings, headers, and the errors of the transport and of methods."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest
from thriftpy2.thrift import TApplicationException

from peloton.errors import Unavailable
from services.aurorabridge import app, envelopes
from services.aurorabridge.backend import Backend
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api
from tests.unit.aurorabridge.calling import ENCODINGS, Encoding, client_of, details_of

OK, ERROR, INVALID = api.ResponseCode.OK, api.ResponseCode.ERROR, api.ResponseCode.INVALID_REQUEST
CONFIG = api.TaskConfig(
    isService=True,
    priority=-5,
    metadata=[api.Metadata(key="k", value="größe")],
    taskLinks={"log": "http://log"},
    resources=[api.Resource(numCpus=0.5), api.Resource(ramMb=2**40), api.Resource(namedPort="http")],
    constraints=[
        api.Constraint(name="host", constraint=api.TaskConstraint(limit=api.LimitConstraint(limit=1))),
        api.Constraint(
            name="rack", constraint=api.TaskConstraint(value=api.ValueConstraint(negated=False, values=["a", "b"]))
        ),
    ],
    container=api.Container(mesos=api.MesosContainer(volumes=[api.Volume(containerPath="/a", hostPath="/b", mode=1)])),
    requestedPorts=[],
)
UPDATE = api.JobUpdateRequest(
    taskConfig=CONFIG,
    instanceCount=3,
    settings=api.JobUpdateSettings(updateOnlyTheseInstances=[api.Range(first=0, last=2)], rollbackOnFailure=True),
)


async def echo(backend: Backend, arguments: Any) -> Any:
    """Return the request to update a job inside the answer of another method."""
    assert arguments.message == "why"
    group = api.ConfigGroup(
        config=arguments.request.taskConfig, instances=arguments.request.settings.updateOnlyTheseInstances
    )
    return api.Result(configSummaryResult=api.ConfigSummaryResult(summary=api.ConfigSummary(groups=[group])))


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=[*ENCODINGS])
def test_a_call_is_answered_in_its_encoding(encoding: Encoding) -> None:
    """Arguments arrive whole, and the answer has the encoding of the call."""
    body = encoding.write("startJobUpdate", request=UPDATE, message="why")

    answer = client_of(startJobUpdate=echo).post("/api", content=body, headers=encoding.headers("startJobUpdate"))

    assert 200 == answer.status_code
    assert answer.headers["content-type"] == (encoding.media_type or envelopes.BINARY)
    response = encoding.read("startJobUpdate", answer.content)
    [group] = response.result.configSummaryResult.summary.groups
    assert (OK, ["startJobUpdate"]) == details_of(response)
    assert (CONFIG, [api.Range(first=0, last=2)]) == (group.config, group.instances)


def failing(error: Exception) -> Any:
    async def method(backend: Backend, arguments: Any) -> Any:
        raise error

    return method


def rpc_error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)


REFUSALS = {
    "refusal": (Refusal("update id does not match current update", INVALID), INVALID, "update id does not match"),
    "default": (Refusal("constraint rack: no"), ERROR, "constraint rack: no"),
    "rpc": (rpc_error(grpc.StatusCode.UNAVAILABLE, "no api"), ERROR, "no api"),
    "ours": (Unavailable("away"), ERROR, "away"),
    "bug": (KeyError("x"), ERROR, "internal error: KeyError; see the log of role aurorabridge"),
}


@pytest.mark.parametrize(("error", "code", "text"), REFUSALS.values(), ids=[*REFUSALS])
@pytest.mark.parametrize("encoding", ["bare", "json"])
def test_a_refusal_of_a_method_is_an_answer(encoding: str, error: Exception, code: int, text: str) -> None:
    """The answer has status 200, the code, the method and the text."""
    used = ENCODINGS[encoding]
    client = client_of(getJobs=failing(error))

    answer = client.post("/api", content=used.write("getJobs", ownerRole="web"), headers=used.headers("getJobs"))

    assert 200 == answer.status_code
    found, details = details_of(used.read("getJobs", answer.content))
    assert (code, "getJobs") == (found, details[0])
    assert text in details[1]


TWELVE = [
    *("getRoleSummary", "getTasksStatus", "getPendingReason", "getQuota", "populateJobConfig", "createJob"),
    *("scheduleCronJob", "descheduleCronJob", "startCronJob", "restartShards", "addInstances", "replaceCronTemplate"),
]


@pytest.mark.parametrize("method", TWELVE)
def test_methods_that_the_original_lacks_are_refused_in_its_words(method: str) -> None:
    """The call itself fails: with another status, or as an exception of Thrift."""
    bare, binary = ENCODINGS["bare"], ENCODINGS["binary"]
    client = client_of()

    answer = client.post("/api", content=bare.write(method), headers=bare.headers(method))
    message = client.post("/api", content=binary.write(method), headers=binary.headers(method))

    assert (500, "rpc is unimplemented\n") == (answer.status_code, answer.text)
    assert 200 == message.status_code
    assert "rpc is unimplemented" == binary.read(method, message.content).message


def post_bare(content: bytes = b"\0", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client_of(getTierConfigs=failing(Refusal("reached"))).post("/api", content=content, headers=named)


TIERS = "ReadOnlyScheduler::getTierConfigs"
FAULTS = {
    "unknown method": ({"rpc_procedure": "ReadOnlyScheduler::nothing"}, 501, "there is no method"),
    "wrong service": ({"rpc_procedure": "ReadOnlyScheduler::killTasks"}, 501, "there is no method"),
    "unknown service": ({"rpc_procedure": "Other::getJobs"}, 501, "there is no method 'Other::getJobs'"),
    "no service": ({"rpc_procedure": "getJobs"}, 400, "want SERVICE::METHOD"),
    "other encoding": ({"rpc_procedure": TIERS, "rpc_encoding": "json"}, 415, "Rpc-Encoding is 'json', want thrift"),
    "no time": ({"rpc_procedure": TIERS, "context_ttl_ms": "0"}, 400, "Context-TTL-MS is '0', want milliseconds"),
    "odd time": ({"rpc_procedure": TIERS, "context_ttl_ms": "1s"}, 400, "Context-TTL-MS is '1s'"),
    "compressed": ({"rpc_procedure": TIERS, "content_encoding": "gzip"}, 415, "the body is compressed"),
    "a form": ({"content_type": "text/plain"}, 415, "the content type is 'text/plain', want one of"),
    "no headers": ({}, 415, "the content type is ''"),
    "a page": ({"rpc_procedure": TIERS, "origin": "http://evil"}, 403, "pages of browsers may not"),
    "no message": ({"content_type": envelopes.BINARY}, 400, "the body is no message of Thrift"),
}  # fmt: skip


@pytest.mark.parametrize(("headers", "status", "text"), FAULTS.values(), ids=[*FAULTS])
def test_errors_of_the_transport_are_statuses_with_a_text(headers: dict[str, Any], status: int, text: str) -> None:
    """Each has a status of HTTP other than 200 and says what is wrong."""
    answer = post_bare(**headers)

    assert status == answer.status_code
    assert text in answer.text


def test_both_services_have_the_methods_that_read() -> None:
    """The second service of Aurora has the methods of the first one, too."""
    for service in ("ReadOnlyScheduler", "AuroraSchedulerManager"):
        answer = post_bare(rpc_procedure=f"{service}::getTierConfigs")

        assert 200 == answer.status_code


def test_unknown_methods_of_messages_are_exceptions_of_thrift() -> None:
    """The exception has the type that Thrift's clients know."""
    json = b'[1,"nothing",1,7,{}]'

    answer = client_of().post("/api", content=json, headers={"content-type": envelopes.JSON})

    assert [1, "nothing", 3, 7] == answer.json()[:4]
    assert TApplicationException.UNKNOWN_METHOD == answer.json()[4]["2"]["i32"]


def test_a_call_ends_with_the_time_of_its_header() -> None:
    """Context-TTL-MS bounds the call; the method is cancelled."""
    cancelled = []

    async def wait(backend: Backend, arguments: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    headers = ENCODINGS["bare"].headers("getTierConfigs") | {"Context-TTL-MS": "50"}
    answer = client_of(getTierConfigs=wait).post("/api", content=b"\0", headers=headers)

    assert (504, "getTierConfigs has taken more than 0.05 s\n", [True]) == (answer.status_code, answer.text, cancelled)


def test_an_oversized_body_is_refused_before_it_is_read() -> None:
    """The length in the headers suffices."""
    headers = ENCODINGS["bare"].headers("getTierConfigs") | {"content-length": str(2**30)}

    answer = client_of().post("/api", content=b"\0", headers=headers)

    assert (413, f"the body has more than {app.BODY_BYTES_MAX:,} bytes\n") == (answer.status_code, answer.text)


async def test_calls_wait_for_those_that_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls beyond those that are carried out at a time wait, and those beyond the second bound are refused."""
    monkeypatch.setattr(app, "READS_MAX", 2)
    monkeypatch.setattr(app, "CALLS_HELD_MAX", 3)
    running, most, go = 0, 0, asyncio.Event()

    async def count(backend: Backend, arguments: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return None

    bridge = app.Bridge(Backend("127.0.0.1:1"), {"getTierConfigs": count})
    calls = [asyncio.create_task(status_of(bridge)) for _ in range(3)]
    while running < 2:
        await asyncio.sleep(0)
    refused = await status_of(bridge)
    go.set()

    assert (503, [200, 200, 200], 2) == (refused, await asyncio.gather(*calls), most)
    assert 200 == await status_of(bridge)  # all memory is free again


async def status_of(bridge: app.Bridge) -> int:
    headers = [
        (name.lower().encode(), text.encode()) for name, text in ENCODINGS["bare"].headers("getTierConfigs").items()
    ]
    scope = {"type": "http", "method": "POST", "path": "/api", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"\0", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await bridge(scope, receive, send)
    return int(sent[0]["status"])


async def test_answers_count_as_memory_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not fit is refused, and the memory of those that were sent is free again."""
    bridge = app.Bridge(Backend("127.0.0.1:1"), {"getTierConfigs": failing(Refusal("x" * 1000))})
    monkeypatch.setattr(app, "MEMORY_BYTES_MAX", 2000)
    statuses = [await status_of(bridge) for _ in range(3)]
    monkeypatch.setattr(app, "MEMORY_BYTES_MAX", 1000)

    assert ([200, 200, 200], 503) == (statuses, await status_of(bridge))
