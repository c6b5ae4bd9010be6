"""The emulated Mesos alone: its rate of status updates to a plain client."""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from typing import Any

import orjson

from services.hostmgr.mesos.wire import EventStream, Pipe
from tests.bench.figures import status_kib
from tests.ports import free_ports

TARGET_UPDATES_PER_S = 5_000
TARGET_MEMORY_MIB = 1_500
UNDER_WAY_MAX = 5_000
"""Tasks that have been launched and have not ended."""
TASKS_PER_HOST = 4
TIMEOUT_S = 300.0
SUBSCRIBE: dict[str, Any] = {
    "type": "SUBSCRIBE",
    "subscribe": {"framework_info": {"user": "root", "name": "bench", "role": "*", "failover_timeout": 60.0}},
}


def minicluster_updates(host_count: int = 50_000, task_count: int = 100_000) -> dict[str, Any]:
    """Tasks that end at once: two updates each, every one acknowledged."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        command = ["services.lab.mesos", "--port", str(port), "--data", folder, "--simulate", str(host_count)]
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it listens, and its agents are there
            client = Client(f"127.0.0.1:{port}", task_count)
            before_s = cpu_s(process.pid)
            seconds = client.run()
            used_s = cpu_s(process.pid) - before_s
            memory_mib = status_kib("VmHWM", process.pid) // 1024
        finally:
            process.kill()
            process.communicate()
    rate = client.update_count / seconds
    ratio = max(TARGET_UPDATES_PER_S / rate, memory_mib / TARGET_MEMORY_MIB)
    return {
        "hosts": host_count,
        "tasks": task_count,
        "ended": client.ended_count,
        "updates": client.update_count,
        "seconds": round(seconds, 1),
        "updates_per_second": round(rate),
        "cpu_us_per_update": round(used_s / client.update_count * 1e6),
        "peak_memory_mib": memory_mib,
        "ratio_to_target": round(ratio, 2),
    }


def cpu_s(process: int) -> float:
    with open(f"/proc/{process}/stat") as line:
        fields = line.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Client:
    """Framework on one thread, which reads all messages and answers them together, in a loop."""

    def __init__(self, address: str, task_count: int) -> None:
        self._address = address
        self._stream = EventStream(address, _request(address, SUBSCRIBE))
        self._task_count = task_count
        self._framework = ""
        self._offers: deque[dict[str, Any]] = deque()
        self.launched_count = self.ended_count = self.update_count = 0

    def run(self) -> float:
        """Return the seconds from the first launch to the last acknowledgement."""
        began_s = time.monotonic()
        first_s, pipe = 0.0, Pipe(self._address)
        try:
            while self.ended_count < self._task_count:
                assert time.monotonic() - began_s < TIMEOUT_S, f"{self.ended_count} of {self._task_count} tasks ended"
                select.select([self._stream.sock], [], [], 1.0)
                calls = self._read()
                first_s = first_s or (time.monotonic() if self._offers else 0.0)
                calls += self._launches()
                bodies = [orjson.dumps({"framework_id": {"value": self._framework}, **call}) for call in calls]
                refused = [answer for answer in pipe.post(bodies, self._stream.headers["mesos-stream-id"]) if answer]
                assert not refused, refused[0]
            return time.monotonic() - first_s
        finally:
            pipe.close()
            self._stream.close()

    def _read(self) -> list[dict[str, Any]]:
        """Return the acknowledgements of the messages."""
        calls: list[dict[str, Any]] = []
        records, is_open = self._stream.read()
        assert is_open, self._stream.error
        for record in records:
            event = orjson.loads(record)
            match event["type"]:
                case "SUBSCRIBED":
                    self._framework = event["subscribed"]["framework_id"]["value"]
                case "OFFERS":
                    self._offers.extend(event["offers"]["offers"])
                case "UPDATE":
                    status = event["update"]["status"]
                    assert status["state"] in ("TASK_RUNNING", "TASK_FINISHED"), status
                    self.update_count += 1
                    self.ended_count += status["state"] == "TASK_FINISHED"
                    acknowledge = {key: status[key] for key in ("agent_id", "task_id", "uuid")}
                    calls.append({"type": "ACKNOWLEDGE", "acknowledge": acknowledge})
        return calls

    def _launches(self) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        while self._offers and self.launched_count < min(self._task_count, self.ended_count + UNDER_WAY_MAX):
            offer = self._offers.popleft()
            count = min(TASKS_PER_HOST, self._task_count - self.launched_count)
            tasks = [_task(self.launched_count + number, offer["agent_id"]) for number in range(count)]
            self.launched_count += count
            accept = {
                "offer_ids": [offer["id"]],
                "operations": [{"type": "LAUNCH", "launch": {"task_infos": tasks}}],
                "filters": {"refuse_seconds": 0},
            }
            calls.append({"type": "ACCEPT", "accept": accept})
        return calls


def _task(number: int, agent_id: dict[str, str]) -> dict[str, Any]:
    amounts = {"cpus": 1, "mem": 64}
    resources = [{"name": name, "type": "SCALAR", "scalar": {"value": amount}} for name, amount in amounts.items()]
    return {
        "name": "bench",
        "task_id": {"value": f"task-{number}"},
        "agent_id": agent_id,
        "resources": resources,
        "command": {"value": "true"},
    }


def _request(address: str, call: dict[str, Any]) -> bytes:
    body = orjson.dumps(call)
    head = f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    return f"{head}Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
