"""Parts of a real control plane are killed while a driver runs pods on it."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest

from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import HostLaunch, PodOnHost
from tests.conformance.driver.kubernetes import Kubernetes, SharedPlane
from tests.conformance.driver.lab import ENDS, Lab
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
BATCHES = 10
BATCH = 100
HOSTS = 3
KILLED_IN_BATCH = {2: "kube-apiserver", 5: "etcd", 8: "kube-controller-manager"}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Its own: for a while after etcd was killed an apiserver fails at requests of others, too. Nodes that cannot say
    that they are well while it is away are not lost."""
    with running_control_plane(node_grace_s=3_600) as found:
        yield found


def test_no_pod_is_forgotten_or_started_twice(plane: ControlPlane, tmp_path: Path) -> None:
    """With kill -9 of each part in the middle of 1,000 pods every one that was launched ends well, once, and no name is
    used twice: by what the driver told, by what the nodes saw, and by what the apiserver has in the end."""
    cluster = Kubernetes(SharedPlane(plane.kubeconfig, tmp_path), node_pods=BATCH * BATCHES)
    assert isinstance(cluster.machines, FakeKubelets)
    lab = Lab(cluster)
    try:
        launches = Launches(lab, cluster)
        for batch in range(BATCHES):
            if part := KILLED_IN_BATCH.get(batch):
                launches.do(lambda part=part: plane.kill(part))  # type: ignore[misc]
                plane.start(part)
                lab.wait(lambda: lab.driver.is_connected and len(lab.events.hosts) == HOSTS, "the session")
            else:
                launches.do()
        launched, doubtful, ends = ids(launches.launched), ids(launches.doubtful), Ends(lab)
        lab.wait(lambda: ends.are_of(launched), "all ends")
        lab.reconcile(launches.doubtful)
        lab.wait(lambda: ends.are_of(doubtful, with_answers=True), "what became of those in doubt")

        assert BATCH * BATCHES == len(launches.launched) + len(launches.doubtful) + len(launches.given_back)
        assert not launches.given_back & {*launches.names()}
        assert [{PodState.SUCCEEDED}] * len(launched) == [ends.told[pod] for pod in launched]
        assert [] == [name for name, count in Counter(launches.names()).items() if count > 1]
        succeeded = {p for told in (ends.told, ends.answered) for p in told if PodState.SUCCEEDED in told[p]}
        assert doubtful & {*launches.names()} == doubtful & succeeded
        there = cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods").json()["items"]
        assert cluster.machines.names == {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in there}
        assert {"Succeeded": len(launched | doubtful & succeeded)} == Counter(pod["status"]["phase"] for pod in there)
    finally:
        cluster.tear_down()
        lab.close()
        cluster.close()


def test_pods_end_with_their_namespace_and_others_run_when_it_is_back(kubernetes: Path, tmp_path: Path) -> None:
    """While it is being deleted, and after it, a launch is refused to an account that may not make it again. Once the
    manifests are applied again launches succeed, in the same session."""
    shared = SharedPlane(kubernetes, tmp_path)
    cluster = Kubernetes(shared)
    lab = Lab(cluster)
    path = f"/api/v1/namespaces/{cluster.namespace}"
    try:
        pods = [lab.running() for _ in range(2)]
        sessions = lab.events.sessions

        cluster.client.ask("DELETE", path)

        assert not launched(lab)
        statuses = [lab.wait_for(pod, *ENDS).status for pod in pods]
        assert [Cause.REMOVED] * 2 == [status.cause for status in statuses if status is not None]
        lab.wait(lambda: cluster.client.ask("GET", path).status == http.client.NOT_FOUND, "no namespace")
        assert not launched(lab)
        shared.driver_kubeconfig(cluster.namespace)
        lab.wait(lambda: launched(lab), "its roles to hold")
        lab.running()
        lab.wait(lambda: not lab.driver.unready, "a driver that is ready")
        assert sessions == lab.events.sessions
    finally:
        cluster.tear_down()
        lab.close()
        cluster.close()


def launched(lab: Lab) -> bool:
    """Whether one more pod is."""
    return not lab.driver.launch([HostLaunch(lab.claim_of(cpu=0.5), [lab.pod(lab.template())])])


class Launches:
    """Batches of pods, and what their launches said."""

    def __init__(self, lab: Lab, cluster: Kubernetes) -> None:
        assert isinstance(cluster.machines, FakeKubelets)
        self._lab, self._kubelets = lab, cluster.machines
        self._template = lab.template("sleep 0.5", cpu=0.01)
        self._hosts = cycle(sorted(lab.events.hosts))
        self.launched: list[PodOnHost] = []
        self.doubtful: list[PodOnHost] = []
        self.given_back: set[str] = set()  # the room was gone: certainly not made

    def do(self, meanwhile: Callable[[], None] | None = None) -> None:
        """One batch; with ``meanwhile`` as soon as the first of its pods was seen."""
        claim = self._lab.claim_of(next(self._hosts), cpu=BATCH * 0.01)
        pods = [self._lab.pod(self._template) for _ in range(BATCH)]
        launch = HostLaunch(claim, pods)
        on_host = [PodOnHost(pod.pod_id, claim.hostname, claim.host_id) for pod in pods]
        names = {str(pod.pod_id) for pod in pods}
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self._lab.driver.launch, [launch])
            if meanwhile is not None:
                self._lab.wait(lambda: done.done() or names & {*self.names()}, "one of the batch")
                meanwhile()
            try:
                failed = {pod_id for pod_id, _ in done.result()}
            except OSError:
                self.doubtful += on_host
            else:
                self.given_back |= {*map(str, failed)}
                self.launched += [pod for pod in on_host if pod.pod_id not in failed]

    def names(self) -> list[str]:
        """Of every pod that was ever on a node."""
        return list(self._kubelets.names.copy().values())


def ids(pods: Iterable[PodOnHost]) -> set[str]:
    return {str(pod.pod_id) for pod in pods}


class Ends:
    """Of each pod, as they were told."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._read = lab, 0
        self.told: dict[str, set[PodState]] = {}
        self.answered: dict[str, set[PodState]] = {}

    def are_of(self, pods: Collection[str], *, with_answers: bool = False) -> bool:
        """Whether there is one of each."""
        for report in self._lab.events.reports[self._read :]:
            self._read += 1
            if report.state_text in ENDS:
                kind = self.answered if report.is_answer else self.told
                kind.setdefault(report.pod, set()).add(PodState(report.state_text))
        return all(pod in self.told or (with_answers and pod in self.answered) for pod in pods)
