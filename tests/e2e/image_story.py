"""Images that cannot be pulled, on a cluster of Kubernetes of any kind."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import JobID
from tests.e2e.local import TIMEOUT_S, Cluster, shell
from tests.e2e.workloads import stop

IMAGE = "localhost:1/absent:7"


def _task(image: str, memory: float) -> dict[str, Any]:
    return shell("true", memory=memory, container={"type": "DOCKER", "docker": {"image": image}})


def pulls_that_fail_are_seen(cluster: Cluster, pool: str, memory: float = 16) -> None:
    """The pods wait with the words of their kubelet, in the table and in the explanation, until they are stopped."""
    job = cluster.submit(pool, instanceCount=2, defaultConfig=_task(IMAGE, memory))

    def messages() -> list[str]:
        return [task.runtime.message for task in cluster.tasks(job).values()]

    cluster.wait(lambda: [IMAGE in message for message in messages()] == [True] * 2, "why they wait")
    why = cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=JobID(value=job)))
    table = subprocess.run(
        [sys.executable, "-m", "cli.main", "--address", cluster.local.address, "task", "ls", job],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    ).stdout

    cluster.wait(lambda: cluster.counts(job) == {"LAUNCHED": 2}, "the launch counted")
    assert {explain_pb2.RULE_CONTAINER_NOT_STARTED} == {reason.rule for reason in why.reasons}
    assert "cannot be started yet: " in why.text
    assert ("nothing waits" in why.text, "Add hostname and ports" in table, IMAGE in table) == (False, False, True)
    stop(cluster, job)


def a_name_that_is_none_ends_its_run(cluster: Cluster, pool: str, memory: float = 16) -> None:
    """The job pays for it with its own attempts: one run."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=_task("Not An Image", memory))

    assert "FAILED" == cluster.finish(job)
    runtime = cluster.task(job).runtime
    assert ("InvalidImageName", {0: 1}) == (runtime.reason, cluster.run_ids(job))
    assert "container main cannot be started: InvalidImageName" in runtime.message
