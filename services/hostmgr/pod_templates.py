"""Cached templates of pods per job and configuration: building a template costs more than filling it in."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from hashlib import blake2b

from peloton.api.convert import sla_spec
from peloton.api.job_secrets import secrets_of
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord
from peloton.model.respool import pool_paths
from peloton.model.secret import Secret
from services.hostmgr.driver import PodTemplate
from services.storage.jobs.configs import Configs
from services.storage.jobs.secrets import Secrets
from services.storage.pods.host_pods import HostPods
from services.storage.pools import Pools

TEMPLATES_MAX = 10_000
TEMPLATES_BYTES_MAX = 8 * 2**20
"""Limit of the serialised configurations with their secrets; templates take several times as much memory."""


_Key = tuple[JobId, int, int, bytes, tuple[int, ...]]
"""Job, its creation time (a job may be deleted and its id used again), version, digest of the configuration, revisions
of its secrets."""


class TemplateCache:
    """Cache of templates. Configs are immutable per version, so an entry never becomes stale."""

    def __init__(self, pods: HostPods, configs: Configs, pools: Pools, secrets: Secrets) -> None:
        self._pods, self._configs, self._pools, self._secrets = pods, configs, pools, secrets
        self._lock = threading.Lock()
        self._templates: OrderedDict[_Key, tuple[PodTemplate, int]] = OrderedDict()
        self._size_bytes = 0

    def of_job(self, job: JobRecord, instance_ids: Sequence[int]) -> dict[int, PodTemplate]:
        """Return templates by instance, each of the configuration that its pod runs next: during a rollout a failed
        pod keeps its old configuration. Instances with equal configurations share a template."""
        by_version = self._pods.instances_by_version(job.job_id, instance_ids)
        templates: dict[int, PodTemplate] = {}
        for version, mine in by_version.items():
            templates |= self._templates_of_version(job, version, mine)
        return templates

    def _templates_of_version(
        self, job: JobRecord, version: int, instance_ids: Sequence[int]
    ) -> dict[int, PodTemplate]:
        configs = self._configs.task_configs(job.job_id, version, instance_ids)
        # Secrets are the job's: an override has none of its own.
        wanted = secrets_of(next(iter(configs.values()))) if configs else []
        held = self._secrets.rows(job.job_id, wanted)
        revisions = tuple(one.revision for one in held)
        reveal = cache(partial(self._secrets.reveal, job.job_id, wanted, held))  # may ask another system
        seen: dict[int, PodTemplate] = {}
        templates: dict[int, PodTemplate] = {}
        for instance_id, config in configs.items():
            # Instances without an override share one message object, which is processed once.
            template = seen.get(id(config))
            if template is None:
                template = seen[id(config)] = self._template_of_config(job, version, config, revisions, reveal)
            templates[instance_id] = template
        return templates

    def _template_of_config(
        self,
        job: JobRecord,
        version: int,
        config: task_pb2.TaskConfig,
        revisions: tuple[int, ...],
        reveal: Callable[[], tuple[Secret, ...]],
    ) -> PodTemplate:
        text = config.SerializeToString(deterministic=True)
        key = (job.job_id, job.created_ns, version, blake2b(text, digest_size=16).digest(), revisions)
        with self._lock:
            known = self._templates.get(key)
        if known is not None:
            return known[0]
        secrets = reveal()
        size_bytes = len(text) + sum(len(one.data) for one in secrets)
        with self._lock:
            if key in self._templates:
                return self._templates[key][0]
            as_of, pool_path = self._at_version(job, version), self._pool_path(job.respool_id)
            template = PodTemplate(as_of, pool_path, config, secrets)
            self._templates[key] = (template, size_bytes)
            self._size_bytes += size_bytes
            while len(self._templates) > TEMPLATES_MAX or self._size_bytes > TEMPLATES_BYTES_MAX:
                _, (_, freed_bytes) = self._templates.popitem(last=False)
                self._size_bytes -= freed_bytes
            return template

    def _at_version(self, job: JobRecord, version: int) -> JobRecord:
        """Return the job with its SLA of that version: a job may become revocable as it grows, while its earlier pods
        are not."""
        stored = None if version == job.config_version else self._configs.job_config(job.job_id, version)
        return job if stored is None else replace(job, sla=sla_spec(stored))

    def _pool_path(self, respool_id: RespoolId) -> str:
        return pool_paths(self._pools.specs()).get(respool_id, "")
