"""Services with volumes in tests, and the database of examples/ as one of them."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.yaml_config import load_message
from tests.e2e.service import Service

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
EXAMPLE, POOL = EXAMPLES / "database/database.yaml", EXAMPLES / "tutorial/pool.yaml"


class Stateful(Service):
    """A service whose pods have volumes."""

    def volumes(self, **request: Any) -> dict[int, volume_pb2.PersistentVolumeInfo]:
        wanted = volume_svc_pb2.ListVolumesRequest(jobId=v0_peloton_pb2.JobID(value=self.id), **request)
        found = self.client.volumes.ListVolumes(wanted).volumes.values()
        return {one.instanceId: one for one in found}


class Database(Stateful):
    """The database service of examples/."""

    def spec(self) -> stateless_pb2.JobSpec:
        spec = load_message(EXAMPLE, stateless_pb2.JobSpec)
        spec.respool_id.CopyFrom(super().spec().respool_id)
        for label in self.fields.get("labels", ()):
            spec.default_spec.labels.add(**label)
        return spec

    def wait_serving(self) -> None:
        """Wait until the servers listen, which is a moment after their pods run."""
        self.wait_running()
        self.wait(self._serves, "the servers")

    def _serves(self) -> bool:
        try:
            self.put("ready", "1")
        except OSError:
            return False
        return True

    def put(self, key: str, value: str) -> None:
        for instance in range(self.count):
            request = urllib.request.Request(self._url(instance, key), value.encode(), method="PUT")
            urllib.request.urlopen(request, timeout=30).close()

    def get_all(self, key: str) -> list[str]:
        found: list[str] = []
        for instance in range(self.count):
            with urllib.request.urlopen(self._url(instance, key), timeout=30) as answer:
                found.append(answer.read().decode())
        return found

    def _url(self, instance: int, key: str) -> str:
        port = self.pods()[instance].containers_status[0].ports["http"]
        return f"http://127.0.0.1:{port}/{key}"

    def places(self) -> dict[int, str]:
        return {instance: pod.host for instance, pod in self.pods().items()}


def pool_config() -> respool_pb2.ResourcePoolConfig:
    """The pool configuration of the tutorial, which reserves the database's resources."""
    config = load_message(POOL, respool_pb2.ResourcePoolConfig)
    config.parent.value = "root"
    return config
