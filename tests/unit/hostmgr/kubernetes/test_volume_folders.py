"""Deletion of the folders of volumes: one pod per volume deletes its folder, however late the view shows that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import orjson

from peloton.model.ids import JobId
from peloton.model.volume import VolumeRecord, VolumeState
from services.hostmgr.kubernetes.apiserver.wire import Answer, Request
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume, Stage
from services.hostmgr.kubernetes.pods.volume_folders import VolumeFolders
from services.hostmgr.kubernetes.settings import KubernetesSettings

JOB = JobId("00000000-0000-4000-8000-000000000001")
VOLUME = VolumeRecord("v1", JOB, 0, 1, "pool", "local", "h0", "data", 10, VolumeState.DELETED)


class Api:
    """An apiserver with one node that records one volume, and the pods that were made."""

    def __init__(self) -> None:
        self.record: str | None = str(NodeVolume(10, Stage.GOING))
        self.pods: dict[str, dict[str, Any]] = {}

    def ask_all(self, requests: list[Request]) -> list[Answer]:
        return [self.ask(request) for request in requests]

    def ask(self, request: Request) -> Answer:
        name = request.path.rpartition("/")[2]
        match request.method:
            case "PATCH" if request.content_type.endswith("json-patch+json"):
                test, _ = orjson.loads(request.body)
                return Answer(200 if test["value"] == self.record else 422, b"{}")
            case "PATCH":
                [self.record] = orjson.loads(request.body)["metadata"]["annotations"].values()
                return Answer(200, b"{}")
            case "POST":
                pod = orjson.loads(request.body)
                self.pods[pod["metadata"]["name"]] = pod | {"status": {"phase": "Succeeded"}}
                return Answer(201, b"{}")
            case "DELETE":
                return Answer(200 if self.pods.pop(name, None) else 404, b"{}")
        return Answer(200, orjson.dumps(self.pods[name])) if name in self.pods else Answer(404, b"{}")


def test_no_second_pod_deletes_a_folder() -> None:
    """A step that still sees the volume in an outdated view makes no pod, which nothing would delete."""
    api = Api()
    ledger = SimpleNamespace(
        node=lambda host: object(),
        volume=lambda host, volume_id: NodeVolume(10, Stage.GOING),  # as before the deletion
        user_of=lambda host, volume_id: "",
    )
    view: Any = SimpleNamespace(lock=threading.Lock(), ledger=ledger)
    folders = VolumeFolders(cast("Any", api), KubernetesSettings("in-cluster", volumes="/volumes"), view)

    folders.destroy(VOLUME)
    assert 1 == len(api.pods)
    folders.destroy(VOLUME)
    assert (None, {}) == (api.record, api.pods)
    folders.destroy(VOLUME)

    assert (None, {}) == (api.record, api.pods)
