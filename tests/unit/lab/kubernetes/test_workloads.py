"""Jobs and Deployments on simulated nodes, and the scheduler that gives their pods nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.lab.kubernetes.controllers.settings import ControllerSettings
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Answer, Cluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster of two nodes with four CPUs each."""
    nodes = NodeSettings(tmp_path, tuple(HostSpec(name, cpus=4, mem=2048) for name in "ab"), simulate=True)
    with Cluster(tmp_path, nodes=nodes, controllers=ControllerSettings(retry_s=0.01)) as cluster:
        yield cluster


def template(command: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", command], "resources": resources}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}


def job(command: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"template": template(command, restartPolicy="Never"), **spec}}


def deployment(replicas: int, command: str = "sleep 1000", **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "d"},
        "spec": {"replicas": replicas, "selector": selector, "template": template(command, **spec)},
    }


def is_ended(kind: str) -> Any:
    return lambda found: [one["type"] for one in found.json["status"].get("conditions", [])] == [kind]


def is_ready(replicas: int) -> Any:
    """Return the condition that so many pods are ready, and no others exist."""

    def condition(found: Answer) -> bool:
        status = found.json["status"]
        numbers = [status.get(key) for key in ("replicas", "readyReplicas", "updatedReplicas")]
        return numbers == [replicas] * 3

    return condition


def commands(cluster: Cluster) -> set[str]:
    return {one["spec"]["containers"][0]["command"][2] for one in cluster.get(PODS).json["items"]}


def test_a_job_runs_until_enough_pods_have_succeeded(cluster: Cluster) -> None:
    """No more pods than its parallelism run at a time, on both nodes; they go with the Job."""
    made = cluster.create(JOBS, job("sleep 0.1", completions=5, parallelism=2))

    done = cluster.wait(f"{JOBS}/j", is_ended("Complete")).json["status"]

    assert (made.status, made.json["spec"]["backoffLimit"]) == (201, 6)
    assert (done["succeeded"], done["failed"], "completionTime" in done) == (5, 0, True)
    pods = cluster.get(f"{PODS}?labelSelector=job-name%3Dj").json["items"]
    assert {"a", "b"} == {pod["spec"]["nodeName"] for pod in pods}
    cluster.ask("DELETE", f"{JOBS}/j")
    cluster.wait(PODS, lambda found: not found.json["items"])


def test_a_job_gives_up_after_its_retries(cluster: Cluster) -> None:
    """A failed pod is replaced until the limit is exceeded."""
    cluster.create(JOBS, job("exit 3", backoffLimit=2))

    done = cluster.wait(f"{JOBS}/j", is_ended("Failed")).json["status"]

    assert (done["failed"], done["conditions"][0]["reason"]) == (3, "BackoffLimitExceeded")


def test_a_deployment_replaces_pods_that_are_deleted(cluster: Cluster) -> None:
    """The number of ready pods returns to the replicas."""
    cluster.create(DEPLOYMENTS, deployment(2))
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(2))
    before = {one["metadata"]["name"] for one in cluster.get(PODS).json["items"]}

    cluster.ask("DELETE", f"{PODS}/{min(before)}")

    cluster.wait(PODS, lambda found: len({one["metadata"]["name"] for one in found.json["items"]} - before) == 1)
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(2))


def test_a_deployment_is_scaled(cluster: Cluster) -> None:
    """The scale subresource changes the replicas, as kubectl does it."""
    cluster.create(DEPLOYMENTS, deployment(1))

    scaled = cluster.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}})

    assert (scaled.json["kind"], scaled.json["spec"]) == ("Scale", {"replicas": 3})
    assert scaled.json["status"]["selector"] == "app=web"
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(3))
    cluster.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 0}})
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(0))
    assert cluster.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}).status == 400


def test_a_rollout_keeps_all_replicas_ready(cluster: Cluster) -> None:
    """Pods of the new template replace the old ones; an old pod is deleted when another one is ready."""
    cluster.create(DEPLOYMENTS, deployment(3))
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(3))
    with cluster.watch(f"{DEPLOYMENTS}?watch=1") as watch:
        container = {"name": "main", "command": ["sh", "-c", "sleep 2000"]}
        patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
        assert cluster.patch(f"{DEPLOYMENTS}/d", patch, "strategic").status == 200
        cluster.wait(f"{DEPLOYMENTS}/d", lambda found: is_ready(3)(found) and commands(cluster) == {"sleep 2000"})
        ready = [body["status"].get("readyReplicas") for _, body in watch.take(3)]

    assert min(ready) >= 3


def test_pods_that_no_node_takes_wait_with_a_reason(cluster: Cluster) -> None:
    """Pods are spread, and the pod beyond the capacity is bound once another one has gone."""
    cluster.create(DEPLOYMENTS, deployment(3, cpu="4"))

    def unschedulable(found: Answer) -> list[str]:
        rows = [one for pod in found.json["items"] for one in pod["status"].get("conditions", [])]
        return [one["reason"] for one in rows if one["type"] == "PodScheduled" and one["status"] == "False"]

    assert ["Unschedulable"] == unschedulable(cluster.wait(PODS, unschedulable))
    cluster.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 2}})
    cluster.wait(f"{DEPLOYMENTS}/d", is_ready(2))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"template": template("true")}}),
        (DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {}}),
        (JOBS, {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": []}}}}),
    ],
)
def test_faulty_workloads_are_rejected(cluster: Cluster, path: str, body: dict[str, Any]) -> None:
    """A Deployment needs a selector, and both kinds a template with containers."""
    assert cluster.create(path, body).status in (400, 422)
