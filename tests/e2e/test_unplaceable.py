"""Admitted pods that no host takes: they give back what their pool allowed them, and others go on."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from google.protobuf.json_format import MessageToDict

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.local import Cluster, bound_to, job_config, shell, temporary
from tests.e2e.shared import FOUR_HOSTS, Lend
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("gangs")

HOSTS, CPUS = 4, 4.0
AT_ONCE_S = 30.0
"""Long for a busy machine, far less than POD_PLACEMENT_S."""
NO_RACK = "fit no host, even an empty one: 0 of 4 hosts meet the constraint label rack=z"
TOO_LARGE = "instance 0 fits no host, even an empty one: no host has cpu 7: the largest of 4 hosts has 4"


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(FOUR_HOSTS) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def run(cluster: Cluster, *words: object) -> Result:
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, *map(str, words)], prog_name="peloton")
    assert result.exit_code == 0, result.output
    return result


def create(cluster: Cluster, path: str, file: Path, count: int, task: dict[str, Any]) -> tuple[str, str]:
    """Create a job as a user does; return the job, and the warnings."""
    config = MessageToDict(job_config("", instanceCount=count, defaultConfig=task))
    config.pop("respoolID")
    file.write_text(yaml.safe_dump(config))
    result = run(cluster, "--json", "job", "create", path, file)
    return str(json.loads(result.stdout)["jobId"]["value"]), result.stderr


def why(cluster: Cluster, job: str) -> str:
    return str(cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job))).text)


def ordinary(cluster: Cluster, pool: str, cpu: float = 1) -> str:
    return cluster.submit(pool, instanceCount=2, defaultConfig=shell("true", cpu=cpu, memory=1))


def test_a_plan_says_which_pods_find_a_host_now(cluster: Cluster, file: Path) -> None:
    """A plan says which pods find a host, and is right: the others wait for one, for the reason in the plan. Nothing is
    created by it. The test comes first in this module, while nothing else waits."""
    pool = cluster.pool("planned")
    spread: dict[str, Any] = {"placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB"}
    half = shell("sleep 600", cpu=2, memory=1)
    filler = cluster.submit(pool, instanceCount=HOSTS - 1, defaultConfig=half, **spread)
    cluster.wait(lambda: cluster.counts(filler) == {"RUNNING": HOSTS - 1}, "all hosts but one half full")
    task = shell("sleep 600", cpu=2.5, memory=1)
    config = MessageToDict(job_config("", instanceCount=3, defaultConfig=task))
    config.pop("respoolID")
    file.write_text(yaml.safe_dump(config))
    missing = "2 pods without a host (4 hosts: less than 2.5 cpu free, 2 at most)"
    expected = [
        "In pool /planned 3 of 3 instances would be admitted now.",
        f"  hosts have free resources for 1 of these now; 2 would wait for a host: {missing}",
    ]

    def plan() -> list[str]:
        return run(cluster, "job", "plan", "/planned", file).stdout.splitlines()

    cluster.wait(lambda: plan() == expected, "a plan that knows of the pods on the hosts")
    assert expected == plan()
    agent = file.with_name("agent.yaml")
    agent.write_text(yaml.safe_dump({"name": "agent", "defaultConfig": shell("sleep 600", cpu=1, memory=1)}))
    assert [
        "The daemon of pool /planned would not be queued: hosts decide where it runs.",
        "  4 of 4 hosts match",
        "    4 hosts with free resources: it would run there at once",
    ] == run(cluster, "job", "daemon", "plan", "/planned", agent).stdout.splitlines()[:3]
    job, _ = create(cluster, "/planned", file, 3, task)
    cluster.wait(lambda: cluster.counts(job).get("RUNNING") == 1, "the pod that has a host")
    cluster.wait(lambda: f"admitted, but {missing}" in why(cluster, job), "what placement says of the others")
    for each in (job, filler):
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=each)))
        assert cluster.finish(each) == "KILLED"


def test_a_constraint_that_no_host_meets(cluster: Cluster, file: Path) -> None:
    """The creator of the job and a plan are warned; its pods release the whole limit of their pool at once, keep their
    place, and an ordinary job behind them runs."""
    pool = cluster.pool("nowhere", cpu=8)
    task = shell("true", cpu=1, memory=1) | bound_to("rack", "z")
    stuck, reported = create(cluster, "/nowhere", file, 8, task)
    assert f"Warning: instances 0-7 {NO_RACK}; they wait for one to join\n" == reported
    assert NO_RACK in run(cluster, "job", "plan", "/nowhere", file).stdout
    cluster.wait(lambda: "in backoff for" in why(cluster, stuck), "the pods in backoff", AT_ONCE_S)

    assert cluster.finish(ordinary(cluster, pool), AT_ONCE_S) == "SUCCEEDED"
    assert "after no host was found; later gangs may be admitted first" in why(cluster, stuck)
    assert NO_RACK in why(cluster, stuck)
    assert "in backoff for" in run(cluster, "respool", "why", "/nowhere").stdout
    tries = r"queued again, (1 attempt|\d+ attempts) failed, the next in \d+ s: "
    assert re.fullmatch(tries + "0 of 4 hosts meet the constraint label rack=z", cluster.task(stuck).runtime.message)
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=stuck)))
    assert cluster.finish(stuck) == "KILLED"


def test_a_pod_larger_than_every_host(cluster: Cluster, file: Path) -> None:
    """The job is created with a warning that has the numbers, and an ordinary job behind it runs; the same holds for a
    gang."""
    pool = cluster.pool("large", cpu=8)
    large, reported = create(cluster, "/large", file, 1, shell("true", cpu=7, memory=1))
    assert f"Warning: {TOO_LARGE}; it waits for one to join\n" == reported
    cluster.wait(lambda: "in backoff for" in why(cluster, large), "the pod in backoff", AT_ONCE_S)
    assert cluster.finish(ordinary(cluster, pool), AT_ONCE_S) == "SUCCEEDED"

    gang = cluster.submit(
        pool,
        instanceCount=2,
        sla={"minimumRunningInstances": 2},
        defaultConfig=shell("true", cpu=1, memory=1),
        instanceConfig={"1": shell("true", cpu=7, memory=1)},
    )
    cluster.wait(lambda: "in backoff for" in why(cluster, gang), "the gang in backoff", AT_ONCE_S)
    assert TOO_LARGE.replace("instance 0", "instance 1") in why(cluster, gang)
    assert cluster.finish(ordinary(cluster, pool), AT_ONCE_S) == "SUCCEEDED"


def test_a_service_that_fits_no_host(cluster: Cluster, file: Path) -> None:
    """The same for services."""
    pool = cluster.pool("served", cpu=8)
    rule = {
        "kind": "LABEL_CONSTRAINT_KIND_HOST",
        "condition": "LABEL_CONSTRAINT_CONDITION_EQUAL",
        "label": {"key": "rack", "value": "z"},
        "requirement": 1,
    }
    container = {
        "name": "web",
        "resource": {"cpuLimit": 1, "memLimitMb": 1, "diskLimitMb": 1},
        "entrypoint": {"value": "sleep 600"},
    }
    constraint = {"type": "CONSTRAINT_TYPE_LABEL", "labelConstraint": rule}
    spec = {
        "name": "web",
        "instanceCount": 8,
        "sla": {"preemptible": True},
        "defaultSpec": {"containers": [container], "constraint": constraint},
    }
    file.write_text(yaml.safe_dump(spec))
    service = str(uuid.uuid4())
    result = run(cluster, "job", "stateless", "create", "/served", file, "--jobID", service)

    assert f"Warning: instances 0-7 {NO_RACK}; they wait for one to join\n" == result.stderr
    cluster.wait(lambda: "in backoff for" in why(cluster, service), "the pods in backoff", AT_ONCE_S)
    assert cluster.finish(ordinary(cluster, pool), AT_ONCE_S) == "SUCCEEDED"


@NIGHTLY
def test_two_jobs_that_wait_for_an_empty_host(tmp_path: Path) -> None:
    """Two jobs that wait for an empty host while hosts are half full alternate in using their pool's allocation, and
    leave time to a job behind them."""
    with Cluster(temporary(tmp_path, simulate=2, environment={"PELOTON_POD_PLACEMENT_TIMEOUT_S": "20"})) as cluster:
        cluster.wait(lambda: cluster.capacity() == 2 * CPUS, "all hosts")
        spread: dict[str, Any] = {"placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB"}
        filler = cluster.submit(
            cluster.pool("other"), instanceCount=2, defaultConfig=shell("sleep 600", cpu=1, memory=1), **spread
        )
        cluster.wait(lambda: cluster.counts(filler) == {"RUNNING": 2}, "hosts that are not empty")
        pool = cluster.pool("turns", cpu=5)
        stuck = [cluster.submit(pool, instanceCount=20, defaultConfig=shell("true", cpu=4, memory=1)) for _ in range(2)]
        assert cluster.finish(ordinary(cluster, pool, cpu=2), 4 * 40) == "SUCCEEDED"
        assert all("in backoff for" in why(cluster, job) or "admitted" in why(cluster, job) for job in stuck)


@NIGHTLY
def test_hosts_that_do_not_become_free_in_time(tmp_path: Path) -> None:
    """Pods that hosts could take if they were free wait for that, and give back what they hold after the timeout; when
    hosts are free at last they run."""
    with Cluster(temporary(tmp_path, simulate=2, environment={"PELOTON_POD_PLACEMENT_TIMEOUT_S": "3"})) as cluster:
        cluster.wait(lambda: cluster.capacity() == 2 * CPUS, "all hosts")
        other = cluster.pool("other")
        spread: dict[str, Any] = {"placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB"}
        filler = cluster.submit(other, instanceCount=2, defaultConfig=shell("sleep 600", cpu=2, memory=1), **spread)
        cluster.wait(lambda: cluster.counts(filler) == {"RUNNING": 2}, "hosts that are half full")
        pool = cluster.pool("late", cpu=4)
        late = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true", cpu=3, memory=1))
        cluster.wait(lambda: "in backoff for" in why(cluster, late), "the pod in backoff", AT_ONCE_S)
        assert ": no host found in 3 s: 1 pod without a host" in cluster.task(late).runtime.message
        assert cluster.finish(ordinary(cluster, pool, cpu=2), AT_ONCE_S) == "SUCCEEDED"

        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=filler)))
        assert cluster.finish(late) == "SUCCEEDED"
