"""Discovery for gangs from end to end: members find each other by what they were launched with, on Mesos and on
Kubernetes, and again after a member or the host manager is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.gang import gang_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.local import Cluster, bound_to, shell, temporary
from tests.messages import instance_range

SIZE = 3
HOST_MANAGERS = {"local": "hostmgr", "kubernetes": "hostmgr-kubernetes"}

MEET = """
import os, socket, time
own = os.environ
rank, size = int(own["RANK"]), int(own["WORLD_SIZE"])
if rank == 0:
    server = socket.create_server(("127.0.0.1", int(own["GANG_PORT"])))
    joined = [server.accept()[0] for _ in range(size - 1)]
    found = sorted([0, *(int(each.recv(9)) for each in joined)])
    for each in joined:
        each.sendall(str(found).encode())
else:
    while True:
        try:
            peer = socket.create_connection((own["MASTER_ADDR"], int(own["MASTER_PORT"])))
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(str(rank).encode())
    found = peer.recv(99).decode()
print("generation", own["PELOTON_GANG_GENERATION"], "met", found, flush=True)
print("peers", own["PELOTON_GANG_PEERS"], flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts and three nodes, whose pods are processes."""
    folder = tmp_path_factory.mktemp("discovery")
    hosts = folder / "hosts.yaml"
    hosts.write_text(yaml.safe_dump([{"name": f"h{n}", "cpus": 4, "mem": 2048} for n in range(2)]))
    with Cluster(temporary(folder / "data", hosts_file=hosts, kubernetes=0)) as running:
        running.wait(lambda: running.capacity() > 8, "the capacity of both clusters")
        yield running


def command(folder: Path) -> str:
    """Return a command that meets the other members, keeps the file of hosts until it is complete, and writes what it
    saw to a file in the folder."""
    (folder / "meet.py").write_text(MEET)
    hosts, out = (f"{folder}/{name}-$PELOTON_GANG_GENERATION-$PELOTON_INSTANCE_ID" for name in ("hosts", "out"))
    root = Path(__file__).parents[2]
    return (
        f"{sys.executable} {folder}/meet.py > {out}.part && "
        f"(PYTHONPATH={root} {sys.executable} -m peloton.client.gang --file {hosts} --format hosts &) && "
        f"until [ -e {hosts} ] && [ $(wc -l < {hosts}) = {SIZE} ]; do sleep 0.2; done && "
        f"echo hosts $(cat {hosts}) >> {out}.part && mv {out}.part {out} && sleep 1000"
    )


def get_gang(cluster: Cluster, job: str) -> gang_pb2.GetGangResponse:
    return cluster.client.gangs.GetGang(gang_pb2.GetGangRequest(jobId=peloton_pb2.JobID(value=job)))


def check_met(cluster: Cluster, folder: Path, job: str, generation: int) -> None:
    """Wait until each member of a generation has met the others and has the file of hosts, and compare the API."""
    met = f"generation {generation} met {list(range(SIZE))}"
    files = [folder / f"out-{generation}-{instance}" for instance in range(SIZE)]
    cluster.wait(lambda: all(file.exists() for file in files), f"a meeting of generation {generation}")
    logs = [file.read_text().splitlines() for file in files]
    gang = get_gang(cluster, job)
    peers = [f"{member.address}:{member.port}" for member in gang.members]

    assert [met] * SIZE == [log[0] for log in logs]
    assert [f"peers {','.join(peers)}"] * SIZE == [log[1] for log in logs]
    assert [f"hosts {' '.join(peers)}"] * SIZE == [log[2] for log in logs]
    assert (generation, SIZE, list(range(SIZE))) == (
        gang.generation,
        gang.minimum,
        [member.rank for member in gang.members if member.isLive],
    )


@pytest.mark.parametrize("kind", HOST_MANAGERS)
def test_members_meet(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    """The host manager is killed when the gang is admitted, and later a member is killed: all members of the next
    generation meet again, at other addresses or the same."""
    own = bound_to("peloton/cluster", kind)
    ports = [{"name": "gang", "envName": "GANG_PORT"}]
    labels = [{"key": "peloton.gang", "value": "torch"}]
    task = shell(
        command(tmp_path), cpu=1, memory=64, ports=ports, labels=labels, restartPolicy={"maxFailures": 3}, **own
    )
    sla = {"minimumRunningInstances": SIZE}
    job = cluster.submit(cluster.pool(f"meeting-{kind}"), instanceCount=SIZE, defaultConfig=task, sla=sla)
    cluster.wait(lambda: bool(set(cluster.states(job).values()) - {"INITIALIZED", "PENDING"}), "the admission")
    cluster.kill(HOST_MANAGERS[kind])

    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": SIZE}, "all of the gang running")
    generation = get_gang(cluster, job).generation
    check_met(cluster, tmp_path, job, generation)
    before = get_gang(cluster, job).revision

    cluster.client.tasks.Restart(
        task_pb2.RestartRequest(jobId=peloton_pb2.JobID(value=job), ranges=[instance_range(1, 2)])
    )
    cluster.wait(lambda: get_gang(cluster, job).generation == generation + 1, "the next generation")
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": SIZE}, "all of the gang running again")

    check_met(cluster, tmp_path, job, generation + 1)
    assert before != get_gang(cluster, job).revision
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"
