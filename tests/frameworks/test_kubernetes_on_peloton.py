"""A control plane of Kubernetes as services: each of its pods is killed, all are upgraded, and they are deleted."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from services.lab.local.ports import PortReservations
from tests.e2e.local import Cluster, temporary
from tests.frameworks.processes import processes_of
from tests.kubernetes.build import is_built, program
from tests.kubernetes.client import MERGE, Client, login_of
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes-on-peloton"
PORTS = 3
CALL_MAX_S, BACK_QUIET_S = 600.0, 120.0
"""A killed pod of a service runs again after 30 s."""
STORE, API = "etcd", "kube-apiserver"
IN_PAIRS = ("kube-controller-manager", "kube-scheduler")
PODS = {STORE: 1, API: 1, **dict.fromkeys(IN_PAIRS, 2)}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HELLO: dict[str, Any] = {
    "metadata": {"name": "hello"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "hello"}},
        "template": {
            "metadata": {"labels": {"app": "hello"}},
            "spec": {"containers": [{"name": "hello", "image": "hello"}]},
        },
    },
}


class Plane:
    """The control plane, by the commands of the example and a client of its apiserver."""

    def __init__(self, outer: Cluster, folder: Path, port: int) -> None:
        self.outer, self.data, self.port = outer, folder / "data", port

    def run(self, *words: str | Path) -> str:
        given = ["--address", self.outer.local.address, "--data", self.data, "--port", str(self.port)]
        return run(sys.executable, EXAMPLE / "run.py", *given, *words)

    def ask(self, method: str, path: str, *body: Any) -> dict[str, Any]:
        with Client(login_of(self.data / "kubeconfig")) as client:
            reply = client.ask(method, path, *body)
        assert reply.status in (http.client.OK, http.client.CREATED), reply.body
        return reply.json()

    def pods(self) -> dict[str, str]:
        """Return the phases of the pods by uid; none while the apiserver is away."""
        try:
            listed = self.ask("GET", "/api/v1/namespaces/default/pods")["items"]
        except (OSError, http.client.HTTPException):
            return {}
        return {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in listed}

    def await_running(self, count: int) -> dict[str, str]:
        """Wait until so many pods of the deployment run, and return them."""
        self.outer.wait(lambda: list(self.pods().values()) == ["Running"] * count, f"{count} pods run", BACK_QUIET_S)
        return self.pods()

    def scale(self, count: int) -> None:
        self.ask("PATCH", f"{DEPLOYMENTS}/hello", {"spec": {"replicas": count}}, MERGE)

    def processes(self) -> dict[str, list[int]]:
        request = stateless_svc_pb2.ListJobsRequest()
        jobs = [job for answer in self.outer.client.services.ListJobs(request) for job in answer.jobs]
        return {job.name: sorted(processes_of(job.job_id.value)) for job in jobs}

    def lose(self, *killed: int) -> None:
        for process in killed:
            os.kill(process, signal.SIGKILL)

    def await_back(self, *killed: int) -> None:
        def are_back() -> bool:
            found = self.processes()
            running = {process for each in found.values() for process in each}
            return {name: len(each) for name, each in found.items()} == PODS and running.isdisjoint(killed)

        self.outer.wait(are_back, "killed pods run again", BACK_QUIET_S)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_MAX_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    if not is_built():
        pytest.skip("no real Kubernetes is built: make kubernetes")
    taken = PortReservations()
    first = next(port for port in range(18_000, 18_900, PORTS) if all(taken.take(port + n) for n in range(PORTS)))
    taken.close()
    with Cluster(temporary(tmp_path / "outer")) as outer:
        peloton = [Path(sys.executable).parent / "peloton", "--address", outer.local.address]
        run(*peloton, "respool", "create", "/kubernetes", EXAMPLE / "pool.yaml")
        yield Plane(outer, tmp_path, first)


def test_it_survives_the_loss_of_each_pod_and_an_upgrade(plane: Plane, tmp_path: Path) -> None:
    """A deployment's pods stay, and it still scales, while each process is killed once and all are replaced."""
    assert "Kubernetes is up" in plane.run("--programs", program())
    with FakeKubelets(login_of(plane.data / "kubeconfig"), ["node0", "node1"]):
        plane.ask("POST", DEPLOYMENTS, HELLO)
        pods = plane.await_running(3)

        for part in (STORE, API):
            [process] = plane.processes()[part]
            plane.lose(process)
            plane.await_back(process)
            assert plane.await_running(3) == pods, f"after the loss of {part}"

        first = plane.processes()
        for number in range(2):
            killed = [first[part][number] for part in IN_PAIRS]
            plane.lose(*killed)
            plane.scale(4 + number)  # the other ones of the pairs take over
            pods = plane.await_running(4 + number)
            plane.await_back(*killed)

        before = plane.processes()
        new = tmp_path / "new"
        new.symlink_to(program())
        said = plane.run("--programs", new, "--upgrade")
        assert [f"{part}: updated" for part in PODS] == said.splitlines()[: len(PODS)]
        plane.await_back(*(process for each in before.values() for process in each))
        assert plane.await_running(5) == pods, "after the upgrade"
        plane.scale(2)
        plane.await_running(2)

    assert "Kubernetes is deleted" in plane.run("--delete")
    assert plane.processes() == {}
