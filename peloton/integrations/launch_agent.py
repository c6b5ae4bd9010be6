"""Launch agent of gangs: runs commands of the gang's first member in the pods of the others, as ssh would.

python -m peloton.integrations.launch_agent serve       run commands in this pod until ``stop``
python -m peloton.integrations.launch_agent run peer2 COMMAND...
python -m peloton.integrations.launch_agent hosts       print the pods that serve, as Horovod's discovery script
python -m peloton.integrations.launch_agent stop        end all that serve

Each pod serves at its own address of the gang. A caller proves that it has the key of the gang, a file that all pods
read. Commands have no standard input, and end with the connection of their caller.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

from peloton.files import write_private_file
from peloton.integrations.futures_worker import keep_alive

KEY_FILE = "PELOTON_LAUNCH_KEY_FILE"
PEER = "peer"
REFUSED = 255
"""Exit code of ``run`` when the member does not answer or refuses, as of ssh."""
CONNECT_MAX_S, RETRY_S = 120.0, 0.5
"""Bounds of the wait for a member that does not serve yet."""
HANDSHAKE_S, TERM_S = 30.0, 5.0
PROBE_S, PROBES_AT_ONCE = 2.0, 32
THREADS_MAX = 1_000
"""Threads of an agent, some for each connection; further callers are refused."""
REQUEST_BYTES_MAX, FRAME_BYTES_MAX = 1 << 20, 1 << 16
OUTPUT, ERRORS, EXIT = b"O", b"E", b"X"
"""Kinds of frames: a byte, a length or the exit code as four bytes, and the bytes of output."""
_FRAME = struct.Struct(">ci")


# -- the gang ------------------------------------------------------------------------------------------------------


def own_instance() -> int:
    return int(os.environ["PELOTON_INSTANCE_ID"])


def list_addresses() -> dict[int, str]:
    """Return the addresses of live pods by instance: from the environment, which has those of a gang that is not large,
    or from the API if the job has others too."""
    is_whole = os.environ["PELOTON_GANG_MAXIMUM"] == os.environ["PELOTON_GANG_MINIMUM"]
    if is_whole and (peers := os.environ.get("PELOTON_GANG_PEERS")):
        return dict(enumerate(peers.split(",")))
    from peloton.api.v0.gang import gang_pb2
    from peloton.client import Client

    request = gang_pb2.GetGangRequest()
    request.jobId.value = os.environ["PELOTON_JOB_ID"]
    with Client(os.environ["PELOTON_ADDRESS"]) as client:
        members = client.gangs.GetGang(request).members
    return {member.instanceId: f"{member.address}:{member.port}" for member in members if member.isLive}


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def read_key() -> bytes:
    """Return the key of the gang; the first caller draws it."""
    path = Path(os.environ[KEY_FILE])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another member was first
            write_private_file(path, secrets.token_hex(32).encode(), is_new=True)
    return path.read_bytes()


def sign(key: bytes, nonce: bytes, request: bytes) -> bytes:
    return hmac.new(key, nonce + request, hashlib.sha256).hexdigest().encode()


# -- the member that serves ----------------------------------------------------------------------------------------


class Agent(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, key: bytes) -> None:
        super().__init__(("", port), Connection)
        self.key = key
        self.commands: set[subprocess.Popen[bytes]] = set()

    def verify_request(self, request: object, client_address: object) -> bool:
        return threading.active_count() < THREADS_MAX

    def end_commands(self) -> None:
        """End all commands, which are in sessions of their own and would outlive the pod."""
        for command in list(self.commands):
            end(command)


def end(command: subprocess.Popen[bytes]) -> None:
    """Terminate the command with its children, and kill them if they do not end in time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if command.poll() is not None:
            return
        try:
            os.killpg(command.pid, number)
            command.wait(TERM_S)
        except ProcessLookupError:
            return  # it has ended since
        except subprocess.TimeoutExpired:
            continue


class Connection(socketserver.StreamRequestHandler):
    server: Agent

    def handle(self) -> None:
        self.connection.settimeout(HANDSHAKE_S)
        nonce = secrets.token_hex(16).encode()
        try:
            self.wfile.write(nonce + b"\n")
            line = self.rfile.readline(REQUEST_BYTES_MAX)
        except OSError:
            return  # a probe
        if not line:
            return
        proof, _, request = line.rstrip(b"\n").partition(b" ")
        if not hmac.compare_digest(proof, sign(self.server.key, nonce, request)):
            print(f"refused a caller without the key: {self.client_address[0]}", file=sys.stderr, flush=True)
            return
        self.connection.settimeout(None)
        keep_alive(self.connection)
        command = json.loads(request)["command"]
        if command is None:
            self.wfile.write(_FRAME.pack(EXIT, 0))
            threading.Thread(target=self.server.shutdown).start()
        else:
            self._run(command)

    def _run(self, command: str) -> None:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process:
            self.server.commands.add(process)
            watcher = threading.Thread(target=self._end_with_caller, args=(process,), daemon=True)
            watcher.start()
            turn = threading.Lock()
            streams = ((OUTPUT, process.stdout), (ERRORS, process.stderr))
            relays = [threading.Thread(target=self._relay, args=(*stream, turn)) for stream in streams]
            for relay in relays:
                relay.start()
            for relay in relays:
                relay.join()
            code = process.wait()
            self.server.commands.discard(process)
            self._send(_FRAME.pack(EXIT, code if code >= 0 else 128 - code), turn)

    def _relay(self, kind: bytes, stream: IO[bytes], turn: threading.Lock) -> None:
        while data := os.read(stream.fileno(), FRAME_BYTES_MAX):
            self._send(_FRAME.pack(kind, len(data)) + data, turn)

    def _send(self, frame: bytes, turn: threading.Lock) -> None:
        try:
            with turn:
                self.wfile.write(frame)
        except OSError:
            pass  # the caller has gone, and the command is ended

    def _end_with_caller(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the caller's connection ends, and end the command if it still runs."""
        try:
            while self.connection.recv(1):
                pass
        except OSError:
            pass
        end(process)


def serve() -> None:
    _, port = split_address(os.environ["PELOTON_GANG_ADDRESS"])
    with Agent(port, read_key()) as agent:
        print(f"{PEER}{own_instance()} takes commands at port {port}", flush=True)
        try:
            agent.serve_forever(poll_interval=0.2)
        finally:
            agent.end_commands()


# -- the member that calls -----------------------------------------------------------------------------------------


def call(address: str, command: str | None, wait_s: float) -> int:
    """Run the command there, or stop the agent if it is None, and return the exit code."""
    with connect(address, wait_s) as connection, connection.makefile("rb") as answers:
        request = json.dumps({"command": command}).encode()
        nonce = answers.readline(REQUEST_BYTES_MAX).rstrip(b"\n")
        connection.settimeout(None)
        keep_alive(connection)
        connection.sendall(sign(read_key(), nonce, request) + b" " + request + b"\n")
        while len(head := answers.read(_FRAME.size)) == _FRAME.size:
            kind, number = _FRAME.unpack(head)
            if kind == EXIT:
                return int(number)
            stream = sys.stdout if kind == OUTPUT else sys.stderr
            stream.buffer.write(answers.read(number))
            stream.flush()
    print(f"the agent at {address} has ended the connection", file=sys.stderr)
    return REFUSED


def connect(address: str, wait_s: float, timeout_s: float = HANDSHAKE_S) -> socket.socket:
    """Connect, again while the member does not serve yet. Raises OSError."""
    end_s = time.monotonic() + wait_s
    while True:
        try:
            return socket.create_connection(split_address(address), timeout_s)
        except OSError:
            if time.monotonic() >= end_s:
                raise
            time.sleep(RETRY_S)


def run(peer: str, command: Sequence[str]) -> int:
    """Run a command as ssh does: its words are joined, and a shell of the member runs them."""
    number = peer.removeprefix(PEER)
    if not number.isdecimal():
        print(f"unknown member '{peer}'; members are {PEER}0, {PEER}1 and so on", file=sys.stderr)
        return REFUSED
    text = " ".join(command)
    if int(number) == own_instance():
        return subprocess.run(["/bin/sh", "-c", text], stdin=subprocess.DEVNULL, check=False).returncode
    addresses = list_addresses()
    if int(number) not in addresses:
        print(f"{peer} is no live member of the gang, which has {len(addresses)}", file=sys.stderr)
        return REFUSED
    try:
        return call(addresses[int(number)], text, CONNECT_MAX_S)
    except OSError as error:
        print(f"{peer} at {addresses[int(number)]} does not answer: {error}", file=sys.stderr)
        return REFUSED


def list_hosts() -> list[str]:
    """Return the pods in which commands may run: the own one, and those that serve. One that starts or leaves would
    keep the others waiting."""

    def serves(address: str) -> bool:
        try:
            with connect(address, wait_s=0, timeout_s=PROBE_S):
                return True
        except OSError:
            return False

    addresses = list_addresses()
    others = sorted(addresses.keys() - {own_instance()})
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        answers = pool.map(serves, [addresses[instance] for instance in others])
        found = [instance for instance, answer in zip(others, answers, strict=True) if answer]
    return [f"{PEER}{instance}" for instance in sorted([own_instance(), *found])]


def stop() -> None:
    """Stop the agents of all other members; those that do not serve have ended already."""
    for instance, address in list_addresses().items():
        if instance != own_instance():
            try:
                call(address, None, wait_s=0)
            except OSError as error:
                print(f"{PEER}{instance} has ended already: {error}", file=sys.stderr)


def main(arguments: Sequence[str]) -> NoReturn:
    match arguments:
        case ["serve"]:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            serve()
        case ["hosts"]:
            print("\n".join(f"{host}:1" for host in list_hosts()))
        case ["stop"]:
            stop()
        case ["run", peer, *command] if command:
            sys.exit(run(peer, command))
        case _:
            sys.exit(f"usage: python -m {__spec__.name} serve | hosts | stop | run {PEER}N COMMAND...")
    sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
