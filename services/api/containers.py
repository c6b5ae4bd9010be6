"""Status of the containers of pods that have several."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.model.pod import ContainerStatus, PodRecord
from services.storage.storage import Storage


def containers_of(storage: Storage, pods: Sequence[PodRecord]) -> dict[tuple[int, int], tuple[ContainerStatus, ...]]:
    """Return the status of containers of pods of one job, by instance and run."""
    if not pods:
        return {}
    instances = [pod.instance_id for pod in pods]
    return storage.pods.containers(pods[0].job_id, min(instances), max(instances) + 1)
