"""Logs and use of pods that run as processes of emulated nodes."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from peloton.model.ids import PodId
from services.emulated_kubernetes.nodes.settings import NodeSettings
from services.emulated_kubernetes.server import EmulatedKubernetes
from services.emulated_kubernetes.settings import EmulatedKubernetesSettings
from services.emulation.hosts import HostSpec
from services.hostmgr.kubernetes.access import read_access
from services.hostmgr.kubernetes.log_readers import LogReaders
from services.hostmgr.kubernetes.logs import PodLogs
from services.hostmgr.kubernetes.use import NodeUse
from services.hostmgr.kubernetes.wire import ApiServer, Request
from tests.unit.hostmgr.mesos.sockets import PATIENCE_S

PODS = "/api/v1/namespaces/default/pods"
NODE = "node-0"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Of a cluster with one node."""
    folder = tmp_path_factory.mktemp("emulated")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    nodes = NodeSettings(folder / "nodes", (HostSpec(NODE, cpus=4, mem=2048),))
    server = EmulatedKubernetes(EmulatedKubernetesSettings(folder, token="secret", nodes=nodes))
    do(server.start())
    api = ApiServer(read_access(str(server.kubeconfig)))
    yield api
    api.close()
    do(server.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def run(api: ApiServer, command: str) -> str:
    """A new pod of ours; its name."""
    name = f"{uuid.uuid4()}-0-1"
    container = {"name": "main", "image": "busybox:1", "command": ["/bin/sh", "-c", command]}
    spec = {"nodeName": NODE, "restartPolicy": "Never", "containers": [container]}
    made = api.ask(Request("POST", PODS, orjson.dumps({"metadata": {"name": name}, "spec": spec})))
    assert made.status == 201, made.message
    return name


def wait(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if is_so():
            return
        pause.wait(0.02)
    raise AssertionError("waited in vain")


def test_a_log_is_followed_to_the_end_of_its_container(api: ApiServer, tmp_path: Path) -> None:
    """What is written comes while the container runs, and the end is said once it has ended."""
    go_on = tmp_path / "go-on"
    pod = run(api, f"echo one; while [ ! -e {go_on} ]; do sleep 0.05; done; echo two >&2; exit 3")
    logs = PodLogs(api, "default")
    readers = LogReaders(logs)
    wait(lambda: logs.files(pod) == ("stdout",))
    text, is_end = b"", False
    while b"one\n" not in text:
        text += readers.read(pod, "stdout", len(text), follow=True).data
    go_on.touch()
    while not is_end:
        data, is_end = readers.read(pod, "stdout", len(text), follow=True)
        text += data
    readers.close()

    assert b"one\ntwo\n" == text
    assert (b"two\n", True) == readers.read(pod, "stdout", 4, follow=False)
    assert b"two\n" == logs.tail(pod, 4)


def test_what_pods_of_a_node_use(api: ApiServer) -> None:
    """Under their ids; processor time grows."""
    pod = run(api, "while true; do :; done")
    use = NodeUse(api, "default", lambda node: ())

    def used_s() -> float:
        [found] = [one.cpu_s for one in use.samples_of(NODE) if one.pod_id == PodId.parse(pod)] or [0.0]
        return found

    wait(lambda: used_s() > 0.1)
    api.ask(Request("DELETE", f"{PODS}/{pod}?gracePeriodSeconds=0"))
