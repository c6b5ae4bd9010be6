"""Parts of logs: windows of complete lines, a search of the complete file, and its download."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread, Timer
from time import sleep
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from peloton.api.mesos_access import OPEN
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from services.web import log_files, log_parts
from services.web.api import Api
from services.web.log_files import LogFile, LogFiles, log_names
from services.web.log_parts import LogParts, search
from tests.unit.web.test_logs import JOB, RUN, Pods

FOLDER = "/var/lib/mesos/runs/latest"


class Agent(Pods):
    """A Mesos agent that serves the same bytes, with one sandbox."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agent.urls.append(self.path)
                query = parse_qs(urlsplit(self.path).query)
                offset = int(query.get("offset", ["0"])[0])
                if self.path.startswith("/files/download"):
                    body = agent.whole
                elif offset < 0:
                    body = orjson.dumps({"data": "", "offset": len(agent.whole)})
                else:
                    data = agent.whole[offset : offset + int(query["length"][0])]
                    body = orjson.dumps({"data": data.decode(), "offset": offset})
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    async def BrowseSandbox(self, request: Any, timeout: float) -> task_pb2.BrowseSandboxResponse:
        host, port = self.server.server_address[:2]
        paths = [f"{FOLDER}/{name}" for name in ("stderr", "stdout", "app.log", "core.bin")]
        return task_pb2.BrowseSandboxResponse(hostname=str(host), port=str(port), paths=paths)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(params=["agent", "api"])
def pods(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 16)
    monkeypatch.setattr(log_parts, "CHUNK_BYTES", 16)
    monkeypatch.setattr(log_parts, "BEFORE_BYTES", 6)
    found = Agent() if request.param == "agent" else Pods()
    found.paths, found.states = [["proxy/stdout", "stdout"]], ["RUNNING"]
    yield found
    if isinstance(found, Agent):
        found.close()


@pytest.fixture
def client(pods: Pods) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=LogParts(LogFiles(cast(Api, pods), OPEN)).routes())) as found:
        yield found


def part(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/logs/{JOB}/0/part", params=query)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_parts_forward_and_back_are_whole_lines_that_join(client: TestClient, pods: Pods) -> None:
    """The parts in both directions add up to the same file, of which the page holds one part at a time."""
    pods.whole = "".join(f"line {number} é\n" for number in range(12)).encode()
    there, back, offset = list[dict[str, Any]](), list[dict[str, Any]](), 0
    while not there or not there[-1]["is_end"]:
        there.append(part(client, offset=offset))
        offset = there[-1]["end"]
    while offset:
        back.insert(0, part(client, offset=offset, way="back"))
        offset = back[0]["offset"]

    for parts in (there, back):
        assert pods.whole.decode() == "".join(each["text"] for each in parts)
        assert all(each["text"].endswith("\n") for each in parts if each["text"])
        assert all(len(each["text"].encode()) <= 16 for each in parts)


def test_a_part_around_a_byte_begins_with_its_line(client: TestClient, pods: Pods) -> None:
    """The part contains lines before the byte as well."""
    pods.whole = b"one\ntwo\nthree\nfour\nfive\n"

    assert ("two\nthree\nfour\n", 4) == ((found := part(client, offset=9, way="around"))["text"], found["offset"])


def test_a_line_that_is_longer_than_a_part_is_cut(client: TestClient, pods: Pods) -> None:
    """A part is empty only at the end of the file, so that every byte is reachable."""
    pods.whole = b"x" * 40 + b"\nend\n"

    assert 16 == len(part(client, offset=0)["text"])
    assert ("xxx", 16) == ((found := part(client, offset=32, way="back"))["text"][:3], found["offset"])
    assert "x" in part(client, offset=20, way="around")["text"]


def test_behind_the_end_there_is_nothing(client: TestClient, pods: Pods) -> None:
    """A file that was truncated is shorter than the page's offset."""
    pods.whole = b"short\n"

    assert {"offset": 99, "end": 99, "text": "", "is_end": True} == part(client, offset=99)


def test_the_whole_file_is_searched(client: TestClient, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ignores case and finds a match across two pieces; the answer counts all matches and lists some."""
    pods.whole = b"an Error here\nand an error\nERROR ERROR\n"
    monkeypatch.setattr(log_files, "STREAM_BYTES", 5)

    found = client.get(f"/logs/{JOB}/0/search", params={"text": "error"}).json()
    assert {"count": 4, "places": [3, 21, 27, 33], "searched": len(pods.whole), "is_whole": True} == found

    monkeypatch.setattr(log_parts, "PLACES_MAX", 2)
    found = client.get(f"/logs/{JOB}/0/search", params={"text": "error"}).json()
    assert (4, [3, 21]) == (found["count"], found["places"])


def test_a_search_stops_at_its_bound_and_says_so(
    client: TestClient, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says that the search stopped at its bound, since a file may have any size."""
    pods.whole = b"abcabcabcabc"
    monkeypatch.setattr(log_parts, "SEARCH_BYTES_MAX", 7)

    found = client.get(f"/logs/{JOB}/0/search", params={"text": "abc"}).json()
    assert {"count": 2, "places": [0, 3], "searched": 7, "is_whole": False} == found


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_place_is_counted_once() -> None:
    """A match at the end of a piece is not counted again in the next one."""
    found = await search(pieces_of(b"aaa", b"a", b"aaaa", b"b"), b"aa")

    assert (4, [0, 2, 4, 6]) == (found.count, found.places)


def test_a_file_is_downloaded_as_it_is(client: TestClient, pods: Pods) -> None:
    """The download has the file's bytes under the name of its run."""
    pods.whole = bytes(range(256)) * 3
    answer = client.get(f"/logs/{JOB}/0/download")

    assert pods.whole == answer.content
    assert f'attachment; filename="{RUN}-stdout.txt"' == answer.headers["content-disposition"]


def test_a_hostile_name_is_no_part_of_a_header(client: TestClient, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers and pods name files; what a header does not take is replaced."""
    monkeypatch.setattr(LogFiles, "require", lambda *_: asyncio.sleep(0))
    query = {"file": "\u4e2d\u6587.log", "run": 'x"; filename="evil.exe\r\nset-cookie: a=b'}
    answer = client.get(f"/logs/{JOB}/0/download", params=query)

    name = "x---filename--evil.exe--set-cookie--a-b---.log.txt"
    assert f'attachment; filename="{name}"' == answer.headers["content-disposition"]
    assert "set-cookie" not in answer.headers


def test_no_more_files_are_read_at_a_time_than_may_be(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search or download that has ended does not count towards the bound."""
    client.get(f"/logs/{JOB}/0/download")
    client.get(f"/logs/{JOB}/0/search?text=x")
    monkeypatch.setattr(log_parts, "READERS_MAX", 1)
    assert 200 == client.get(f"/logs/{JOB}/0/search?text=x").status_code
    monkeypatch.setattr(log_parts, "READERS_MAX", 0)
    for path in ("search?text=x", "download"):
        answer = client.get(f"/logs/{JOB}/0/{path}")
        assert (429, True) == (answer.status_code, "0 logs are searched" in answer.json()["message"])


def test_logs_of_a_run_have_names(client: TestClient, pods: Pods) -> None:
    """A sandbox has its logs, a pod on Kubernetes a file for each container."""
    expected = ["stdout", "stderr", "app.log"] if isinstance(pods, Agent) else ["stdout", "proxy/stdout"]

    assert {"run": RUN, "files": expected, "message": ""} == client.get(f"/logs/{JOB}/0/files").json()
    assert ["app.log"] == log_names(["a/app.log", "a/my app.log", "a/.gc.log", "a/app@1.log"], is_sandbox=True)
    assert log_files.LOGS_MAX == len(log_names([f"{number}.log" for number in range(99)], is_sandbox=True))


async def test_the_last_call_for_a_range_may_bring_it() -> None:
    """A host manager that skips the beginning of a file answers without bytes for a while."""
    pods, file = Pods(), LogFile(JOB, 0, RUN, "stdout", "stdout")
    skips = [b""] * (log_files.TRIES_MAX - 1)

    async def skip_first(request: Any, timeout: float) -> pod_svc_pb2.GetPodFileResponse:
        return pod_svc_pb2.GetPodFileResponse(data=skips.pop() if skips else b"0123456789")

    pods.GetPodFile = skip_first  # type: ignore[method-assign]
    files = LogFiles(cast(Api, pods), OPEN)

    assert (b"01234567", 108) == await files.read_range(file, 100, 108)


async def test_a_download_that_is_broken_off_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads from an agent ends at once; otherwise the loop's end would wait for it."""
    monkeypatch.setattr(log_files, "TIMEOUT_S", 600.0)
    reads, released = Event(), Event()
    read = HTTPResponse.read

    def note_read(response: HTTPResponse, amount: int) -> bytes:
        reads.set()
        return read(response, amount)

    monkeypatch.setattr(HTTPResponse, "read", note_read)

    class Stalled(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")
            released.wait()
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalled)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    giving_up = Timer(60, released.set)
    giving_up.start()
    host, port = server.server_address[:2]
    stream = LogFiles(cast(Api, Pods()), OPEN).stream(LogFile(JOB, 0, RUN, "stdout", "f", (str(host), int(port))))
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.to_thread(reads.wait)
    await asyncio.to_thread(sleep, 0.5)  # until the read has begun
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    was_released = released.is_set()
    giving_up.cancel()
    released.set()
    await asyncio.to_thread(server.shutdown)
    server.server_close()

    assert not was_released


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("part?offset=-1", 400),
        ("part?way=up", 400),
        ("part?file=none.log", 404),
        ("search?text=", 400),
        (f"search?text={'x' * 201}", 400),
        ("download?file=../passwd", 400),
    ],
)
def test_what_is_refused(path: str, status: int, client: TestClient) -> None:
    """Malformed numbers and names, and missing files, are refused."""
    assert status == client.get(f"/logs/{JOB}/0/{path}").status_code
