"""Commands of `peloton local` for hosts of several clusters, by the names that users type."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from peloton.errors import InvalidArgument
from services.lab.local.control import ControlServer, call, control_file

API_PORTS = [16_101, 16_102]
TOKEN = "of this cluster"


class Master(ThreadingHTTPServer):
    """Stands for the master of an emulated cluster: has its hosts and records the commands for them."""

    def __init__(self, *hosts: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hosts = hosts
        self.done: list[tuple[str, str]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        assert f"Bearer {TOKEN}" == self.headers["Authorization"]
        self.rfile.read(int(self.headers["Content-Length"]))
        *_, host, verb = unquote(self.path).split("/")
        is_known = host in server.hosts
        if is_known:
            server.done.append((verb, host))
        body = b"{}" if is_known else f"Unknown agent '{host}'".encode()
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Discard the message: a test has no log."""


@pytest.fixture
def masters() -> Iterator[dict[str, Master]]:
    started = {"local": Master("sim-0"), "west": Master("west-sim-0"), "west-b": Master("west-b-sim-0")}
    started["sim"] = Master("sim-sim-0")
    yield started
    for master in started.values():
        master.shutdown()
        master.server_close()


def local_cluster(masters: dict[str, Master], tmp_path: Path) -> Any:
    more = {name: master.address for name, master in masters.items() if name != "local"}
    return SimpleNamespace(
        api_ports=API_PORTS,
        data_dir=tmp_path,
        mesos=masters["local"].address,
        more_masters=more,
        parts={},
        settings=SimpleNamespace(mesos="", no_mesos=False),
        has_own_mesos=True,
        kubernetes=None,
        token=TOKEN,
    )


async def ask(
    masters: dict[str, Master], tmp_path: Path, action: str, name: str, port: int = API_PORTS[0]
) -> list[str]:
    async with ControlServer(local_cluster(masters, tmp_path)):
        return await asyncio.to_thread(call, port, action, name)


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("host", "cluster"),
    [("sim-0", "local"), ("west-sim-0", "west"), ("west-b-sim-0", "west-b"), ("sim-sim-0", "sim")],
)
async def test_a_host_is_found_in_its_cluster(
    host: str, cluster: str, masters: dict[str, Master], tmp_path: Path
) -> None:
    """A host is found in its cluster, also where its name begins with that of another cluster."""
    assert [f"host {host}: restart done"] == await ask(masters, tmp_path, "restart", host)

    done = {name: master.done for name, master in masters.items() if master.done}
    assert {cluster: [("stop", host), ("start", host)]} == done


@pytest.mark.parametrize(("action", "verb"), [("sicken", "degrade"), ("heal", "restore"), ("restore", "restore")])
async def test_old_names_of_actions(action: str, verb: str, masters: dict[str, Master], tmp_path: Path) -> None:
    """Actions that were renamed keep their old names."""
    assert [f"host sim-0: {verb} done"] == await ask(masters, tmp_path, action, "sim-0")

    assert [(verb, "sim-0")] == masters["local"].done


@pytest.mark.parametrize("name", ["a b", "h\u00f6st", "west-nosuch", "../x?y#z", ""])
async def test_an_unknown_name_is_reported(name: str, masters: dict[str, Master], tmp_path: Path) -> None:
    """Each unknown name is an error, whatever is in it."""
    with pytest.raises(InvalidArgument, match="no part or host has that name"):
        await ask(masters, tmp_path, "stop", name)


async def test_the_address_of_each_api_will_do(masters: dict[str, Master], tmp_path: Path) -> None:
    """The address of each api is accepted, not only that of the first; afterwards no file leads to any of them."""
    assert ["host sim-0: stop done"] == await ask(masters, tmp_path, "stop", "sim-0", port=API_PORTS[1])
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b'{"action": "stop", "name": "sim-0"}\n',
        b'{"action": "stop", "name": "sim-0", "token": 7}\n',
        b'["stop", "sim-0"]\n',
        b'{"action": "' + b"x" * 100_000 + b'"}\n',
    ],
    ids=["a web page", "no token", "no text", "no object", "too long"],
)
async def test_who_does_not_know_the_token_does_nothing(
    line: bytes, masters: dict[str, Master], tmp_path: Path
) -> None:
    """A request without the token, as from a page in a browser, is answered with an error, and no host is touched."""
    async with ControlServer(local_cluster(masters, tmp_path)):
        known = json.loads(control_file(API_PORTS[0]).read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", known["port"])
        try:
            writer.write(line)
            answer = json.loads(await reader.readline())
        finally:
            writer.close()

    assert ["error"] == list(answer)
    assert [] == masters["local"].done
