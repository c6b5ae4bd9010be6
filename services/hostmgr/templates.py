"""TaskInfo templates per job and config, cached: building one costs more than filling it in."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord
from peloton.model.respool import pool_paths
from services.hostmgr.mesos.codec import TaskTemplate
from services.storage.gateway import Gateway

TEMPLATES_MAX = 10_000


class TemplateCache:
    """Configs are immutable per version, so an entry never goes stale."""

    def __init__(self, gateway: Gateway, cluster: str) -> None:
        self._gateway = gateway
        self._cluster = cluster
        self._lock = threading.Lock()
        self._templates: OrderedDict[tuple[JobId, int, bytes], TaskTemplate] = OrderedDict()

    def of_job(self, job: JobRecord, instance_ids: Sequence[int]) -> dict[int, TaskTemplate]:
        """Templates by instance, each of the configuration that its pod is to run: in the middle of a rollout a pod
        that failed comes back as what it was. Instances with equal configs share one."""
        by_version = self._gateway.instances_by_version(job.job_id, instance_ids)
        templates: dict[int, TaskTemplate] = {}
        for version, mine in by_version.items():
            templates |= self._of_version(job, version, mine)
        return templates

    def _of_version(self, job: JobRecord, version: int, instance_ids: Sequence[int]) -> dict[int, TaskTemplate]:
        configs = self._gateway.task_configs(job.job_id, version, instance_ids)
        serialised: dict[int, bytes] = {}
        templates: dict[int, TaskTemplate] = {}
        for instance_id, config in configs.items():
            # Instances without an override share one message object: serialise it once.
            text = serialised.setdefault(id(config), b"") or config.SerializeToString(deterministic=True)
            serialised[id(config)] = text
            key = (job.job_id, version, text)
            with self._lock:
                template = self._templates.get(key)
                if template is None:
                    template = TaskTemplate(job, self._pool_path(job.respool_id), self._cluster, config)
                    self._templates[key] = template
                    if len(self._templates) > TEMPLATES_MAX:
                        self._templates.popitem(last=False)
            templates[instance_id] = template
        return templates

    def _pool_path(self, respool_id: RespoolId) -> str:
        return pool_paths(spec for spec, _ in self._gateway.pools()).get(respool_id, "")
