"""Terminals and logs of the web pages on every kind of cluster whose pods are processes. A few lines ask the driver in
place of role api."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient

from peloton.api.mesos_access import OPEN
from peloton.api.private import hostmgr_pb2
from peloton.api.respell import respell
from peloton.api.v0.access import access_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from services.hostmgr import messages
from services.hostmgr.driver import PodOnHost
from services.web.api import Api
from services.web.log_files import LogFiles
from services.web.log_parts import LogParts
from services.web.terminal import Terminals
from tests.conformance.driver.lab import Lab

LINES = 20_000
WRITES = f"seq {LINES}; echo last; exec sleep 600"


class ApiOfOnePod:
    def __init__(self, lab: Lab, pod: PodOnHost) -> None:
        self._driver, self._pod = lab.driver, pod
        self.access = self.tasks = self.pods = self

    async def Get(self, request: task_pb2.GetRequest, timeout: float) -> task_pb2.GetResponse:
        answer = task_pb2.GetResponse()
        answer.result.runtime.state = task_pb2.RUNNING
        answer.result.runtime.mesosTaskId.value = str(self._pod.pod_id)
        return answer

    async def OpenTerminal(self, request: Any, timeout: float) -> access_pb2.OpenTerminalResponse:
        return access_pb2.OpenTerminalResponse()

    async def BrowseSandbox(self, request: Any, timeout: float) -> task_pb2.BrowseSandboxResponse:
        found = await asyncio.to_thread(self._driver.sandbox, self._pod)
        host, _, port = found.address.rpartition(":")
        return task_pb2.BrowseSandboxResponse(
            hostname=host, port=port, paths=found.paths, containerId=found.container_id
        )

    async def GetPodFile(self, request: Any, timeout: float) -> pod_svc_pb2.GetPodFileResponse:
        read = self._driver.read_file
        piece = await asyncio.to_thread(read, self._pod, request.path, request.offset, request.follow)
        return pod_svc_pb2.GetPodFileResponse(data=piece.data, is_end=piece.is_end)

    async def ExchangeWithCommand(self, request: Any, timeout: float) -> pod_svc_pb2.ExchangeWithCommandResponse:
        asked, answer = hostmgr_pb2.ExchangeWithCommandRequest(), pod_svc_pb2.ExchangeWithCommandResponse()
        respell(request, asked)
        reported = await asyncio.to_thread(self._driver.exchange, self._pod, messages.exchange_from_wire(asked))
        respell(hostmgr_pb2.ExchangeWithCommandResponse(**reported._asdict()), answer)
        if reported.exit_code is not None:
            answer.exit_code = reported.exit_code
        return answer


@pytest.fixture
def pages(lab: Lab) -> tuple[TestClient, str]:
    """The pages of role web that show a pod, and the address of the pod in them."""
    if not lab.driver.capabilities.serves_files or not lab.cluster.runs_processes:
        pytest.skip("pods of this cluster are no processes")
    pod = lab.running(WRITES)
    api = cast(Api, ApiOfOnePod(lab, pod))
    routes = LogParts(LogFiles(api, OPEN)).routes()
    terminal = WebSocketRoute("/terminal/{job_id}/{instance:int}", Terminals(api, OPEN).serve)
    return TestClient(Starlette(routes=[*routes, terminal])), f"{pod.pod_id.job_id}/{pod.pod_id.instance_id}"


def test_a_terminal_has_the_size_of_its_page_and_ends_with_the_code_of_its_command(
    pages: tuple[TestClient, str],
) -> None:
    """More is written than a window, of which the page takes one piece after the other."""
    web, pod = pages
    typed = b"stty size; echo $TERM-$((6*7)); seq 100000; exit 3\r"
    written, reported = b"", dict[str, int]()
    with web, web.websocket_connect(f"/terminal/{pod}?rows=33&columns=99") as session:
        assert {"open": True} == session.receive_json()
        session.send_bytes(typed)
        while "exitCode" not in reported:
            message = session.receive()
            if data := message.get("bytes"):
                written += data
                session.send_json({"taken": len(data)})
            reported = json.loads(message.get("text") or "{}")

    assert 3 == reported["exitCode"]
    assert b"33 99\r\nxterm-256color-42\r\n1\r\n2\r\n" in written
    assert b"\r\n99999\r\n100000\r\n" in written


def test_a_log_is_searched_read_around_a_place_and_downloaded(lab: Lab, pages: tuple[TestClient, str]) -> None:
    """All of it is there, wherever the files of the cluster are."""
    web, pod = pages
    with web:
        lab.wait(lambda: web.get(f"/logs/{pod}/search?text=LAST").json().get("count") == 1, "its output")
        found = web.get(f"/logs/{pod}/search?text=LAST").json()
        around = web.get(f"/logs/{pod}/part?way=around&offset={found['places'][0]}").json()
        files = web.get(f"/logs/{pod}/files").json()["files"]
        whole = web.get(f"/logs/{pod}/download").text.splitlines()

    assert found["is_whole"]
    assert around["text"].endswith(f"\n{LINES}\nlast\n")
    assert "stdout" == files[0]
    assert [*map(str, range(1, LINES + 1)), "last"] == whole[-LINES - 1 :]
