"""Pods of RayClusters and RayJobs: the head, groups of workers, and the submitter of a job.

A cluster that scales itself is counted with its maximum, so that it never grows past what was admitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend.owner_fields import PodSet, Unreadable, find, read_count, read_template

_AUTOSCALER = {"requests": {"cpu": "500m", "memory": "512Mi"}}
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}}
"""Resources that KubeRay gives the containers that it adds, unless the object names others."""


def ray_cluster_pods(object: Json, _: Json | None) -> Iterator[PodSet]:
    yield from _cluster_pods(object["spec"], "spec", ())


def ray_job_pods(object: Json, _: Json | None) -> Iterator[PodSet]:
    spec = object["spec"]
    mode = spec.get("submissionMode") or "K8sJobMode"
    submitter = {"name": "ray-job-submitter", "resources": _SUBMITTER}
    cluster = spec.get("rayClusterSpec")
    if not cluster:
        raise Unreadable("spec.rayClusterSpec is missing")
    yield from _cluster_pods(cluster, "spec.rayClusterSpec", (submitter,) if mode == "SidecarMode" else ())
    if mode == "K8sJobMode":
        own = {"spec": {"containers": [submitter], "restartPolicy": "Never"}}
        yield PodSet("submitter", 1, spec.get("submitterPodTemplate") or own)


def _cluster_pods(spec: Json, where: str, sidecars: tuple[Json, ...]) -> Iterator[PodSet]:
    scales = spec.get("enableInTreeAutoscaling") is True
    if scales:
        resources = find(spec, "autoscalerOptions.resources") or _AUTOSCALER
        sidecars = (*sidecars, {"name": "autoscaler", "resources": resources})
    head = read_template(spec, "headGroupSpec.template", where)
    yield PodSet("head", 1, _with_containers(head, sidecars))
    for group in spec.get("workerGroupSpecs") or ():
        name = str(group.get("groupName"))
        template = read_template(group, "template", f"{where}.workerGroupSpecs {name}")
        count = _count_workers(group, scales)
        yield PodSet(name, count, template, count - _count_workers(group, scales=False))


def _with_containers(template: Json, sidecars: tuple[Json, ...]) -> Json:
    spec = template["spec"]
    return {**template, "spec": {**spec, "containers": [*spec["containers"], *sidecars]}} if sidecars else template


def _count_workers(group: Json, scales: bool) -> int:
    if group.get("suspend") is True:
        return 0
    most = read_count(group, "maxReplicas", 2**31 - 1)
    wanted = max(read_count(group, "replicas", 0), read_count(group, "minReplicas", 0))
    return (most if scales else min(wanted, most)) * read_count(group, "numOfHosts", 1)
