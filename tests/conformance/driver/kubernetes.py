"""Clusters of Kubernetes for the suite: an apiserver, and nodes that it plays with."""

from __future__ import annotations

import asyncio
import http.client
import threading
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import orjson

from services.emulated_kubernetes.server import EmulatedKubernetes
from services.emulated_kubernetes.settings import EmulatedKubernetesSettings
from services.hostmgr.driver import ClusterDriver
from services.hostmgr.kubernetes.driver import KubernetesDriver
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.kubernetes.client import MERGE, Client, login_of
from tests.kubernetes.deployment import host_manager_of
from tests.kubernetes.fake_kubelet import FakeKubelets

PATIENCE_S = 60.0
_numbers = count(1)


class Plane(Protocol):
    """An apiserver that outlives its own processes."""

    @property
    def kubeconfig(self) -> Path: ...

    @property
    def can_restart(self) -> bool: ...

    def driver_kubeconfig(self, namespace: str) -> Path:
        """Of the user that a driver is, whose pods are in this namespace."""
        ...

    def restart(self) -> None:
        """With kill -9."""
        ...

    def close(self) -> None: ...


class SharedPlane:
    """Others use it too."""

    can_restart = False

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """``folder``: for kubeconfigs of drivers."""
        self.kubeconfig, self._folder = kubeconfig, folder

    def driver_kubeconfig(self, namespace: str) -> Path:
        """Of a service account that may do what deploy/kubernetes allows it, and no more."""
        return host_manager_of(self.kubeconfig, namespace, self._folder)

    def restart(self) -> None:
        raise AssertionError("others use this apiserver")

    def close(self) -> None:
        """It is closed by who made it."""


class EmulatedPlane:
    """An emulated apiserver on a thread of its own."""

    can_restart = True

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._folder = folder
        self._server = self._begin(0)

    @property
    def kubeconfig(self) -> Path:
        return self._server.kubeconfig

    def driver_kubeconfig(self, namespace: str) -> Path:
        """It has one user."""
        return self.kubeconfig

    def _begin(self, port: int) -> EmulatedKubernetes:
        server = EmulatedKubernetes(EmulatedKubernetesSettings(data_dir=self._folder, port=port, token="secret"))
        self._do(server.start())
        return server

    def restart(self) -> None:
        port = self._server.port
        self._do(self._server.stop())
        self._server = self._begin(port)

    def close(self) -> None:
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


class Kubernetes:
    """Nodes and a namespace of its own, on an apiserver that others may use too."""

    runs_processes = False
    keeps_output_of_killed = False

    def __init__(self, plane: Plane, **settings: Any) -> None:
        self._plane = plane
        self.can_lose_hosts, self.can_fail_over = True, plane.can_restart
        login = login_of(plane.kubeconfig)
        self.client = Client(login)
        self.namespace = f"driver-{next(_numbers)}"
        labels = {"driver-suite": self.namespace}
        self.nodes = FakeKubelets(login, [f"{self.namespace}-h{i}" for i in range(3)], labels=labels)
        self.nodes.__enter__()
        self.settings = KubernetesSettings(
            str(plane.driver_kubeconfig(self.namespace)),
            namespace=self.namespace,
            node_selector=tuple(labels.items()),
            **{"lost_node_s": 0.3, "log_retention_s": 60.0, **settings},
        )

    def driver(self) -> ClusterDriver:
        return KubernetesDriver(self.settings)

    def lose_host(self, hostname: str) -> None:
        """Its kubelet is silent, and the controller of nodes has noticed."""
        self.nodes.lose(hostname)
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        self.patch(f"/api/v1/nodes/{hostname}/status", {"status": {"conditions": [ready]}})

    def bring_back_host(self, hostname: str) -> None:
        self.nodes.bring_back(hostname)

    def fail_over(self) -> None:
        self._plane.restart()

    def patch(self, path: str, patch: dict[str, Any]) -> None:
        reply = self.client.ask("PATCH", path, patch, MERGE)
        assert reply.status == http.client.OK, reply.body

    def tear_down(self) -> None:
        """Pods first: nodes are deleted with nothing on them."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        found = self.client.ask("GET", pods)
        for pod in found.json()["items"] if found.status == http.client.OK else ():
            options = orjson.dumps({"gracePeriodSeconds": 0})
            self.client.ask("DELETE", f"{pods}/{pod['metadata']['name']}", options)

    def close(self) -> None:
        self.nodes.close()
        for node in self.nodes.nodes:
            self.client.ask("DELETE", f"/api/v1/nodes/{node}")
        self.client.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.client.close()
        self._plane.close()
