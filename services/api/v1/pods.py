"""Conversion of pods with their specs to v1alpha messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.api import convert_v1
from peloton.api.convert_v1_spec import pod_spec
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import JobId, PodName
from peloton.model.pod import PodRecord
from services.api.containers import containers_of
from services.storage.jobs.configs import Configs
from services.storage.storage import Storage

Specs = dict[tuple[int, int], pod_pb2.PodSpec]
"""(configuration version, instance) -> spec of the pod."""


def pod_infos(records: Storage, pods: Sequence[PodRecord]) -> list[pod_pb2.PodInfo]:
    """Convert pods of one job."""
    if not pods:
        return []
    specs = pod_specs(records.configs, pods[0].job_id, [(pod.config_version, pod.instance_id) for pod in pods])
    several = [pod for pod in pods if has_several(specs.get((pod.config_version, pod.instance_id)))]
    containers = containers_of(records, several)
    found = {
        pod.instance_id: pod_pb2.PodInfo(
            spec=specs.get((pod.config_version, pod.instance_id)),
            status=convert_v1.pod_status(pod, containers.get((pod.instance_id, pod.run_id), ())),
        )
        for pod in pods
    }
    keeping = [instance for instance, info in found.items() if info.spec.HasField("volume")]
    for instance, volume in records.volumes.of_instances(pods[0].job_id, keeping).items():
        found[instance].status.volume_id.value = volume.volume_id
    return list(found.values())


def has_several(spec: pod_pb2.PodSpec | None) -> bool:
    return spec is not None and len(spec.containers) + len(spec.init_containers) > 1


def pod_specs(configs: Configs, job_id: JobId, wanted: Iterable[tuple[int, int]]) -> Specs:
    """Return the specs of versions that are still stored, each with its pod's name."""
    by_version: dict[int, list[int]] = {}
    for version, instance in wanted:
        by_version.setdefault(version, []).append(instance)
    specs: Specs = {}
    for version, instances in by_version.items():
        for instance, task in configs.task_configs(job_id, version, instances).items():
            spec = pod_spec(task)
            spec.pod_name.value = str(PodName(job_id, instance))
            specs[version, instance] = spec
    return specs
