"""Requests of Aurora's clients, for tests of the bridge."""

from __future__ import annotations

import json
from typing import Any

from services.aurorabridge.mapping.executor import Thermos
from services.aurorabridge.thrift import api

KEY = api.JobKey(role="ads", environment="prod", name="web")
NAME = "ads/prod/web"
THERMOS = Thermos("/opt/bin/thermos_executor.pex", "--nosetuid", ("/opt/root.tar.gz",), cpu=0.25, memory_mib=128)


def thermos_data(command: str = "sleep 100", **more: Any) -> str:
    return json.dumps({"task": {"processes": [{"name": "main", "cmdline": command}]}, "role": "ads", **more})


def task_config(command: str = "sleep 100", **fields: Any) -> Any:
    given: dict[str, Any] = {
        "job": KEY,
        "owner": api.Identity(user="ann"),
        "isService": True,
        "tier": "preferred",
        "resources": [api.Resource(numCpus=0.5), api.Resource(ramMb=64), api.Resource(diskMb=32)],
        "executorConfig": api.ExecutorConfig(name="AuroraExecutor", data=thermos_data(command)),
    }
    return api.TaskConfig(**(given | fields))


def update_request(task: Any = None, count: int = 3, settings: Any = None, metadata: Any = None) -> Any:
    return api.JobUpdateRequest(
        taskConfig=task or task_config(),
        instanceCount=count,
        settings=settings or api.JobUpdateSettings(updateGroupSize=1, maxPerInstanceFailures=0, maxFailedInstances=0),
        metadata=metadata,
    )
