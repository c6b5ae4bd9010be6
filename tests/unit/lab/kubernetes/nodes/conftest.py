"""Emulated nodes on a store, without an apiserver in front of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Event, Store
from services.lab.shared.clock import Clock
from services.lab.shared.hosts import HostSpec

WAIT_S = 180
NODE = "node-0"
_uids = itertools.count(1)


class NodesOnStore:
    """A store with emulated nodes; ``events`` holds all events of pods, the oldest first."""

    def __init__(self, folder: Path, store: Store, **more: Any) -> None:
        self.folder = folder
        self.store = store
        self.more = more
        self.clock = Clock(more.pop("time_scale", 1.0))
        hosts = more.pop("hosts", (HostSpec(NODE, cpus=4, mem=2048), HostSpec("node-1", cpus=4, mem=2048)))
        self.settings = NodeSettings(folder, hosts, **more)
        self.nodes = Nodes(self.settings, store, self.clock)
        self.events: list[Event] = []
        self._happened = asyncio.Event()
        self._subscription = store.watch("pods", self._saw)

    def _saw(self, event: Event) -> None:
        self.events.append(event)
        self._happened.set()

    async def start(self) -> None:
        self.clock.attach(asyncio.get_running_loop())
        await self.nodes.start()

    async def close(self) -> None:
        self._subscription.close()
        await self.nodes.close()
        self.clock.stop()

    def create(self, name: str, command: str = "true", node: str = NODE, **spec: Any) -> Json:
        """Create a pod that runs a command of the shell."""
        container = {"name": "main", "image": "busybox:1", "command": ["/bin/sh", "-c", command]}
        container |= spec.pop("container", {})
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{next(_uids)}"},
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "containers": [container, *spec.pop("more", ())],
                "terminationGracePeriodSeconds": 5,
                **spec,
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }
        return self.store.create("pods", body).body

    def delete(self, name: str, grace_s: int = 5) -> None:
        """Begin a graceful deletion, as an apiserver does."""
        body = self.body(name)
        metadata = {**body["metadata"], "deletionTimestamp": "soon", "deletionGracePeriodSeconds": grace_s}
        self.store.update("pods", {**body, "metadata": metadata})

    def body(self, name: str) -> Json:
        entry = self.store.get("pods", "default", name)
        assert entry is not None, f"{name} is gone"
        return entry.body

    def status(self, name: str) -> Json:
        found: Json = self.body(name)["status"]
        return found

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until events satisfy a condition."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                self._happened.clear()
                await self._happened.wait()

    async def ended(self, name: str) -> Json:
        """Wait for the last phase of a pod and return its status."""
        await self.until(lambda: self.status(name)["phase"] in ("Succeeded", "Failed"))
        return self.status(name)

    async def running(self, name: str) -> Json:
        await self.until(lambda: self.status(name)["phase"] == "Running")
        return self.status(name)

    async def gone(self, name: str) -> None:
        await self.until(lambda: self.store.get("pods", "default", name) is None)

    def history(self, name: str) -> list[tuple[str, ...]]:
        """Return the kind of each event of a pod, its phase, and the state and reason of each container."""
        return [
            (
                event.kind,
                event.body["status"]["phase"],
                *map(state_of, event.body["status"].get("containerStatuses", ())),
            )
            for event in self.events
            if event.body["metadata"]["name"] == name
        ]


def state_of(container: Json) -> str:
    """Return the state of a container as text: ``running`` or ``terminated Error 3``."""
    ((state, details),) = container["state"].items()
    words = [state, details.get("reason", ""), str(details.get("exitCode", ""))]
    return " ".join(word for word in words if word)


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {row["type"]: (row["status"], row.get("reason", "")) for row in status["conditions"]}


Start = Callable[..., Awaitable[NodesOnStore]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start nodes, on a store of their own unless one is given."""
    running: list[NodesOnStore] = []

    async def starter(store: Store | None = None, **more: Any) -> NodesOnStore:
        cluster = NodesOnStore(tmp_path / "data", store or Store(), **more)
        cluster.folder.mkdir(exist_ok=True)
        running.append(cluster)
        await cluster.start()
        return cluster

    yield starter
    for cluster in running:
        await cluster.close()
