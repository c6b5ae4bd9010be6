"""The API client by itself."""

from typing import Any

import grpc
import pytest

from peloton.api.limits import RETRY_AFTER
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.client import HOSTMGR, JOBMGR, NO_RETRIES, Client, RetryPolicy, target
from peloton.errors import InvalidArgument
from tests.late_server import late_server
from tests.unit.cli.fake_api import FakeApi


def test_messages_beyond_the_default_limit() -> None:
    """Requests and answers may exceed gRPC's default of 4 MiB."""
    large = "x" * (5 * 2**20)
    server = FakeApi(options=[("grpc.max_receive_message_length", 2**28), ("grpc.max_send_message_length", 2**28)])
    try:
        server.answers["jobs.Create"] = [lambda request: job_pb2.CreateResponse(jobId=request.id)]
        with Client(server.address) as client:
            response = client.jobs.Create(job_pb2.CreateRequest(id=peloton_pb2.JobID(value=large)))
        assert len(large) == len(response.jobId.value)
    finally:
        server.stop()


def test_a_call_may_have_its_own_timeout(api: FakeApi) -> None:
    """The client's timeout is a default only."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    with Client(api.address, timeout_s=600) as client:
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), timeout=60)
    default, own = (call.time_left_s for call in api.calls)
    assert 300 < default
    assert 0 < own < 300


def test_services_with_addresses_of_their_own(api: FakeApi) -> None:
    """An override changes the address of one service; error messages name the address of the last call."""
    api.answers["hosts.QueryHosts"] = [host_svc_pb2.QueryHostsResponse()]
    with Client("127.0.0.1:1", overrides={HOSTMGR: api.address}) as client:
        client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())
        assert (api.address, "127.0.0.1:1") == (client.last_address, client.address_of(JOBMGR))


def test_a_call_keeps_its_own_headers(api: FakeApi) -> None:
    """Headers given with a call are added to the client's."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    with Client(api.address) as client:
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), metadata=(("username", "ann"),))
    assert ("ann", "proto") == (api.calls[0].headers["username"], api.calls[0].headers["rpc-encoding"])


def test_streams_carry_headers_and_deadline(api: FakeApi) -> None:
    """A finite stream has the client's deadline; a watch has none unless one is given."""
    api.answers["services.ListJobs"] = [[stateless_svc_pb2.ListJobsResponse()]]
    api.answers["watches.Watch"] = [[watch_svc_pb2.WatchResponse(watch_id="job_1")]]
    with Client(api.address, timeout_s=600) as client:
        assert 1 == len(list(client.services.ListJobs(stateless_svc_pb2.ListJobsRequest())))
        assert 1 == len(list(client.watches.Watch(watch_svc_pb2.WatchRequest())))
        assert 1 == len(list(client.watches.Watch(watch_svc_pb2.WatchRequest(), timeout=60)))
    listed, watched, bounded = api.calls
    assert ["peloton-jobmgr"] * 3 == [call.headers["rpc-service"] for call in api.calls]
    assert 0 < bounded.time_left_s < 300 < listed.time_left_s < 900
    assert watched.time_left_s is None or watched.time_left_s > 10**6


BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "9 jobs wait, the bound is 9: try again in 2.5 s", ((RETRY_AFTER, "2500"),))


class Waits:
    """A clock that moves only by sleeping and by calls."""

    def __init__(self, seconds: float, call_s: float = 0.0) -> None:
        """Store ``call_s``, the duration of each call in seconds."""
        self.slept_s: list[float] = []
        self.reported: list[str] = []
        self.retry = RetryPolicy(seconds, away_s=0, say=self.reported.append, clock=self.clock)
        self.call_s = call_s

    def clock(self) -> float:
        return sum(self.slept_s) + (1 + len(self.slept_s)) * self.call_s


def test_a_busy_server_is_asked_again(api: FakeApi) -> None:
    """The client retries after the delay that the server names, as long as the retry timeout permits."""
    api.answers["jobs.GetActiveJobs"] = [BUSY, BUSY, job_pb2.GetActiveJobsResponse()]
    waits = Waits(seconds=5)
    with Client(api.address, retry=waits.retry, sleep=waits.slept_s.append) as client:
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())

    assert ([2.5, 2.5], [BUSY[1], BUSY[1]]) == (waits.slept_s, waits.reported)


def test_calls_that_take_their_time_count(api: FakeApi) -> None:
    """The duration of slow calls counts towards the retry timeout."""
    api.answers["jobs.GetActiveJobs"] = [BUSY]
    waits = Waits(seconds=9.9, call_s=5)
    with Client(api.address, retry=waits.retry, sleep=waits.slept_s.append) as client, pytest.raises(grpc.RpcError):
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())

    assert [2.5] == waits.slept_s


@pytest.mark.parametrize(
    ("answer", "seconds", "slept_s"),
    [
        (BUSY, 4.9, [2.5]),
        (BUSY, None, []),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, "the answer is too large"), 60, []),
        ((grpc.StatusCode.UNAVAILABLE, "no leader", ((RETRY_AFTER, "1"),)), 60, []),
    ],
    ids=["patience ends", "no patience", "never possible", "another error"],
)
def test_other_refusals_are_raised(api: FakeApi, answer: Any, seconds: float | None, slept_s: list[float]) -> None:
    """The client raises the refusal after the timeout, without a timeout, and for codes that a retry cannot help."""
    api.answers["jobs.GetActiveJobs"] = [answer]
    waits = Waits(seconds or 0)
    retry = waits.retry if seconds else NO_RETRIES
    with Client(api.address, retry=retry, sleep=waits.slept_s.append) as client, pytest.raises(grpc.RpcError) as caught:
        client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())

    assert isinstance(caught.value, grpc.Call)
    assert (answer[0], answer[1]) == (caught.value.code(), caught.value.details())
    assert slept_s == waits.slept_s


def test_calls_go_round_all_addresses_that_answer(api: FakeApi) -> None:
    """The client calls both servers in turn, and leaves out an address that is down and a name that does not
    resolve."""
    other = FakeApi()
    try:
        for server in (api, other):
            server.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
        with Client(f"{api.address}, {other.address},no-such-host.invalid:1") as client:
            for _ in range(50):
                client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), wait_for_ready=True)
            both = (len(api.calls), len(other.calls))
            other.stop()
            for _ in range(10):
                client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), wait_for_ready=True)
    finally:
        other.stop()

    assert 50 == sum(both)
    assert min(both) > 0
    assert 60 == len(api.calls) + len(other.calls)


def test_a_server_that_is_slow_to_answer_is_waited_for(api: FakeApi) -> None:
    """A process without CPU time accepts connections without an answer; the client still counts it as reachable."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse(ids=[peloton_pb2.JobID(value="a")])]

    with late_server(api.address, 1.5) as address, Client(address, timeout_s=180) as client:
        answer = client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest())

    assert ["a"] == [job.value for job in answer.ids]


def test_one_address_is_taken_as_it_is() -> None:
    """gRPC itself resolves a single name at each connection."""
    assert "api.example.com:5397" == target("api.example.com:5397")
    assert "ipv4:127.0.0.1:1,127.0.0.1:2" == target("127.0.0.1:1,127.0.0.1:2")
    assert "a..b:1" == target(" a..b:1,")


@pytest.mark.parametrize("addresses", ["", ",", " , ", "localhost,127.0.0.1:1", "127.0.0.1:1,:2", "127.0.0.1:1,a:b"])
def test_what_is_no_address_is_reported(addresses: str) -> None:
    """An invalid address is an error that names the expected form."""
    with pytest.raises(InvalidArgument, match="want HOST:PORT"):
        target(addresses)
