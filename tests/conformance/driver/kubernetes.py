"""Clusters of Kubernetes for the suite: an apiserver, and nodes that it plays with."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from peloton.model.secret import Secret
from services.hostmgr.driver import ClusterDriver, PodOnHost, PodTemplate
from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.server import EmulatedKubernetes
from services.lab.kubernetes.settings import EmulatedKubernetesSettings
from services.lab.local.ports import PortReservations
from services.lab.shared.hosts import HostSpec
from services.lab.shared.processes import die_with_parent
from tests.conformance.driver.lab import LONG, Lab
from tests.kubernetes.client import MERGE, Client, login_of
from tests.kubernetes.deployment import host_manager_of
from tests.kubernetes.fake_kubelet import FakeKubelets

TIMEOUT_S = 180.0
_SETTINGS: dict[str, Any] = {"lost_node_s": 0.3, "log_retention_s": 3_600.0, "slack_period_s": 3_600.0}
_numbers = count(1)


class Plane(Protocol):
    """An apiserver that outlives its own processes."""

    @property
    def kubeconfig(self) -> Path: ...

    can_restart: bool

    def driver_kubeconfig(self, namespace: str) -> Path:
        """A kubeconfig of the user that a driver is, whose pods are in this namespace."""
        ...

    def restart(self) -> None:
        """Restart the apiserver with kill -9."""
        ...

    def close(self) -> None: ...


class SharedPlane:
    """A control plane that other users share."""

    can_restart = False

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """``folder``: for kubeconfigs of drivers."""
        self.kubeconfig, self._folder = kubeconfig, folder

    def driver_kubeconfig(self, namespace: str) -> Path:
        """A kubeconfig of a service account with the permissions of deploy/kubernetes, and no more."""
        return host_manager_of(self.kubeconfig, namespace, self._folder)

    def restart(self) -> None:
        raise AssertionError("others use this apiserver")

    def close(self) -> None:
        """Leave the plane running."""


class EmulatedPlane:
    """An emulated apiserver on a thread of its own, with nodes that run processes: they would end with it."""

    can_restart = False

    def __init__(self, folder: Path, hosts: tuple[HostSpec, ...]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        nodes = NodeSettings(folder / "nodes", hosts, usage_interval_s=0.1)
        self._server = EmulatedKubernetes(EmulatedKubernetesSettings(data_dir=folder, token="secret", nodes=nodes))
        self._do(self._server.start())

    @property
    def kubeconfig(self) -> Path:
        return self._server.kubeconfig

    def driver_kubeconfig(self, namespace: str) -> Path:
        """The kubeconfig of the plane's only user."""
        return self.kubeconfig

    def restart(self) -> None:
        raise AssertionError("its pods would end with it")

    def node(self, name: str, is_up: bool) -> None:
        async def act() -> None:
            assert self._server.nodes is not None
            (self._server.nodes.boot if is_up else self._server.nodes.stop)(name)

        self._do(act())

    def close(self) -> None:
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


class EmulatedProcess:
    """An emulated apiserver as a process of its own, without nodes."""

    can_restart = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = PortReservations()
        [self._port] = self._ports.take_any(1)
        self._process = self._begin()

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    def driver_kubeconfig(self, namespace: str) -> Path:
        """The kubeconfig of the plane's only user."""
        return self.kubeconfig

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "services.lab.kubernetes", "--nodes", "0"]
        command += ["--port", str(self._port), "--data", str(self._folder)]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        until_s = time.monotonic() + TIMEOUT_S
        while not self._is_ready():
            assert process.poll() is None, f"{command} has ended"
            assert time.monotonic() < until_s, f"{command} is not ready"
            time.sleep(0.02)
        return process

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK and self.kubeconfig.exists()
        except OSError:
            return False
        finally:
            connection.close()

    def restart(self) -> None:
        """Restart the apiserver with kill -9."""
        self._kill()
        self._process = self._begin()

    def close(self) -> None:
        self._kill()
        self._ports.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Machines(Protocol):
    """The nodes of a cluster, past its apiserver."""

    def lose(self, node: str) -> None: ...
    def bring_back(self, node: str) -> None: ...
    def close(self) -> None: ...


class EmulatedMachines:
    """Nodes of an emulated plane, which run processes."""

    def __init__(self, plane: EmulatedPlane) -> None:
        self._plane = plane

    def lose(self, node: str) -> None:
        self._plane.node(node, is_up=False)

    def bring_back(self, node: str) -> None:
        self._plane.node(node, is_up=True)

    def close(self) -> None:
        """Leave the nodes, which end with their apiserver."""


class RealMachine:
    """The node with the real kubelet, which tests share."""

    def lose(self, node: str) -> None:
        raise AssertionError(f"other tests use {node}, too")

    bring_back = lose

    def close(self) -> None:
        """Leave the node running."""


class MachineLab(Lab):
    """A command is the first process of its container, which the kernel spares a SIGTERM that it does not handle."""

    def template(
        self, command: str = LONG, cpu: float = 0.5, secrets: Sequence[Secret] = (), **task: Any
    ) -> PodTemplate:
        return super().template(command, cpu, secrets, **{"killGracePeriodSeconds": 1, **task})


class Kubernetes:
    """Nodes and a namespace of its own, on an apiserver that others may use too."""

    keeps_output_of_killed = False

    def __init__(self, plane: Plane, *, is_shared: bool = False, machine: bool = False, **settings: Any) -> None:
        """``is_shared``: others use the plane after it. ``machine``: its node is one with a real kubelet."""
        self._plane, self._is_shared = plane, is_shared
        self.can_lose_hosts, self.can_fail_over = True, plane.can_restart
        login = login_of(plane.kubeconfig)
        self.client = Client(login)
        self.namespace = f"driver-{os.getpid()}-{next(_numbers)}"
        self._nodes: list[str] = []  # of our making
        selector: tuple[tuple[str, str], ...] = ()
        self.machines: Machines
        if isinstance(plane, EmulatedPlane):
            self.runs_processes = self.hosts_answer = True
            self.machines = EmulatedMachines(plane)
        elif machine:
            self.runs_processes, self.hosts_answer, self.can_lose_hosts = True, False, False
            self.machines = RealMachine()
        else:
            self.runs_processes = self.hosts_answer = False
            selector = (("driver-suite", self.namespace),)
            self._nodes = [f"{self.namespace}-h{i}" for i in range(3)]
            self.machines = FakeKubelets(login, self._nodes, labels=dict(selector)).__enter__()
        self.settings = KubernetesSettings(
            str(plane.driver_kubeconfig(self.namespace)),
            namespace=self.namespace,
            node_selector=selector,
            **{**_SETTINGS, "volumes": f"/var/lib/{self.namespace}", **settings},
        )

    def driver(self) -> ClusterDriver:
        self._driver = ExternalPodsDriver(self.settings, lambda instances: {}, lambda runs: {})
        return self._driver

    def measure_slack(self) -> bool:
        if self.hosts_answer:
            self._driver.slack.run_round()
        return self.hosts_answer

    def lose_host(self, hostname: str) -> None:
        """Silences the kubelet of a host and waits until the node controller has noticed."""
        self.machines.lose(hostname)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now}
        self.patch(f"/api/v1/nodes/{hostname}/status", {"status": {"conditions": [ready]}})

    def bring_back_host(self, hostname: str) -> None:
        self.machines.bring_back(hostname)

    def taint(self, hostname: str, key: str, effect: str) -> None:
        """Add a taint to the taints that the node has."""
        path = f"/api/v1/nodes/{hostname}"
        taints = self.client.ask("GET", path).json()["spec"].get("taints", [])
        self.patch(path, {"spec": {"taints": [*taints, {"key": key, "effect": effect}]}})

    def fail_over(self) -> None:
        self.client.close()
        self._plane.restart()

    def patch(self, path: str, patch: dict[str, Any]) -> None:
        reply = self.client.ask("PATCH", path, patch, MERGE)
        assert reply.status == http.client.OK, reply.body

    def evict(self, pod: PodOnHost) -> int:
        """Evict a pod as a client that drains the node does; return the status of the answer."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod.pod_id}/eviction"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": str(pod.pod_id)}}
        return self.client.ask("POST", path, body).status

    def tear_down(self) -> None:
        """Pods first: nodes are deleted with nothing on them. Processes end with emulated nodes."""
        if isinstance(self._plane, EmulatedPlane):
            return
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        found = self.client.ask("GET", pods)
        for pod in found.json()["items"] if found.status == http.client.OK else ():
            self.client.ask("DELETE", f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def close(self) -> None:
        self.machines.close()
        for node in self._nodes:
            self.client.ask("DELETE", f"/api/v1/nodes/{node}")
        self.client.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.client.close()
        if not self._is_shared:
            self._plane.close()
