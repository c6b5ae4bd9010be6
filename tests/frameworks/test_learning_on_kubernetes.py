"""Gangs on an emulated Kubernetes, as docs/kubernetes/learning.md has them: JAX by its template, and Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.examples import EXAMPLES
from cli.job.templates import fill
from peloton.api.v0.job import job_pb2
from peloton.api.yaml_config import load_message
from tests.e2e.local import Cluster, temporary
from tests.e2e.test_kubernetes import log_of
from tests.frameworks.environments import ROOT, environment
from tests.frameworks.test_learning import START_S, STEPS, program_of, steps_of
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("learning"), pytest.mark.timeout(1800)]

SIZE = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("learning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{environment('ray').parent}:{os.environ['PATH']}")
        settings = temporary(folder, kubernetes=0, no_mesos=True, pass_env=("PATH",))
        with Cluster(settings) as running:
            yield running


def submit(cluster: Cluster, text: str, pool: str, **variables: str) -> str:
    config = load_message(text, job_pb2.JobConfig)
    config.respoolID.value = cluster.pool(pool)
    for name, value in variables.items():
        config.defaultConfig.command.environment.variables.add(name=name, value=value)
    answer = cluster.client.jobs.Create(job_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer.error
    return answer.jobId.value


def test_a_gang_of_jax(cluster: Cluster, tmp_path: Path) -> None:
    """Four processes train together by jax.distributed, with the variables that the label asks for."""
    python, program = program_of("jax", tmp_path, STEPS, 0.0)
    options = {"python": python, "program": program, "checkpoints": str(tmp_path), "image": "jax:1", "count": SIZE}
    text = fill("jax", {**options, "cpus": 0.5, "memory": 512})

    job = submit(cluster, text, "jax", JAX_PLATFORMS="cpu", PYTHONPATH=str(ROOT))

    assert "SUCCEEDED" == cluster.finish(job, START_S)
    assert [(number, SIZE) for number in range(1, STEPS + 1)] == [
        (step.number, step.processes) for step in steps_of(log_of(cluster, job))
    ]


def test_a_cluster_of_ray(cluster: Cluster) -> None:
    """The program runs on all nodes, and its end is that of the job. Nodes of one machine may take the same socket:
    then the gang starts again."""
    job = submit(cluster, (EXAMPLES / "kubernetes" / "ray.yaml").read_text(), "ray")

    assert "SUCCEEDED" == cluster.finish(job, START_S)
    assert "the sum is 20540 on 3 nodes" in log_of(cluster, job)
