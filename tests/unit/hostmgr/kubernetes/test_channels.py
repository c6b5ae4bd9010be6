"""Commands in containers, over a WebSocket."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.channels import Command, CommandFailed, exit_code_of
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Refused
from tests.unit.hostmgr.kubernetes.scripted import CERTIFICATES, Asked, access_to, answer, api_of, run_scripted, status

POD = "/api/v1/namespaces/peloton/pods/p"
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-Websocket-Protocol: v5.channel.k8s.io\r\n\r\n"
)


def make_frame(payload: bytes, opcode: int = 2) -> bytes:
    """Return a frame as a server sends it: without a mask."""
    size = len(payload)
    length = bytes((size,)) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return bytes((128 | opcode,)) + length + payload


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_command_runs_to_its_end(has_tls: bool, tmp_path: Path) -> None:
    """The two outputs are separate, and the exit code is in the error channel."""
    tls = None
    if has_tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(CERTIFICATES / "server.pem")
    asked: list[Asked] = []
    failed = status(500, "NonZeroExitCode", "exit 3", causes=[{"reason": "ExitCode", "message": "3"}])

    def serve(one: Asked) -> Iterator[bytes]:
        asked.append(one)
        yield SWITCH + make_frame(b"\x01out")
        yield (
            make_frame(b"\x02err")
            + make_frame(b"", 9)
            + make_frame(b"\x01more")
            + make_frame(b"\x03" + orjson.dumps(failed))
            + make_frame(b"\x03\xe8", 8)
        )

    with run_scripted(serve, tls) as server:
        address = f"http{'s' if has_tls else ''}://{server.address}"
        api = ApiServer(access_to(address, tmp_path, **{"insecure-skip-tls-verify": has_tls}))
        command = Command(api, POD, "main", ["sh", "-c", "a b"], stdin=False, tty=False)
        out = err = b""
        code = None
        while code is None:
            more, errors, code = command.read(100, 5.0)
            out, err = out + more, err + errors
        command.close()
        api.close()

    assert (b"outmore", b"err", 3) == (out, err, code)
    assert "*/*" == asked[0].headers["accept"]  # a container runtime rejects clients that accept JSON alone
    query = parse_qsl(asked[0].path.partition("?")[2])
    assert [("command", "sh"), ("command", "-c"), ("command", "a b")] == query[-3:]
    assert {"container": "main", "stdin": "false", "stdout": "true", "stderr": "true", "tty": "false"} == dict(
        query[:-3]
    )


def test_a_command_that_is_refused() -> None:
    """The error has the message of the apiserver."""
    refused = answer(403, status(403, "Forbidden", "pods/exec is forbidden"))
    with (
        run_scripted(lambda asked: [refused]) as server,
        api_of(server) as api,
        pytest.raises(Refused, match="pods/exec is forbidden"),
    ):
        Command(api, POD, "main", ["ls"], stdin=False, tty=False)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x82\x80\0\0\0\0", "breaks the WebSocket protocol"),  # a server must not mask its frames
        (make_frame(b"\x03\xe8", 8), "closed the connection before the command ended"),
        (b"\x02\x02\x01a", "cuts its messages into frames"),
    ],
)
def test_frames_that_end_a_command(sent: bytes, why: str) -> None:
    """The command fails with the fault of the apiserver."""
    with run_scripted(lambda asked: [SWITCH + sent]) as server, api_of(server) as api:
        command = Command(api, POD, "main", ["ls"], stdin=False, tty=False)
        with pytest.raises(CommandFailed, match=why):
            command.read(100, 5.0)
        command.close()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"status": "Success"}, 0),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "137"}]}}, 137),
    ],
)
def test_exit_codes(said: dict[str, Any], code: int) -> None:
    """The exit code is read from the status of a kubelet."""
    assert code == exit_code_of(said)


def test_a_command_that_could_not_be_started() -> None:
    """The command has no exit code, and the message of the runtime."""
    with pytest.raises(CommandFailed, match="executable file not found"):
        exit_code_of({"status": "Failure", "message": "executable file not found in $PATH"})
