"""Stories on an emulated Kubernetes alone: real Temporal, real processes as pods, all our roles, no Mesos."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v1alpha.peloton_pb2 import Secret
from tests.e2e import image_story
from tests.e2e.drains import drain_by_another_client
from tests.e2e.local import TIMEOUT_S, Cluster, shell, temporary
from tests.e2e.service import SLEEP, Service
from tests.e2e.test_faults import list_launched_twice
from tests.e2e.workloads import Workloads, again, failures_of, stop
from tests.kubernetes.client import Client, login_of
from tests.nightly import NIGHTLY, nightly

pytestmark = pytest.mark.xdist_group("kubernetes")
NODES, CPUS = 3, 4
PODS = 150
GREEDY = "x = bytearray(300 * 2**20)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(1000)"
SERVER = """
import os, pathlib, socket, sys, time
folder = pathlib.Path(sys.argv[1])
server = socket.create_server(("127.0.0.1", int(os.environ["HTTP"])))
(folder / f"listens-{os.environ['PELOTON_INSTANCE_ID']}").touch()
while not (folder / "enough").exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of four cpus."""
    settings = replace(temporary(tmp_path_factory.mktemp("kubernetes")), kubernetes=0, no_mesos=True)
    with Cluster(settings) as running:
        yield running


@pytest.fixture
def pool(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    return cluster.pool(request.node.name.replace("[", "-").replace("]", ""))


def hosts_of(cluster: Cluster, job: str) -> Counter[str]:
    return Counter(task.runtime.host for task in cluster.tasks(job).values() if task.runtime.host)


def log_of(cluster: Cluster, job: str, instance: int = 0, container: str = "main") -> str:
    """The log of the last run, from the apiserver."""
    pod = cluster.task(job, instance).runtime.mesosTaskId.value
    return cluster.ask_kubernetes(f"/api/v1/namespaces/peloton/pods/{pod}/log?container={container}").decode()


def secrets_there(cluster: Cluster) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in json.loads(cluster.ask_kubernetes("/api/v1/namespaces/peloton/secrets"))["items"]
    ]


def test_a_batch_job_with_overrides_and_retries(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """A job runs on all nodes, with its environment; an override replaces one command, and a second run succeeds."""
    mark = tmp_path / "mark"
    once = f"test -e {mark} || {{ touch {mark}; exit 3; }}; echo again"
    job = cluster.submit(
        pool,
        instanceCount=9,
        defaultConfig=shell('echo "hello from $PELOTON_INSTANCE_ID"', restartPolicy={"maxFailures": 2}),
        instanceConfig={4: {"command": {"shell": True, "value": once}}},
    )

    assert "SUCCEEDED" == cluster.finish(job)
    assert {i: 2 if i == 4 else 1 for i in range(9)} == cluster.run_ids(job)
    assert "hello from 7\n" == log_of(cluster, job, 7)
    assert "again\n" == log_of(cluster, job, 4)


def test_images_that_cannot_be_pulled(cluster: Cluster, pool: str) -> None:
    """Pods that wait for an image report the kubelet's message, and an invalid image name ends its run at once."""
    image_story.pulls_that_fail_are_seen(cluster, pool)
    image_story.a_name_that_is_none_ends_its_run(cluster, pool)


def test_a_pod_beyond_its_memory_limit_fails(cluster: Cluster, pool: str) -> None:
    """Killed by its node, with 137 and a reason."""
    command = f"exec {sys.executable} -c '{GREEDY}'"
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell(command, memory=64))

    assert "FAILED" == cluster.finish(job)
    runtime = cluster.task(job).runtime
    assert 137 == runtime.terminationStatus.exit_code
    assert "OOMKilled" in runtime.message


def test_a_pod_of_several_containers(cluster: Cluster, pool: str) -> None:
    """One container runs before the others, which have each other's ports; the first that fails determines the end, and
    the state of each is reported."""
    other = {
        "name": "proxy",
        "resource": {"cpuLimit": 0.1, "memLimitMb": 16},
        "command": {"shell": True, "value": 'echo "$HTTP $ADMIN"; exit 4'},
        "ports": [{"name": "admin", "envName": "ADMIN"}],
    }
    first = {"name": "setup", "command": {"shell": True, "value": "echo before"}}
    ports = [{"name": "http", "envName": "HTTP"}]
    config = shell("true", containerName="web", ports=ports, otherContainers=[other], initContainers=[first])
    job = cluster.submit(pool, instanceCount=1, defaultConfig=config)

    assert "FAILED" == cluster.finish(job)
    runtime = cluster.task(job).runtime
    assert ("Error", 4) == (runtime.reason, runtime.terminationStatus.exit_code)
    assert runtime.message.startswith("Command exited with status 4 in container proxy")
    assert [("setup", True, "SUCCEEDED"), ("web", False, "SUCCEEDED"), ("proxy", False, "FAILED")] == [
        (container.name, container.init, container.state) for container in runtime.containers
    ]
    allocated = runtime.ports
    assert f"{allocated['http']} {allocated['admin']}\n" == log_of(cluster, job, container="proxy")
    assert "before\n" == log_of(cluster, job, container="setup")


def test_logs_are_followed_by_the_command_line(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """The log is read by way of the api, until the task has ended; the end of its output is in its message."""
    go = tmp_path / "go"
    script = f"echo begin; while [ ! -e {go} ]; do sleep 0.1; done; echo 'no such table: users' >&2; exit 3"
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell(script))
    argv = [sys.executable, "-m", "cli.main", "--address", cluster.local.address, "task", "logs", job, "0", "-f"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        seen = [follower.stdout.readline()]
        go.touch()
        seen += follower.stdout.readlines()

    assert (0, ["begin\n", "no such table: users\n"]) == (follower.returncode, seen)
    assert "FAILED" == cluster.finish(job)
    cluster.wait(lambda: "no such table: users" in cluster.task(job).runtime.message, "the end of its output")


def test_commands_run_in_a_pod(cluster: Cluster, pool: str) -> None:
    """Commands run by way of the api: with our input, separate outputs, and their exit code here; and on a terminal."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("exec sleep 600"))
    cluster.wait(lambda: "RUNNING" in cluster.states(job).values(), "the task to run")
    argv = [sys.executable, "-m", "cli.main", "--address", cluster.local.address, "task", "exec"]
    script = "wc -c; echo $PELOTON_INSTANCE_ID >&2; exit 9"
    done = subprocess.run(
        [*argv, "-i", job, "0", "sh", "-c", script], input=b"x" * 100_000, capture_output=True, timeout=TIMEOUT_S
    )
    assert (9, b"100000", b"0\n") == (done.returncode, done.stdout.strip(), done.stderr)

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*argv, "-it", job, "0"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as client:
        os.close(theirs)
        os.write(ours, b"echo $((6 * 7)); exit 3\n")
        shown = b""
        while b"42" not in shown.replace(b"6 * 7", b""):
            shown += os.read(ours, 1024)
    os.close(ours)
    assert 3 == client.returncode
    stop(cluster, job)


def test_ports_of_pods_on_one_machine_differ(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """Servers of all nodes listen at the same time."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    task = shell(f"{sys.executable} {script} {tmp_path}", ports=[{"name": "http", "envName": "HTTP"}])
    job = cluster.submit(pool, instanceCount=6, defaultConfig=task)

    cluster.wait(lambda: 6 == len(list(tmp_path.glob("listens-*"))), "all servers")
    (tmp_path / "enough").touch()

    assert "SUCCEEDED" == cluster.finish(job)


@NIGHTLY
def test_a_gang_runs_whole(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """A gang has one member on each node; when one fails all run again, and only its failure counts."""
    fails, failed = tmp_path / "fails", tmp_path / "failed"
    once = f"test -e {failed} && exec sleep 1000; while [ ! -e {fails} ]; do sleep 0.1; done; touch {failed}; exit 3"
    job = cluster.submit(
        pool,
        instanceCount=3,
        defaultConfig=shell("sleep 1000", cpu=3, restartPolicy={"maxFailures": 2}),
        instanceConfig={1: {"command": {"shell": True, "value": once}}},
        sla={"minimumRunningInstances": 3},
    )
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 3}, "the gang running")
    assert [1] * NODES == sorted(hosts_of(cluster, job).values())

    fails.touch()

    cluster.wait(lambda: again(cluster, job), "the gang running again")
    assert [1] * NODES == sorted(hosts_of(cluster, job).values())
    assert [0, 1, 0] == [cluster.task(job, i).runtime.failureCount for i in range(3)]
    stop(cluster, job)


def test_a_service_is_rolled_out_in_place(cluster: Cluster, pool: str) -> None:
    """Each instance runs its new version on the node where it was."""
    service = Service(cluster, pool, 4).create().wait_running().wait_update("SUCCEEDED")
    before = {i: pod.host for i, pod in service.pods().items()}

    service.replace("sleep 1001", batch_size=2, in_place=True)
    service.wait_update("SUCCEEDED")

    assert ([2] * 4, dict.fromkeys(range(4), 2)) == (service.versions(), service.runs())
    assert before == {i: pod.host for i, pod in service.pods().items()}
    service.delete(force=True)
    service.wait(lambda: not service.pods(), "the end of its pods")


def test_a_secret_of_a_service_is_rotated(cluster: Cluster, pool: str) -> None:
    """Pods have exactly the bytes that were sent, from a Secret that is deleted when no pod has it any more."""
    service, logs = Service(cluster, pool, 1, f"od -An -tx1 run/key; exec {SLEEP}"), []
    for data in (b"\x00\xffa", b"second"):
        secrets = [Secret(path="/run/key", value=Secret.Value(data=b64encode(data)))]
        service.replace(secrets=secrets) if service.id else service.create(secrets)
        service.wait_update("SUCCEEDED").wait_running()
        cluster.wait(lambda: log_of(cluster, service.id) != "", "what the pod read")
        logs.append(log_of(cluster, service.id).split())

    assert [["00", "ff", "61"], [f"{byte:02x}" for byte in b"second"]] == logs
    [named] = service.get().secrets
    assert ("/run/key", False) == (named.path, named.HasField("value"))
    own = f"peloton-kubernetes-{named.secret_id.value}-0"
    cluster.wait(lambda: [own] == secrets_there(cluster), "the end of the old one")
    service.delete(force=True)


@NIGHTLY
def test_a_pool_gets_back_what_it_lent(cluster: Cluster) -> None:
    """The borrower's pods are evicted without a failure, and run again later."""
    cpus = NODES * CPUS
    cluster.wait(lambda: cluster.capacity() == cpus, "all nodes")
    lender, borrower = cluster.pool("lender", own_cpu=cpus / 2), cluster.pool("borrower", own_cpu=cpus / 2)
    big = cluster.submit(borrower, instanceCount=cpus, defaultConfig=shell(SLEEP, cpu=1))
    cluster.wait(lambda: cluster.counts(big) == {"RUNNING": cpus}, "a full cluster")

    own = cluster.submit(lender, instanceCount=cpus // 2, defaultConfig=shell(SLEEP, cpu=1))

    cluster.wait(lambda: cluster.counts(own) == {"RUNNING": cpus // 2}, "the lender's pods running")
    stop(cluster, own)
    cluster.wait(lambda: cluster.counts(big) == {"RUNNING": cpus}, "the evicted pods running again")
    assert 0 == failures_of(cluster, big)
    stop(cluster, big)


def test_a_node_is_drained_for_maintenance(cluster: Cluster, pool: str) -> None:
    """Pods of a drained node run elsewhere without a failure, and it is cordoned until its maintenance is complete."""
    job = cluster.submit(pool, instanceCount=9, defaultConfig=shell(SLEEP, cpu=0.5))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 9}, "all pods running")
    host = next(iter(hosts_of(cluster, job)))

    cluster.client.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=host))

    cluster.wait(lambda: state_of(cluster, host) == "DOWN", "the node down")
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 9}, "all pods running elsewhere")
    assert host not in hosts_of(cluster, job)
    assert json.loads(cluster.ask_kubernetes(f"/api/v1/nodes/{host}"))["spec"]["unschedulable"]
    assert 0 == failures_of(cluster, job)
    cluster.client.hosts.CompleteMaintenance(host_svc_pb2.CompleteMaintenanceRequest(hostname=host))
    cluster.wait(lambda: state_of(cluster, host) == "UP", "the node up")
    assert cluster.takes_pods(pool, host)
    stop(cluster, job)


def state_of(cluster: Cluster, host: str) -> str:
    infos = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
    found = {info.hostname: info.state for info in infos}
    return host_pb2.HostState.Name(found[host]).removeprefix("HOST_STATE_") if host in found else ""


# Changes by other clients of the cluster.


@pytest.fixture
def kubectl(cluster: Cluster) -> Iterator[Client]:
    assert cluster.local.kubernetes is not None
    with Client(login_of(cluster.local.kubernetes.kubeconfig)) as client:
        yield client


def test_a_user_deletes_all_pods(cluster: Cluster, pool: str, kubectl: Client) -> None:
    """A service comes back, and so does a batch job that allows failures, without counting one; another one ends."""
    workloads = Workloads.running(cluster, pool)

    reply = kubectl.ask("DELETE", "/api/v1/namespaces/peloton/pods")

    assert HTTPStatus.OK == reply.status
    workloads.check_removed()
    workloads.end()


def test_a_user_deletes_the_namespace(cluster: Cluster, pool: str, kubectl: Client) -> None:
    """The namespace is created again for the first pod that needs it, and all pods that may run again do."""
    workloads = Workloads.running(cluster, pool)

    reply = kubectl.ask("DELETE", "/api/v1/namespaces/peloton")

    assert HTTPStatus.OK == reply.status
    workloads.check_removed()
    workloads.end()


def test_a_user_deletes_a_node(cluster: Cluster, pool: str, kubectl: Client) -> None:
    """Pods of a deleted node run elsewhere, including pods of a batch job that allows no failure: they have none."""
    assert cluster.local.kubernetes is not None
    job = cluster.submit(pool, instanceCount=6, defaultConfig=shell(SLEEP, cpu=0.5))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 6}, "all pods running")
    host = min(hosts_of(cluster, job))

    cluster.local.kubernetes.act_on_node(host, "stop")
    assert HTTPStatus.OK == kubectl.ask("DELETE", f"/api/v1/nodes/{host}").status

    cluster.wait(
        lambda: cluster.counts(job) == {"RUNNING": 6} and host not in hosts_of(cluster, job), "all pods elsewhere"
    )
    assert 0 == failures_of(cluster, job)
    cluster.local.kubernetes.act_on_node(host, "start")
    assert cluster.takes_pods(pool, host)
    stop(cluster, job)


def test_a_user_drains_a_node(cluster: Cluster, pool: str, kubectl: Client) -> None:
    """Pods of a service leave no faster than its SLA allows and come back elsewhere; pods of a batch job leave at once,
    also without retries."""
    drain_by_another_client(cluster, pool, kubectl, "peloton")


@pytest.mark.parametrize("victim", ["hostmgr-kubernetes", nightly("kubernetes")])
def test_a_job_survives_the_death_of(victim: str, cluster: Cluster, pool: str) -> None:
    """Every pod runs to success although the process is killed half-way, and no run is launched twice; pods that die
    with the emulation count no failure."""
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 0.1", cpu=0.1, memory=16))
    cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= PODS // 5, "a fifth of the pods done")

    cluster.kill(victim)

    assert "SUCCEEDED" == cluster.finish(job)
    assert {"SUCCEEDED": PODS} == cluster.counts(job)
    assert 0 == failures_of(cluster, job)
    assert [] == list_launched_twice(cluster, job, PODS)
