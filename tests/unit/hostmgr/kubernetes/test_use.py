"""Usage of the pods of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from peloton.model.ids import PodId
from services.hostmgr.driver import UseSample
from services.hostmgr.kubernetes.apiserver.wire import Json, Refused
from services.hostmgr.kubernetes.nodes.use import METRICS, METRICS_AGE_MAX_S, REFUSAL_KEPT_S, NodeUse
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

SUMMARY = "/api/v1/nodes/node-1/proxy/stats/summary"
OURS = "3c8a3c3e-bd1c-4d0b-a2ad-5b1a1a6a1a10-2-1"
AT_S = 1_893_456_000.0  # 2030-01-01


def cpu(seconds: float, time: str = "2030-01-01T00:00:00Z") -> Json:
    return {"time": time, "usageNanoCores": 1, "usageCoreNanoSeconds": int(seconds * 1e9)}


def memory(mib: int) -> Json:
    return {"workingSetBytes": mib * 2**20, "usageBytes": mib * 2**21}


def pod(namespace: str, name: str, **measured: Any) -> Json:
    return {"podRef": {"namespace": namespace, "name": name, "uid": f"u-{name}"}, **measured}


class Cluster:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: list[str] = []
        self.answers: dict[str, bytes] = {}

    def serve(self, asked: Asked) -> Iterator[bytes]:
        self.asked.append(asked.path)
        yield self.answers.get(asked.path, answer(403, status(403, "Forbidden", "not for you")))

    def metrics(self, second: int, cpu: str, memory: str) -> None:
        item = {
            "metadata": {"namespace": "peloton", "name": OURS},
            "timestamp": f"2030-01-01T00:00:{second:02}Z",
            "containers": [{"usage": {"cpu": cpu, "memory": memory}}, {"usage": {"cpu": "0", "memory": "1Mi"}}],
        }
        elsewhere = {**item, "metadata": {"namespace": "x", "name": "on-another-node"}}
        self.answers[METRICS] = answer(200, {"items": [item, elsewhere]})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def use(cluster: Cluster) -> Iterator[NodeUse]:
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        yield NodeUse(api, "peloton", lambda node: [("peloton", OURS), ("x", "new")], lambda: cluster.now_s)


def test_a_kubelet_counts_pods_or_their_containers(cluster: Cluster, use: NodeUse) -> None:
    """Pods of Peloton have their id; an unmeasured pod is left out."""
    containers = [{"cpu": cpu(1), "memory": memory(10)}, {"cpu": cpu(2, "2030-01-01T00:00:03Z"), "memory": memory(5)}]
    pods = [
        pod("peloton", OURS, cpu=cpu(4.5), memory=memory(100)),
        pod("kube-system", "dns", containers=containers),
        pod("peloton", "no-run-of-ours", cpu=cpu(1)),
        pod("peloton", "begins", containers=[{}]),
    ]
    cluster.answers[SUMMARY] = answer(200, {"pods": pods})

    assert [
        UseSample(f"peloton/{OURS}", PodId.parse(OURS), 4.5, AT_S, 100),
        UseSample("kube-system/dns", None, 3.0, AT_S, 15),
        UseSample("peloton/no-run-of-ours", None, 1.0, AT_S, 0),
    ] == use.samples_of("node-1")


def test_without_the_right_to_ask_kubelets_metrics_are_added_up(cluster: Cluster, use: NodeUse) -> None:
    """A rate becomes a counter; all nodes share one answer, and kubelets are read again later."""
    pod_id = PodId.parse(OURS)
    cluster.metrics(0, "250m", "63Mi")
    assert [UseSample(f"peloton/{OURS}", pod_id, 0.0, AT_S, 64)] == use.samples_of("node-1")
    cluster.metrics(20, "500m", "31Mi")
    assert [UseSample(f"peloton/{OURS}", pod_id, 0.0, AT_S, 64)] == use.samples_of("node-1")
    cluster.now_s += METRICS_AGE_MAX_S
    assert [UseSample(f"peloton/{OURS}", pod_id, 10.0, AT_S + 20, 32)] == use.samples_of("node-1")
    assert [SUMMARY, METRICS, METRICS] == cluster.asked
    cluster.now_s += REFUSAL_KEPT_S
    use.samples_of("node-1")
    assert [SUMMARY, METRICS] == cluster.asked[3:]


def test_without_any_measure_there_is_an_error(cluster: Cluster, use: NodeUse) -> None:
    """The error is the answer of the apiserver, or the part that could not be read."""
    for _ in range(2):
        with pytest.raises(Refused, match="not for you"):
            use.samples_of("node-1")
    assert [SUMMARY, METRICS] == cluster.asked
    cluster.now_s += REFUSAL_KEPT_S
    cluster.answers[SUMMARY] = answer(200, {"pods": [{"cpu": cpu(1)}]})
    with pytest.raises(ValueError, match="summary of a kubelet that cannot be read: KeyError"):
        use.samples_of("node-1")


def test_a_kubelet_without_counters_does_not_stand_for_the_others(cluster: Cluster, use: NodeUse) -> None:
    """A virtual node serves no summary: its usage is read from the metrics, the usage of other
    nodes from their kubelets.
    """
    other = SUMMARY.replace("node-1", "virtual")
    cluster.answers[SUMMARY] = answer(200, {"pods": [pod("peloton", OURS, cpu=cpu(4.5))]})
    cluster.answers[other] = answer(404, status(404, "NotFound", "no such path"))
    cluster.metrics(0, "250m", "63Mi")
    assert [0.0] == [one.cpu_s for one in use.samples_of("virtual")]
    assert [4.5] == [one.cpu_s for one in use.samples_of("node-1")]
    use.samples_of("virtual")
    assert [other, METRICS, SUMMARY] == cluster.asked
