"""The drivers: on a cluster in memory; on Mesos as minicluster emulates it, without processes and with them, and on the
Mesos master that PELOTON_TEST_MESOS names (host:port; the framework is torn down after each test); on an emulated
Kubernetes that runs processes, on one whose kubelets only say so, and on a real control plane with such kubelets or,
with PELOTON_TEST_KUBELET, a real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import ClusterDriver
from services.hostmgr.mesos.driver import MesosDriver
from services.hostmgr.mesos.framework import MesosSettings
from services.lab.shared.hosts import HostSpec
from tests.conformance.driver.kubernetes import EmulatedPlane, EmulatedProcess, Kubernetes, MachineLab, SharedPlane
from tests.conformance.driver.lab import EXTENDED, Lab, lab_on
from tests.conformance.hostmgr.emulated import Emulated
from tests.conformance.hostmgr.link import Link
from tests.doubles.hostmgr.cluster import MemoryCluster, MemoryHost
from tests.doubles.hostmgr.driver import MemoryDriver
from tests.kubernetes.fixtures import MUST_HAVE_KUBELET, REAL_KUBERNETES
from tests.kubernetes.kubelet import Machine
from tests.nightly import NIGHTLY, nightly

MESOS = os.environ.get("PELOTON_TEST_MESOS", "")
OFFER_HOLD_S = 0.4


class InMemory:
    can_lose_hosts = can_fail_over = True
    runs_processes = hosts_answer = keeps_output_of_killed = False

    def __init__(self) -> None:
        capacity = replace(Resources.of(4, 2_048, 20_000), extended=EXTENDED)
        self._cluster = MemoryCluster(MemoryHost(Hostname(f"h{i}"), capacity, Resources.of(4)) for i in range(3))

    def driver(self) -> ClusterDriver:
        return MemoryDriver(self._cluster)

    def measure_slack(self) -> bool:
        return False

    def lose_host(self, hostname: str) -> None:
        self._cluster.lose(hostname)

    def bring_back_host(self, hostname: str) -> None:
        self._cluster.bring_back(hostname)

    def fail_over(self) -> None:
        self._cluster.fail_over()

    def tear_down(self) -> None:
        """Leave the cluster, which ends with the test."""

    close = tear_down


class Mesos:
    """Implements ``FrameworkRecords`` for its drivers, too."""

    def __init__(self, emulated: Emulated | None, master: tuple[str, int]) -> None:
        self._emulated, self._link = emulated, Link(master)
        self.can_lose_hosts = self.can_fail_over = emulated is not None
        self.runs_processes = emulated is None or not emulated.simulates
        self.hosts_answer = self.keeps_output_of_killed = True
        self._ids: dict[str, str] = {}
        self._driver: MesosDriver | None = None

    def framework_id(self, cluster: str) -> str | None:
        return self._ids.get(cluster)

    def set_framework_id(self, cluster: str, framework_id: str) -> None:
        self._ids[cluster] = framework_id

    def driver(self) -> ClusterDriver:
        # A task of an agent that has not registered with a new master counts as unknown at once.
        quick: dict[str, Any] = {
            "agents_period_s": 0.1,
            "agent_reregister_timeout_s": 0.0,
            "offer_hold_s": OFFER_HOLD_S,
        }
        self._driver = MesosDriver(MesosSettings(self._link.address, **quick), self)
        return self._driver

    @property
    def emulated(self) -> Emulated:
        assert self._emulated is not None, "this needs an emulated cluster"
        return self._emulated

    def measure_slack(self) -> bool:
        return False

    def lose_host(self, hostname: str) -> None:
        self.emulated.agent(hostname, "stop")

    def bring_back_host(self, hostname: str) -> None:
        self.emulated.agent(hostname, "start")

    def fail_over(self) -> None:
        self._link.down()
        self.emulated.fail_over()
        self._link.up()

    def tear_down(self) -> None:
        if self._driver is not None:
            with suppress(OSError):
                self._driver.send_all([{"type": "TEARDOWN"}])

    def close(self) -> None:
        self._link.close()
        if self._emulated is not None:
            self._emulated.close()


PARAMS = [
    *("memory", nightly("simulated"), "processes", "mesos", "kubernetes", nightly("fake-kubelets")),
    pytest.param("apiserver", marks=[REAL_KUBERNETES, NIGHTLY]),
    *([nightly("kubelet")] if MUST_HAVE_KUBELET else []),
]


@pytest.fixture(scope="session")
def emulated_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedProcess]:
    """Each test has a namespace and nodes of its own on it, and may kill it."""
    made = EmulatedProcess(tmp_path_factory.mktemp("kubernetes"))
    yield made
    made.close()


@pytest.fixture(params=PARAMS)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "mesos" and not MESOS:
        pytest.skip("PELOTON_TEST_MESOS names no Mesos master")
    cluster: InMemory | Mesos | Kubernetes
    if request.param == "memory":
        cluster = InMemory()
    elif request.param == "mesos":
        host, _, port = MESOS.rpartition(":")
        cluster = Mesos(None, (host, int(port)))
    elif request.param == "kubernetes":
        hosts = tuple(HostSpec(f"h{i}", extended=EXTENDED) for i in range(3))
        cluster = Kubernetes(EmulatedPlane(tmp_path / "kubernetes", hosts))
    elif request.param == "fake-kubelets":
        cluster = Kubernetes(request.getfixturevalue("emulated_process"), is_shared=True)
    elif request.param == "apiserver":
        cluster = Kubernetes(SharedPlane(request.getfixturevalue("kubernetes"), tmp_path))
    elif request.param == "kubelet":
        machine: Machine = request.getfixturevalue("machine")
        cluster = Kubernetes(SharedPlane(machine.plane.kubeconfig, tmp_path), machine=True)
    else:
        specs = [HostSpec(f"h{i}", revocable_cpus=4, extended=EXTENDED) for i in range(3)]
        emulated = Emulated(tmp_path / "minicluster", simulate=request.param == "simulated", hosts=specs)
        cluster = Mesos(emulated, emulated.target)
    with closing(cluster), lab_on(cluster, MachineLab if request.param == "kubelet" else Lab) as made:
        yield made
