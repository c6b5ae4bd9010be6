"""Prefetching of images: on an endpoint, through the host manager, and without an endpoint."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.private import hostmgr_pb2_grpc
from peloton.errors import InvalidArgument, Unavailable
from peloton.model.host import PREFETCH_MAX, Prefetched
from peloton.model.ids import Hostname
from peloton.ports import ImagePrefetcher
from services.hostmgr import client as client_module
from services.hostmgr import image_prefetch
from services.hostmgr.client import HostManagerClient
from services.hostmgr.image_prefetch import CALLS_MAX, HttpPrefetcher, prefetcher
from services.hostmgr.servicer import HostsServicer
from services.servers.grpc_bounds import ReceiveOnThreads
from services.servers.grpc_requests import RequestsOfThreads
from tests.conformance.hostmgr.emulated import TIMEOUT_S, Emulated
from tests.conformance.hostmgr.world import wait
from tests.unit.hostmgr.mesos.sockets import Server

H0, H1 = Hostname("h0"), Hostname("h1")
Open = Callable[[str], ImagePrefetcher]


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Emulated]:
    cluster = Emulated(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def url(emulated: Emulated) -> str:
    return f"http://127.0.0.1:{emulated.cluster.port}/minicluster/images"


@pytest.fixture(params=["endpoint", "host manager"])
def open_at(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Make a port on the endpoint at a URL. An empty URL means no endpoint."""
    with ExitStack() as ends:

        def over_grpc(url: str) -> ImagePrefetcher:
            nothing: Any = None  # this call uses no other ports
            pool = ends.enter_context(ThreadPoolExecutor(2 * CALLS_MAX))
            server = grpc.server(pool, interceptors=[ReceiveOnThreads(), RequestsOfThreads()])
            servicer = HostsServicer(nothing, nothing, prefetcher(url), nothing, nothing)
            hostmgr_pb2_grpc.add_HostsServicer_to_server(servicer, server)
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            ends.callback(server.stop, None)
            channel = ends.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
            return HostManagerClient(lambda: channel)

        yield prefetcher if request.param == "endpoint" else over_grpc


def page(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return dict(json.load(answer))


def test_hosts_fetch_images(open_at: Open, url: str) -> None:
    """Each host fetches the requested images. A repeated request and a request for unknown hosts do no harm."""
    images = open_at(url)
    wanted = {"web:1": [H0, H1], "web:2": [H1, Hostname("gone")]}

    assert [Prefetched(4)] * 2 == [images.prefetch(wanted) for _ in range(2)]

    wait(lambda: not any(host["downloading"] for host in page(url)["hosts"].values()), "the end of downloads")
    found = page(url)
    assert {H0: ["web:1"], H1: ["web:1", "web:2"]} == {h: sorted(row["present"]) for h, row in found["hosts"].items()}
    assert 3 == found["counts"]["prefetched"]


def test_nothing_to_fetch(open_at: Open, url: str) -> None:
    """A request without images calls no endpoint."""
    assert Prefetched() == open_at(url).prefetch({})
    assert {} == page(url)["hosts"]


def test_no_host_to_ask(open_at: Open) -> None:
    """Images are not prefetched without an endpoint, and the caller learns that it need not ask again."""
    assert Prefetched(0, is_possible=False) == open_at("").prefetch({"web:1": [H0]})


def test_an_endpoint_that_is_away(open_at: Open) -> None:
    """The error names the endpoint that does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/images"
    with pytest.raises(Unavailable, match=f"image prefetch at {url}: .*refused"):
        open_at(url).prefetch({"web:1": [H0]})


def test_an_endpoint_that_refuses(open_at: Open, url: str) -> None:
    """The error contains the message of the endpoint."""
    with pytest.raises(Unavailable, match="HTTP 404 Expected /minicluster/agents"):
        open_at(f"{url}/other").prefetch({"web:1": [H0]})


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n"])
def test_an_endpoint_that_makes_no_sense(open_at: Open, answer: bytes) -> None:
    """A malformed answer is treated as an endpoint that does not respond."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)

    server = Server(serve)
    try:
        with pytest.raises(Unavailable, match="image prefetch at http"):
            open_at(f"http://{server.address}/").prefetch({"web:1": [H0]})
    finally:
        server.close()


def test_an_endpoint_that_hangs_holds_few_threads(open_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call above the limit of concurrent calls is refused at once, and all others are answered."""
    monkeypatch.setattr(image_prefetch, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(client_module, "PREFETCH_TIMEOUT_S", TIMEOUT_S)
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        arrived.release()
        go_on.wait(TIMEOUT_S)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = Server(serve)
    try:
        images = open_at(f"http://{server.address}/")
        with ThreadPoolExecutor(CALLS_MAX) as pool:
            calls = [pool.submit(images.prefetch, {"web:1": [H0]}) for _ in range(CALLS_MAX)]
            assert all(arrived.acquire(timeout=TIMEOUT_S) for _ in calls)
            with pytest.raises(Unavailable, match=f"{CALLS_MAX} calls are under way already"):
                images.prefetch({"web:1": [H0]})
            go_on.set()
            assert [Prefetched(1)] * CALLS_MAX == [call.result(TIMEOUT_S) for call in calls]
        assert Prefetched(1) == images.prefetch({"web:1": [H0]})
    finally:
        go_on.set()
        server.close()


@pytest.mark.parametrize("open_at", ["host manager"], indirect=True)
def test_the_bound_of_a_call(open_at: Open, url: str) -> None:
    """The refusal contains the numbers, and nothing is fetched."""
    reported = f"prefetch of {PREFETCH_MAX + 1} images on hosts: at most {PREFETCH_MAX} in one call"
    with pytest.raises(InvalidArgument, match=reported):
        open_at(url).prefetch({"web:1": [H0] * PREFETCH_MAX, "web:2": [H0]})
    assert {} == page(url)["hosts"]


@pytest.mark.parametrize("url", ["images", "file:///etc/hosts", "ftp://host/images", "http:///images"])
def test_addresses_that_cannot_be_meant(url: str) -> None:
    """An invalid address is reported at the start, with the address."""
    with pytest.raises(InvalidArgument, match=f"image prefetch at '{url}': want http://"):
        HttpPrefetcher(url)
