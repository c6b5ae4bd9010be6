"""The examples of containers on Mesos reach the agent whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.yaml_config import load_message
from services.hostmgr.driver import PodTemplate
from services.hostmgr.mesos.codec import TaskTemplate
from tests.unit.hostmgr.mesos.test_codec import JOB, launch

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "mesos"
CONTAINERS = {
    "containers.yaml": {
        "type": "MESOS",
        "mesos": {"image": {"type": "DOCKER", "docker": {"name": "library/alpine:3.20"}}},
        "volumes": [{"container_path": "/data", "host_path": "data", "mode": "RW"}],
    },
    "docker.yaml": {
        "type": "DOCKER",
        "docker": {
            "image": "alpine:3.20",
            "network": "HOST",
            "force_pull_image": False,
            "parameters": [{"key": "read-only", "value": "true"}],
        },
    },
}


@pytest.mark.parametrize(("name", "container"), CONTAINERS.items())
def test_mesos_gets_the_container_as_it_was_written(name: str, container: dict[str, Any]) -> None:
    """Type, image, volumes and parameters of the file are those of the task, which Mesos can run."""
    config = load_message(EXAMPLES / name, job_pb2.JobConfig)
    task = config.defaultConfig
    ports = tuple(range(31000, 31000 + len(task.ports)))
    made = TaskTemplate(PodTemplate(new_job_record(JOB, config, 1), "", task), "west")

    assert "" == made.refusal
    assert container == made.task_info(launch(0, 1, ports), "a", [])["container"]
