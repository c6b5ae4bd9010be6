"""The mover of host pools over two emulated clusters of different kinds: Mesos and Kubernetes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from peloton.errors import Unavailable
from peloton.lifecycle.maintenance import Step
from peloton.model.ids import JobId
from peloton.model.job import JobType
from peloton.model.pod import PodState
from services.hostmgr.client import HostManagerClient
from services.hostmgr.mesos.driver import MesosDriver
from services.hostmgr.mesos.framework import MesosSettings
from services.lab.shared.hosts import HostSpec
from tests.conformance.driver.kubernetes import EmulatedPlane, Kubernetes
from tests.conformance.hostmgr.emulated import Emulated
from tests.conformance.hostmgr.test_host_moves import step
from tests.conformance.hostmgr.test_host_pools import CREATE, Manager, url
from tests.conformance.hostmgr.test_mover import POLICY, Moved, end
from tests.conformance.hostmgr.world import wait
from tests.conformance.storage import builders
from tests.present import require

__all__ = ["url"]


def hosts(prefix: str) -> tuple[HostSpec, ...]:
    return tuple(HostSpec(f"{prefix}{at}", cpus=10, mem=10_000, disk=10_000) for at in range(3))


def has_capacity(manager: Manager) -> bool:
    """Return whether all cpus of the cluster's hosts are free, which is unknown at first."""
    with suppress(Unavailable):
        return HostManagerClient(lambda: manager.channel).free()[0].cpu_milli == 30_000
    return False


@pytest.fixture
def moved(url: str, tmp_path: Path) -> Iterator[Moved]:
    """Two clusters in which e0 is for services and all others are for batch jobs."""
    mesos = Emulated(tmp_path / "minicluster", hosts=hosts("e"))
    kubernetes = Kubernetes(EmulatedPlane(tmp_path / "kubernetes", hosts("w")))
    address = f"127.0.0.1:{mesos.target[1]}"
    with closing(mesos), closing(kubernetes):
        east = Manager(url, "east", lambda storage: MesosDriver(MesosSettings(address), storage.hosts))
        west = Manager(url, "west", lambda _: kubernetes.driver())
        with closing(east), closing(west):
            for manager in (east, west):
                wait(partial(has_capacity, manager), f"the free resources of {manager.cluster}")
            east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"]))
            east.stub.CreateHostPool(CREATE(name="batch", serves=["batch", "shared"]))
            for host in ("e0", "e1", "e2", "w0", "w1", "w2"):
                require(east.controller).change(host, "default", "services" if host == "e0" else "batch")
            west.core.read_host_pools()
            yield Moved(east, west)


def test_hosts_of_kubernetes_are_drained_for_services_and_given_back(moved: Moved) -> None:
    """The hosts of Kubernetes, which have the fewest batch pods, are moved. Their pods are killed there, pods of the
    service run there, and later the hosts return to batch jobs."""
    east, west = moved.east, moved.by_cluster["west"]
    assert {"e1": 3, "e2": 3} == east.start(east.job(6, 3.0))
    batch = west.job(3, 6.0)
    assert {"w0": 1, "w1": 1, "w2": 1} == west.start(batch)
    running(west, batch, 3)
    service = east.job(6, 4.0, JobType.SERVICE)
    assert {"e0": 2} == east.start(service)
    moved.unplaced = [(service, east.place(service).why)]
    moved.switch(True)
    moved.turn()

    gone = moved.turn(POLICY.take_after_red_s)

    assert (2, True) == (len(gone), set(gone) < {"w0", "w1", "w2"})
    assert [Step.DRAIN, Step.RELABEL, Step.BRING_UP] == finish(moved, gone[0], batch)
    finish(moved, gone[1], batch)
    assert {"e0", *gone} == {host for host, pool in moved.pools().items() if pool == "services"}
    running(west, batch, 1)
    assert Counter(dict.fromkeys(gone, 2)) == west.start(service)
    running(west, service, 6)

    moved.unplaced = []
    end(moved, service)
    assert [] == moved.turn(POLICY.settle_s)
    assert set(gone) == set(moved.turn(POLICY.return_after_s))
    for host in gone:
        finish(moved, host, service)
    assert ["e0"] == [host for host, pool in moved.pools().items() if pool == "services"]


def running(manager: Manager, job_id: JobId, count: int) -> None:
    def is_so() -> bool:
        return sum(pod.state is PodState.RUNNING for pod in builders.pods(manager.storage, job_id)) == count

    wait(is_so, f"{count} running pods")


def finish(moved: Moved, host: str, leaving: JobId) -> list[Step]:
    """Take all steps of a move, and kills evicted pods as the workflow of their job does."""
    manager, taken = moved.by_cluster["west"], list[Step]()
    wait(lambda: manager.storage.maintenance.get(manager.cluster, host) is not None, f"{host} to move")

    def is_over() -> bool:
        due = step(manager, host)
        manager.core.kill_running(leaving)
        taken.extend([due] if due is not Step.NONE and due not in taken else [])
        return due is Step.NONE

    wait(is_over, f"{host} to arrive")
    return taken
