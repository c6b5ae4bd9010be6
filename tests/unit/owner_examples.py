"""Objects of each kind that can be suspended, for tests of the table and of the real apiserver, which applies their
schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind

Json = dict[str, Any]
RUNTIME = "torch-two-nodes"
IMAGE = "registry.example/work:1"


def pod_template(cpu: str = "1", name: str = "main", **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    return {"spec": {"containers": [{"name": name, "image": IMAGE, "resources": resources}], **spec}}


def _job(parallelism: int, completions: int | None = None, cpu: str = "1") -> Json:
    sizes = {"parallelism": parallelism, **({} if completions is None else {"completions": completions})}
    return {**sizes, "template": pod_template(cpu, restartPolicy="Never")}


def _replicas(**counts: int | None) -> Json:
    return {
        role: {"template": pod_template(), **({} if count is None else {"replicas": count})}
        for role, count in counts.items()
    }


def _group(name: str, replicas: int, **fields: Any) -> Json:
    own = {"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 10, "rayStartParams": {}}
    return {**own, "template": pod_template("2", "ray"), **fields}


def _ray_cluster(*groups: Json, **fields: Any) -> Json:
    head = {"rayStartParams": {}, "template": pod_template("1", "ray")}
    return {"headGroupSpec": head, "workerGroupSpecs": list(groups or (_group("small", 3),)), **fields}


def runtime(**policy: Any) -> Json:
    """Return a ClusterTrainingRuntime with a job that prepares and one that trains."""
    steps = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    train = {"metadata": {"labels": steps}, "spec": {"template": pod_template("8", "node")}}
    jobs = [
        {"name": "dataset-initializer", "template": {"spec": {"template": pod_template("1")}}},
        {"name": "node", "template": train},
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME},
        "spec": {"mlPolicy": policy or {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


_SPARK = {
    "type": "Scala",
    "mode": "cluster",
    "image": IMAGE,
    "mainApplicationFile": "local:///work.jar",
    "mainClass": "Work",
    "sparkVersion": "3.5.0",
    "driver": {"cores": 1, "memory": "512m"},
    "executor": {"cores": 2, "instances": 3, "memory": "4g"},
}

SPECS: dict[tuple[str, str], Json] = {
    ("Job", "v1"): {**_job(4, 2), "backoffLimit": 0},
    ("JobSet", "v1alpha2"): {
        "replicatedJobs": [
            {"name": "leader", "template": {"spec": _job(1, 1)}},
            {"name": "workers", "replicas": 2, "template": {"spec": _job(2, 2)}},
        ]
    },
    ("TrainJob", "v1alpha1"): {
        "runtimeRef": {"name": RUNTIME},
        "trainer": {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "2"}}},
    },
    ("PyTorchJob", "v1"): {"pytorchReplicaSpecs": _replicas(Master=None, Worker=2)},
    ("TFJob", "v1"): {"tfReplicaSpecs": _replicas(Chief=1, PS=2, Worker=2)},
    ("MPIJob", "v1"): {"mpiReplicaSpecs": _replicas(Launcher=1, Worker=2)},
    ("MPIJob", "v2beta1"): {"mpiReplicaSpecs": _replicas(Launcher=1, Worker=2)},
    ("RayJob", "v1"): {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": _ray_cluster()},
    ("RayCluster", "v1"): _ray_cluster(_group("small", 3), _group("slices", 2, numOfHosts=2)),
    ("SparkApplication", "v1beta2"): _SPARK,
}

SIZES: dict[tuple[str, str], dict[str, int]] = {
    ("Job", "v1"): {"main": 2},
    ("JobSet", "v1alpha2"): {"leader": 1, "workers": 4},
    ("TrainJob", "v1alpha1"): {"dataset-initializer": 1, "node": 3},
    ("PyTorchJob", "v1"): {"Master": 1, "Worker": 2},
    ("TFJob", "v1"): {"Chief": 1, "PS": 2, "Worker": 2},
    ("MPIJob", "v1"): {"Launcher": 1, "Worker": 2},
    ("MPIJob", "v2beta1"): {"Launcher": 1, "Worker": 2},
    ("RayJob", "v1"): {"head": 1, "small": 3, "submitter": 1},
    ("RayCluster", "v1"): {"head": 1, "small": 3, "slices": 4},
    ("SparkApplication", "v1beta2"): {"driver": 1, "executor": 3},
}
"""Pods of the examples, by pod set."""


PAGE = Path(__file__).parents[2] / "docs/kubernetes/owners.md"


def example_of_the_page() -> str:
    """Return the file of kinds that the documentation shows."""
    return PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]


def kind_named(kind: str, version: str) -> OwnerKind:
    return next(one for one in KINDS if (one.kind, one.version) == (kind, version))


def example(kind: OwnerKind, name: str = "one", **spec: Any) -> Json:
    """Return the example of the kind, with these fields of its spec."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "team", "name": name},
        "spec": {**SPECS[kind.kind, kind.version], **spec},
    }
