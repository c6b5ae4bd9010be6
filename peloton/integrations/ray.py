"""A node provider of Ray's autoscaler: the workers of a Ray cluster are instances of jobs, one job per type of node.

    provider:
      type: external
      module: peloton.integrations.ray.PelotonNodeProvider
      address: localhost:5397
      pool: /science

The head runs where it was started, with RAY_CLOUD_INSTANCE_ID=head. Nodes are added and stopped by batches. An instance
is one node, and is not repeated: Ray asks for another one.
"""

from __future__ import annotations

import json
import logging
import shlex
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import Label
from peloton.client import DEFAULT_ADDRESS, Client
from peloton.errors import InvalidArgument
from peloton.extras import missing_extra
from peloton.integrations.instances import Instance, Instances, InstanceSpec

try:
    from ray.autoscaler.node_provider import NodeProvider
    from ray.autoscaler.tags import (
        NODE_KIND_HEAD,
        NODE_KIND_WORKER,
        STATUS_UP_TO_DATE,
        TAG_RAY_NODE_KIND,
        TAG_RAY_NODE_STATUS,
        TAG_RAY_USER_NODE_TYPE,
    )
    from ray.util import get_node_ip_address
except ImportError as missing:
    raise missing_extra("ray", "ray", "the node provider of Ray") from missing

log = logging.getLogger(__name__)

HEAD = "head"
HEAD_PORT = 6379
CLUSTER_LABEL, TYPE_LABEL = "ray-cluster", "ray-node-type"
OBJECT_STORE_SHARE = 0.3
"""Part of the memory of a node that holds Ray's objects, as Ray has it by default."""
BYTES_PER_MIB = 1 << 20
START = "from ray.scripts.scripts import main; main()"
ENVIRONMENT = {"RAY_enable_autoscaler_v2": "1"}
ACTIVE = ("INITIALIZED", "PENDING", "RUNNING")


class PelotonNodeProvider(NodeProvider):  # type: ignore[misc]
    """Keeps the nodes of a Ray cluster as instances, which it finds again by labels of their jobs when it starts."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        address = provider_config.get("address", DEFAULT_ADDRESS)
        self._client = Client(address)
        self._pool = provider_config.get("pool", "/")
        self._head = provider_config.get("head", f"{get_node_ip_address()}:{HEAD_PORT}")
        self._lock = threading.RLock()
        self._jobs: dict[str, Instances] = {}
        self._tags: dict[str, dict[str, str]] = {HEAD: self._head_tags()}
        self._seen: dict[str, Instance] = {}
        self._find_jobs()

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Read all nodes; the other reads answer from what was read here."""
        with self._lock:
            seen = {}
            for node_type, job in self._jobs.items():
                for instance in job.read():
                    if instance.is_wanted and not instance.has_ended:
                        seen[node_id := node_name(job.job_id, instance.number)] = instance
                        self._tags.setdefault(node_id, worker_tags(node_type))
            for node_id in self._seen.keys() - seen.keys():
                self._tags.pop(node_id, None)
            self._seen = seen
            alive = {node_id: self._tags[node_id] for node_id in (HEAD, *seen)}
            return [node_id for node_id, tags in alive.items() if tag_filters.items() <= tags.items()]

    def is_running(self, node_id: str) -> bool:
        return node_id == HEAD or (node_id in self._seen and self._seen[node_id].state == "RUNNING")

    def is_terminated(self, node_id: str) -> bool:
        return node_id != HEAD and node_id not in self._seen

    def node_tags(self, node_id: str) -> dict[str, str]:
        with self._lock:
            return dict(self._tags.get(node_id, {}))

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        with self._lock:
            self._tags.setdefault(node_id, {}).update(tags)

    def internal_ip(self, node_id: str) -> str:
        """Return the host of the node: the first version of the autoscaler would need its address instead."""
        return str(self._head).rpartition(":")[0] if node_id == HEAD else self._seen[node_id].host

    def external_ip(self, node_id: str) -> str:
        return self.internal_ip(node_id)

    def create_node(self, node_config: dict[str, Any], tags: dict[str, str], count: int) -> dict[str, Any]:
        return self.create_node_with_resources_and_labels(node_config, tags, count, {}, {})

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],
        labels: dict[str, str],
    ) -> dict[str, Any]:
        """Add instances to the job of the node's type, which is created if need be."""
        node_type = tags[TAG_RAY_USER_NODE_TYPE]
        with self._lock:
            if node_type not in self._jobs:
                self._jobs[node_type] = self._job(node_type, node_config, resources)
            job = self._jobs[node_type]
            added = job.add(count, use_ended=False)  # a node's name is never used twice
            created = [node_name(job.job_id, number) for number in added]
            self._tags |= {node_id: {**worker_tags(node_type), **tags} for node_id in created}
        return {node_id: {} for node_id in created}

    def terminate_node(self, node_id: str) -> None:
        self.terminate_nodes([node_id])

    def terminate_nodes(self, node_ids: Sequence[str]) -> None:
        """Stop nodes by one call for each type."""
        with self._lock:
            for job in self._jobs.values():
                numbers = [number_of(node_id) for node_id in node_ids if node_id.startswith(f"{job.job_id}-")]
                job.stop(numbers)

    def _job(self, node_type: str, node_config: dict[str, Any], resources: dict[str, float]) -> Instances:
        try:
            spec = InstanceSpec(**{**node_config, "ends_when_preempted": True, "failures_max": 0})
        except TypeError as error:
            raise InvalidArgument(
                f"node_config of {node_type}: {error}; its fields are those of InstanceSpec"
            ) from error
        labels = {CLUSTER_LABEL: self.cluster_name, TYPE_LABEL: node_type}
        worker = worker_spec(spec, node_type, resources, self._head)
        name = f"ray-{self.cluster_name}-{node_type}"
        return Instances(self._client, self._pool, name, worker, owner="ray", labels=labels)

    def _find_jobs(self) -> None:
        """Find the jobs that this cluster had when its head was started again, or its monitor."""
        spec = job_pb2.QuerySpec(
            labels=[Label(key=CLUSTER_LABEL, value=self.cluster_name)],
            jobStates=[job_pb2.JobState.Value(state) for state in ACTIVE],
        )
        for summary in self._client.jobs.Query(job_pb2.QueryRequest(spec=spec, summaryOnly=True)).results:
            [node_type] = [label.value for label in summary.labels if label.key == TYPE_LABEL]
            self._jobs[node_type] = Instances.find(self._client, summary.id.value)
            log.info("job %s has the nodes of type %s", summary.id.value, node_type)

    def _head_tags(self) -> dict[str, str]:
        tags = {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}
        return {**tags, TAG_RAY_USER_NODE_TYPE: self.provider_config.get("head_node_type", HEAD)}


def worker_tags(node_type: str) -> dict[str, str]:
    return {
        TAG_RAY_NODE_KIND: NODE_KIND_WORKER,
        TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
        TAG_RAY_USER_NODE_TYPE: node_type,
    }


def node_name(job_id: str, number: int) -> str:
    """Return the id of a node, which its pod has in PELOTON_TASK_ID."""
    return f"{job_id}-{number}"


def number_of(node_id: str) -> int:
    return int(node_id.rpartition("-")[2])


def worker_spec(spec: InstanceSpec, node_type: str, resources: dict[str, float], head: str) -> InstanceSpec:
    """Return the instance with the command that starts a node of Ray and stays with it."""
    python = spec.interpreter()
    custom = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU", "memory")}
    memory_bytes = int(spec.memory_mib * BYTES_PER_MIB)
    options = {
        "address": head,
        "num-cpus": int(resources.get("CPU", max(1, spec.cpu))),
        "num-gpus": int(resources.get("GPU", spec.gpu)),
        "memory": int(resources.get("memory", memory_bytes * (1 - OBJECT_STORE_SHARE))),
        "object-store-memory": int(memory_bytes * OBJECT_STORE_SHARE),
        "resources": json.dumps(custom),
    }
    given = " ".join(f"--{name}={shlex.quote(str(value))}" for name, value in options.items())
    identity = f"RAY_CLOUD_INSTANCE_ID=$PELOTON_TASK_ID RAY_NODE_TYPE_NAME={shlex.quote(node_type)}"
    command = f"{identity} exec {shlex.quote(python)} -c {shlex.quote(START)} start --block {given} {spec.command}"
    return replace(spec, command=command.strip(), environment={**ENVIRONMENT, **spec.environment})
