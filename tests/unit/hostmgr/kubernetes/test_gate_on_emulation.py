"""Gated pods on an emulated Kubernetes: admitted, placed by its scheduler and run by its nodes."""

from __future__ import annotations

from pathlib import Path

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr.kubernetes.external.gate import GATE, gates_of, run_of
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.kubernetes.client import login_of
from tests.kubernetes.external_world import ExternalWorld
from tests.unit.lab.kubernetes.cluster import Cluster


def test_a_gated_pod_runs_on_an_emulated_node(tmp_path: Path) -> None:
    """The pod is created with its gate, as by a policy; another gate of its own holds a second pod."""
    hosts = tuple(HostSpec(f"node-{i}", cpus=4, mem=2048) for i in range(2))
    with Cluster(tmp_path / "lab", nodes=NodeSettings(tmp_path / "nodes", hosts)) as cluster:
        kubeconfig = cluster.server.kubeconfig
        world = ExternalWorld(
            kubeconfig, login_of(kubeconfig), tmp_path, node_selector=(("kubernetes.io/os", "linux"),)
        )
        try:
            container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "true"]}
            jobs = []
            for name, others in (("first", []), ("held", [{"name": "other.example/gate"}])):
                body = {
                    "metadata": {"name": name, "labels": {"peloton.io/pool": "dev"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [container],
                        "schedulingGates": [{"name": GATE}, *others],
                    },
                }
                made = world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)
                jobs.append(JobId(made["metadata"]["uid"]))
            world.until(lambda: world.states(jobs[0]) == [PodState.SUCCEEDED], "it to succeed")
            pod = world.look("first")
            assert (set(), str(world.storage.pods.page(jobs[0])[0].pod_id)) == (gates_of(pod), run_of(pod))
            assert pod["spec"]["nodeName"] == world.storage.pods.page(jobs[0])[0].host
            assert {GATE, "other.example/gate"} == gates_of(world.look("held"))
        finally:
            world.close()
