"""A configuration of pods as the JSON of a Kubernetes pod. The part common to its pods is rendered once."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from peloton.api import convert
from peloton.api.cluster_kinds import mesos_only
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part, all_parts, containers, pod_resources
from peloton.api.secret_values import refers_to_job
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.host_pool import AT_PAR, Factors
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pods.containers import Asked, ContainerManifest, slug
from services.hostmgr.kubernetes.pods.gang_services import has_service, host_label, service_name
from services.hostmgr.kubernetes.pods.statuses import REVOCABLE_CPU
from services.hostmgr.kubernetes.pods.volumes import VOLUME, PodVolumes, folder_volume
from services.hostmgr.kubernetes.settings import CLUSTER_LABEL, JOB_LABEL, LABEL_KEY, LABEL_VALUE, KubernetesSettings

LABEL = "peloton.io/"
"""Prefix of the keys of Peloton's labels and annotations."""
ANNOTATIONS_BYTES_MAX = 200_000
"""Limit of user labels that become annotations; Kubernetes allows 256 KiB."""

_DockerInfo = mesos_pb2.ContainerInfo.DockerInfo
_LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodManifest:
    """Raises InvalidArgument for a configuration that Kubernetes cannot run."""

    def __init__(self, template: PodTemplate, settings: KubernetesSettings, factors: Factors = AT_PAR) -> None:
        self._job_id = template.job.job_id
        self._env_names = [env_name for _, env_name in template.dynamic_ports]
        config = template.config
        if asked := mesos_only(config):
            raise InvalidArgument(f"the pod requests features that Kubernetes does not have: {', '.join(asked)}")
        self._labels, annotations = _labels_of(template, settings.cluster)
        self._annotations = orjson.Fragment(orjson.dumps(annotations))
        volumes = PodVolumes(settings.cluster, template.secrets, template.volume)
        takes_least = not any(pod_resources(config)) and not template.revocable

        def container(name: str, part: Part, takes_least: bool = False) -> ContainerManifest:
            asked = Asked(template.revocable, takes_least, factors)
            return ContainerManifest(name, part, volumes, settings.default_image, asked)

        parts = list(containers(config))
        self._containers = [container(name, part, takes_least and part is config) for name, part in parts]
        self._init_containers = [container(each.name, each) for each in config.initContainers]
        spec = _pod_spec(config, settings)
        if pulls := dict.fromkeys(_image_secrets(config, volumes)):
            spec["imagePullSecrets"] = [{"name": name} for name in pulls]
        self._has_service = has_service(template, settings)
        self._volumes = [orjson.Fragment(orjson.dumps(volume)) for volume in volumes.all]
        self._volumes_root = settings.volumes
        self._spec = {key: orjson.Fragment(orjson.dumps(value)) for key, value in spec.items()}
        # All containers share one address: each may require the ports of the others.
        self._static_ports = {
            port.envName: str(port.value) for _, part in parts for port in part.ports if port.value and port.envName
        }

    def body(self, pod: PodLaunch, node: str, is_volume_new: bool = False) -> bytes:
        """Return the body of the request that creates the pod, bound to the node. ``is_volume_new``: no pod has used
        its volume."""
        instance, run = str(pod.pod_id.instance_id), str(pod.pod_id.run_id)
        variables = {
            "PELOTON_JOB_ID": self._job_id,
            "PELOTON_INSTANCE_ID": instance,
            "PELOTON_TASK_ID": f"{self._job_id}-{instance}",
            **self._static_ports,
        }
        for env_name, number in zip(self._env_names, pod.ports, strict=True):
            if env_name:
                variables[env_name] = str(number)
        allocated = iter(pod.ports)
        spec = {
            **self._spec,
            "nodeName": node,
            "containers": [container.body(variables, allocated, pod.variables) for container in self._containers],
        }
        if self._has_service:
            spec |= {"hostname": host_label(instance), "subdomain": service_name(self._job_id)}
        if self._init_containers:
            spec["initContainers"] = [
                container.body(variables, allocated, pod.variables) for container in self._init_containers
            ]
        volumes = list[orjson.Fragment | Json](self._volumes)
        if pod.volume is not None:
            volumes.append(folder_volume(self._volumes_root, pod.volume.volume_id, is_volume_new))
        if volumes:
            spec["volumes"] = volumes
        labels = {**self._labels, f"{LABEL}instance": instance, f"{LABEL}run": run}
        if pod.volume is not None:
            labels[VOLUME] = pod.volume.volume_id
        metadata = {"name": str(pod.pod_id), "labels": labels, "annotations": self._annotations}
        return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _pod_spec(config: task_pb2.TaskConfig, settings: KubernetesSettings) -> Json:
    tolerations: list[Json] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": round(settings.lost_node_s)}
        for key in _LOST_NODE_TAINTS
    ]
    if settings.taint:
        tolerations.append({"key": settings.taint, "operator": "Exists"})
    spec: Json = {
        "schedulerName": "peloton",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": convert.kill_grace_s(config),
        "tolerations": tolerations,
    }
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    infos = [part.container for part in all_parts(config)]
    if any(info.docker.HasField("network") and info.docker.network == _DockerInfo.HOST for info in infos):
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if config.container.hostname:
        spec["hostname"] = config.container.hostname
    return spec


def _image_secrets(config: task_pb2.TaskConfig, volumes: PodVolumes) -> Iterator[str]:
    """Yield the names of the Secrets with the credentials of images."""
    for part in all_parts(config):
        secret = part.container.mesos.image.docker.config
        found = volumes.find_image_secret(secret.reference.key) if refers_to_job(secret) else secret.reference.name
        if found:
            yield found


def _labels_of(template: PodTemplate, cluster: str) -> tuple[Json, Json]:
    """Return labels, and annotations for labels that are invalid in Kubernetes."""
    job = template.job
    own = {
        f"{LABEL}job-name": job.name,
        f"{LABEL}owner": job.owning_team,
        f"{LABEL}job-type": job.type.value,
        f"{LABEL}pool": template.pool_path,
    }
    user_labels = {key: value for key, value in template.labels if not key.startswith(("peloton.", LABEL))}
    labels: Json = {CLUSTER_LABEL: cluster, JOB_LABEL: job.job_id}
    annotations: Json = {}
    if template.revocable:
        annotations[REVOCABLE_CPU] = f"{template.resources.cpu_milli}m"
    for key, value in (own | user_labels).items():
        if LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value):
            labels[key] = value
        else:
            # Keys of annotations obey the rule of labels; values have none.
            name = key if LABEL_KEY.fullmatch(key) else f"{LABEL}label.{slug(key)}"
            annotations[name] = value if name == key else f"{key}={value}"
    size = len(orjson.dumps(annotations))
    if size > ANNOTATIONS_BYTES_MAX:
        raise InvalidArgument(
            f"labels that Kubernetes takes as annotations only have {size} bytes, at most {ANNOTATIONS_BYTES_MAX} fit"
        )
    return labels, annotations
