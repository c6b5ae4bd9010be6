"""Real containers: lives of pods, and a story of each kind of job with all our roles, a real control plane, kubelet and
containerd, and the service account of deploy/kubernetes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from peloton.api.v0.host.svc import host_svc_pb2
from services.lab.local.own_kubernetes import OwnKubernetes
from tests.conformance.kubernetes.lives import GREEDY, IN_CONTAINERS, LIVES, RECORDED, play
from tests.e2e import image_story
from tests.e2e.local import TIMEOUT_S, Cluster, shell, temporary
from tests.e2e.service import Service
from tests.e2e.test_kubernetes import state_of
from tests.e2e.workloads import failures_of, stop
from tests.kubernetes.client import Client, Json
from tests.kubernetes.deployment import host_manager_of
from tests.kubernetes.kubelet import NODE, Machine
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("real-kubelet")]  # with a control plane of its own
MEMORY_MB = 64
"""Less could be too little for the start of a container."""
SERVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""The first process of a container ends by SIGTERM only if it handles it."""


ENDS_ANY_TIME = {"deadline": "its time may be over before its container runs"}


@pytest.fixture(scope="module")
def lives(machine: Machine) -> dict[str, list[Json]]:
    with Client(machine.plane.login) as client:
        return play(client, NODE, LIVES | IN_CONTAINERS)


@pytest.mark.parametrize("name", RECORDED)
def test_a_life_ends_as_it_was_recorded(name: str, lives: dict[str, list[Json]]) -> None:
    """A kubelet that has much to do may leave out states on the way to it."""
    ends = [RECORDED[name][-1], lives[name][-1]]
    if name in ENDS_ANY_TIME:
        ends = [{**end, "containers": ...} for end in ends]
    assert ends[0] == ends[1]


@pytest.fixture(scope="module")
def cluster(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("real-kubelet")
    access = host_manager_of(machine.plane.kubeconfig, "peloton", folder)
    with Cluster(replace(temporary(folder), own_kubernetes=OwnKubernetes(access))) as running:
        yield running


def task(command: str, **rest: Any) -> dict[str, Any]:
    return shell(command, memory=MEMORY_MB, **rest)


@pytest.fixture
def pool(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    return cluster.pool(request.node.name)


def test_a_batch_job(cluster: Cluster, pool: str) -> None:
    """Instances end as their commands say, failed ones are tried again, and an override holds for one."""
    job = cluster.submit(
        pool,
        instanceCount=6,
        defaultConfig=task("sleep 0.1", restartPolicy={"maxFailures": 2}),
        instanceConfig={4: {"command": {"shell": True, "value": "exit 3"}}},
    )

    assert "FAILED" == cluster.finish(job)
    assert {"SUCCEEDED": 5, "FAILED": 1} == cluster.counts(job)
    assert (2, 3) == (cluster.run_ids(job)[4], cluster.task(job, 4).runtime.terminationStatus.exit_code)


def test_images_that_cannot_be_pulled(cluster: Cluster, pool: str) -> None:
    """Pods that wait for an image report the kubelet's message, and an invalid image name ends its run at once."""
    image_story.pulls_that_fail_are_seen(cluster, pool, MEMORY_MB)
    image_story.a_name_that_is_none_ends_its_run(cluster, pool, MEMORY_MB)


def test_a_pod_beyond_its_memory_limit_fails(cluster: Cluster, pool: str) -> None:
    """Killed by the kernel, with 137 and a reason."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=task(GREEDY))

    assert "FAILED" == cluster.finish(job)
    runtime = cluster.task(job).runtime
    assert 137 == runtime.terminationStatus.exit_code
    assert "OOMKilled" in runtime.message


def test_logs_are_followed_by_the_command_line(cluster: Cluster, pool: str) -> None:
    """The log is read by way of the api and the apiserver, until the task has ended."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=task("echo begin; sleep 1; echo oops >&2; exit 3"))
    followed = subprocess.run(
        [*_cli(cluster), "task", "logs", job, "0", "-f"], capture_output=True, text=True, timeout=TIMEOUT_S
    )

    assert (0, ["begin", "oops"]) == (followed.returncode, sorted(followed.stdout.splitlines())), followed.stderr
    assert "FAILED" == cluster.finish(job)


def test_commands_run_in_a_container(cluster: Cluster, pool: str) -> None:
    """Commands run by way of the api: with our input, separate outputs, and their exit code here; and on a terminal."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=task(SERVER))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "the task to run")
    script = "wc -c; hostname >&2; exit 9"
    done = subprocess.run(
        [*_cli(cluster), "task", "exec", "-i", job, "0", "sh", "-c", script],
        input=b"x" * 100_000,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    pod = cluster.task(job).runtime.mesosTaskId.value
    assert (9, b"100000\n", f"{pod}\n".encode()) == (done.returncode, done.stdout, done.stderr), done.stderr

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*_cli(cluster), "task", "exec", "-it", job, "0"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as client:
        os.close(theirs)
        os.write(ours, b"tty; echo $((6 * 7)); exit 3\n")
        shown = b""
        while b"42" not in shown:
            shown += os.read(ours, 1024)
    os.close(ours)
    assert 3 == client.returncode
    assert b"/dev/pts/" in shown
    stop(cluster, job)


def _cli(cluster: Cluster) -> list[str]:
    return [sys.executable, "-m", "cli.main", "--address", cluster.local.address]


def test_a_service_is_rolled_out_in_place(cluster: Cluster, pool: str) -> None:
    """Each instance runs its new version in a new container."""
    service = Service(cluster, pool, 4, SERVER, memoryMb=MEMORY_MB).create().wait_running().wait_update("SUCCEEDED")

    service.replace(f"{SERVER}; true", batch_size=2, in_place=True)
    service.wait_update("SUCCEEDED")

    assert ([2] * 4, dict.fromkeys(range(4), 2)) == (service.versions(), service.runs())
    service.delete(force=True)
    service.wait(lambda: not service.pods(), "the end of its pods")


def test_a_node_is_drained_for_maintenance(cluster: Cluster, pool: str) -> None:
    """Pods of a drained node end without a failure, wait while it is the only node, and run again when its maintenance
    is over."""
    job = cluster.submit(pool, instanceCount=3, defaultConfig=task(SERVER))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 3}, "all pods running")

    cluster.client.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=NODE))
    cluster.wait(lambda: state_of(cluster, NODE) == "DOWN", "the node down")
    cluster.wait(lambda: "RUNNING" not in cluster.counts(job), "the end of its pods")
    cluster.client.hosts.CompleteMaintenance(host_svc_pb2.CompleteMaintenanceRequest(hostname=NODE))

    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 3}, "all pods running again")
    assert 0 == failures_of(cluster, job)
    stop(cluster, job)
