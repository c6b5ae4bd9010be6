"""kill -9 of the host manager and of each part of a real control plane in the middle of a job, with all our roles."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from peloton.model.ids import JobId, PodId
from peloton.model.pod import TERMINAL, PodState
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell, temporary
from tests.kubernetes.client import Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.deployment import host_manager_of
from tests.kubernetes.fake_kubelet import ALLOCATABLE, FakeKubelets
from tests.kubernetes.fixtures import NEVER_S, running_control_plane
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("kubernetes-faults")]
NAMESPACE = "faults"
NODES = [f"{NAMESPACE}-{i}" for i in range(3)]
PODS, AT_A_TIME, CPU = 1_000, 300, 0.01
HOST_MANAGER = "hostmgr"


class Progress:
    """Counts of the pods of a job."""

    def __init__(self, cluster: Cluster, kubelets: FakeKubelets, client: Client, job: str) -> None:
        self._cluster, self._kubelets, self._client, self._job = cluster, kubelets, client, job

    def reach(self, what: Callable[[Progress], int], count: int) -> None:
        self._cluster.wait(lambda: what(self) >= count, f"{count} pods {what.__name__}")

    def created(self) -> int:
        """Pods that were ever on a node."""
        return len(self._kubelets.names)

    def ended(self) -> int:
        return self._cluster.counts(self._job).get("SUCCEEDED", 0)

    def deleted(self) -> int:
        there = self.there()
        return self.created() - len(there) if there is not None else 0

    def there(self) -> list[Json] | None:
        """Pods that the apiserver has; None while it does not respond."""
        with suppress(OSError, http.client.HTTPException):
            reply = self._client.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
            if reply.status == http.client.OK:
                found: list[Json] = reply.json()["items"]
                return found
        return None


KILLS = (
    (HOST_MANAGER, Progress.created, 100),
    ("kube-apiserver", Progress.created, 250),
    (HOST_MANAGER, Progress.ended, 350),
    ("etcd", Progress.created, 700),
    (HOST_MANAGER, Progress.deleted, 650),
    ("kube-controller-manager", Progress.ended, 850),
)
"""The processes to kill, and the moment: this many pods created, with a stored end, or deleted since the last kill."""


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A plane of this module's own. Nodes whose status updates fail while a part of it is down are not lost."""
    with running_control_plane(node_grace_s=NEVER_S) as found:
        yield found


@pytest.fixture
def kubelets(plane: ControlPlane) -> Iterator[FakeKubelets]:
    """Nodes with resources for more pods than the pool admits at a time."""
    with FakeKubelets(plane.login, NODES, allocatable={**ALLOCATABLE, "pods": str(PODS)}) as found:
        yield found


@pytest.fixture
def cluster(plane: ControlPlane, kubelets: FakeKubelets, tmp_path: Path) -> Iterator[Cluster]:
    """Pods are deleted soon after they ended, while others are created."""
    environment = {
        "PELOTON_KUBERNETES": str(host_manager_of(plane.kubeconfig, NAMESPACE, tmp_path)),
        "PELOTON_KUBERNETES_NAMESPACE": NAMESPACE,
        "PELOTON_KUBERNETES_LOG_RETENTION_S": "1",
    }
    with Cluster(temporary(tmp_path / "data", simulate=1, environment=environment)) as running:
        running.wait(lambda: running.capacity() == len(NODES) * int(ALLOCATABLE["cpu"]), "the nodes")
        yield running


def test_no_pod_is_forgotten_or_started_twice(plane: ControlPlane, kubelets: FakeKubelets, cluster: Cluster) -> None:
    """Each of 1,000 instances succeeds in one pod: no name is used twice, a run that is LOST never was a pod, and none
    is left at the end. By uid of what the nodes saw, by storage, and by what the apiserver has."""
    pool = cluster.pool("faults", cpu=AT_A_TIME * CPU)
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 0.2", cpu=CPU, memory=1))
    with Client(plane.login) as client:
        progress = Progress(cluster, kubelets, client, job)
        for victim, what, count in KILLS:
            progress.reach(what, count)
            assert progress.ended() < PODS, f"{victim} is killed too late"
            if victim == HOST_MANAGER:
                cluster.kill(victim)
            else:
                plane.kill(victim)
                plane.start(victim)
        assert "SUCCEEDED" == cluster.finish(job)
        cluster.wait(lambda: progress.there() == [], "the deletion of all pods")

    assert {"SUCCEEDED": PODS} == cluster.counts(job)
    assert 1 + sum(victim == HOST_MANAGER for victim, *_ in KILLS) == cluster.local.part(HOST_MANAGER).starts
    created, runs = Counter(kubelets.names.values()), runs_of(cluster, job)
    assert [] == [name for name, count in created.items() if count > 1]
    assert {name: [PodState.SUCCEEDED] for name in created} == {n: r for n, r in runs.items() if r != [PodState.LOST]}
    assert PODS == len(created)


def runs_of(cluster: Cluster, job: str) -> dict[str, list[PodState]]:
    """End of each run that was launched, as storage has them."""
    storage = Storage(cluster.local.database)
    try:
        found: dict[str, list[PodState]] = {}
        for instance in range(PODS):
            for event in storage.pods.events(JobId(job), instance, None, 0):
                ends = found.setdefault(str(PodId(JobId(job), instance, event.run_id)), [])
                ends += [event.state] if event.state in TERMINAL else []
        return found
    finally:
        storage.close()
