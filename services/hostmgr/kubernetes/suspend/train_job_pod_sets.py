"""Pods of TrainJobs: those of the JobSet in their runtime, with the number and the resources of the nodes that the
TrainJob names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend.owner_fields import PodSet, Unreadable, find, read_count, read_template

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_GROUP = "trainer.kubeflow.org"
_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_RUNTIMES = {_CLUSTER_RUNTIME: "clustertrainingruntimes", "TrainingRuntime": "trainingruntimes"}
_NODE = "node"
"""Name of the container that trains, and of the replicated job of nodes of MPI."""


def runtime_path(object: Json) -> str:
    """Return the path of the runtime at the apiserver; empty if the TrainJob names an unknown kind of runtime."""
    named = find(object, "spec.runtimeRef") or {}
    plural = _RUNTIMES.get(named.get("kind") or _CLUSTER_RUNTIME)
    if plural is None or (named.get("apiGroup") or _GROUP) != _GROUP:
        return ""
    namespace = "" if plural == _RUNTIMES[_CLUSTER_RUNTIME] else f"namespaces/{object['metadata']['namespace']}/"
    return f"/apis/{_GROUP}/v1alpha1/{namespace}{plural}/{quote(str(named.get('name')), safe='')}"


def train_job_pods(object: Json, runtime: Json | None) -> Iterator[PodSet]:
    if runtime is None:
        named = find(object, "spec.runtimeRef") or {}
        raise Unreadable(f"its {named.get('kind') or _CLUSTER_RUNTIME} {named.get('name')!r} is missing")
    policy = find(runtime, "spec.mlPolicy") or {}
    for job in find(runtime, "spec.template.spec.replicatedJobs") or ():
        name = str(job.get("name"))
        is_trainer = (find(job, "template.metadata.labels") or {}).get(STEP_LABEL) == "trainer"
        template = read_template(job, "template.spec.template", f"replicatedJobs {name} of its runtime")
        if is_trainer or (name == _NODE and find(policy, "mpi.runLauncherAsNode") is True):
            template = _with_resources(template, find(object, "spec.trainer.resourcesPerNode") or {})
        replicas = 1 if is_trainer else read_count(job, "replicas", 1)
        count = replicas * _count_nodes(object, job, is_trainer, policy)
        yield PodSet(name, count, _with_overrides(template, name, find(object, "spec.podTemplateOverrides") or ()))


def _count_nodes(object: Json, job: Json, is_trainer: bool, policy: Json) -> int:
    is_mpi = find(policy, "mpi") is not None
    by_runtime = read_count(policy, "numNodes", 1) if is_trainer else read_count(job, "template.spec.parallelism", 1)
    if not (job.get("name") == _NODE if is_mpi else is_trainer) or find(object, "spec.trainer.numNodes") is None:
        return by_runtime
    count = read_count(object, "spec.trainer.numNodes", 1)
    return max(count - 1, 1) if find(policy, "mpi.runLauncherAsNode") is True else count  # the launcher is one


def _with_resources(template: Json, resources: Json) -> Json:
    if not resources:
        return template
    spec = template["spec"]
    containers = [{**one, "resources": resources} if one.get("name") == _NODE else one for one in spec["containers"]]
    return {**template, "spec": {**spec, "containers": containers}}


def _with_overrides(template: Json, name: str, overrides: Sequence[Json]) -> Json:
    """Return the template with the fields that the TrainJob overrides and that concern the placement of pods."""
    for override in overrides:
        spec = override.get("spec") or {}
        if all(target.get("name") != name for target in override.get("targetJobs") or ()):
            continue
        own = {key: spec[key] for key in ("affinity", "tolerations") if spec.get(key)}
        if spec.get("nodeSelector"):
            own["nodeSelector"] = {**(template["spec"].get("nodeSelector") or {}), **spec["nodeSelector"]}
        template = {**template, "spec": {**template["spec"], **own}}
    return template
