"""Oversubscription from end to end, with real processes that are measured: what an idle pod holds and does not use
runs revocable pods, which leave when it wakes up and come back when it is idle again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell, temporary
from tests.nightly import nightly

# One busy process is far more than this host has, also on a busy machine.
HOST = {"name": "small", "cpus": 0.2, "mem": 512, "disk": 4096}
SOON = {
    "PELOTON_AGENTS_PERIOD_S": "0.5",
    "PELOTON_KUBERNETES_SLACK_PERIOD_S": "1",
    "PELOTON_QOS_PERIOD_S": "0.5",
    "PELOTON_QOS_CLOSED_S": "5",
}


@pytest.fixture(params=["mesos", nightly("kubernetes")])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one host on Mesos, or of three larger nodes on Kubernetes."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(yaml.safe_dump([HOST]))
    settings = temporary(tmp_path / "data", hosts_file=hosts, slack_interval_s=1.0, environment=SOON)
    if request.param == "kubernetes":
        settings = replace(settings, hosts_file=None, kubernetes=0, no_mesos=True)
    with Cluster(settings) as running:
        yield running


def pool(cluster: Cluster) -> str:
    """Revocable pods may borrow all of its memory and disk."""
    config = respool_pb2.ResourcePoolConfig(
        name="shared",
        parent=peloton_pb2.ResourcePoolID(value="root"),
        slackLimit=respool_pb2.SlackLimit(maxPercent=100),
    )
    for kind, amount in (("cpu", 0.2), ("memory", 512), ("disk", 4096)):
        config.resources.add(kind=kind, reservation=amount, limit=amount, share=1)
    answer = cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer.error
    return str(answer.result.value)


def why(cluster: Cluster, job: str) -> str:
    return cluster.client.explain.JobWhy(explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job))).text


def evictions(cluster: Cluster, job: str) -> list[tuple[int, str, str]]:
    """Instance, message and reason of each eviction in the events of the job's pods."""
    storage = Storage(cluster.local.database)
    try:
        return [
            (pod.instance_id, event.message, event.reason)
            for pod in storage.pods.page(JobId(job))
            for event in storage.pods.events(pod.job_id, pod.instance_id, None, 0)
            if event.state == "PREEMPTING"
        ]
    finally:
        storage.close()


def host(cluster: Cluster, name: str) -> host_pb2.HostInfo:
    infos = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
    return next(info for info in infos if info.hostname == name)


def test_revocable_pods_live_on_what_others_leave(cluster: Cluster, tmp_path: Path) -> None:
    """Two revocable pods run alongside an idle one, on its slack; when it begins to work they are evicted, and it is
    not; while it works they wait for slack; when it rests they run again, without having failed."""
    shared, busy = pool(cluster), tmp_path / "busy"
    slack = cluster.submit(
        shared, instanceCount=2, sla={"revocable": True}, defaultConfig=shell("while :; do sleep 1; done", cpu=0.06)
    )
    cluster.wait(lambda: "the hosts have cpu 0 of it" in why(cluster, slack), "slack is lacking")
    loop = f"while :; do if [ -e {busy} ]; then :; else sleep 1; fi; done"
    work = f"({loop}) & ({loop}) & {loop}"
    ordinary = cluster.submit(shared, instanceCount=1, defaultConfig=shell(work, cpu=0.2))
    cluster.wait(lambda: cluster.counts(ordinary) == {"RUNNING": 1}, "the ordinary pod running")

    cluster.wait(lambda: cluster.counts(slack) == {"RUNNING": 2}, "revocable pods on its slack")
    before = cluster.run_ids(slack)
    name = cluster.task(ordinary).runtime.host
    assert {task.runtime.host for task in cluster.tasks(slack).values()} == {name}
    assert evictions(cluster, slack) == []
    cluster.wait(lambda: host(cluster, name).HasField("used"), "a measurement of the host")
    cluster.wait(lambda: host(cluster, name).slack_held_cpu == 0.12, "both pods on the slack of the host")
    assert host(cluster, name).slack_cpu > 0

    busy.touch()
    cluster.wait(lambda: cluster.counts(slack).get("RUNNING", 0) == 0, "no revocable pod running")
    cluster.wait(lambda: "admitted revocable instances hold 0" in why(cluster, slack), "the reason why they wait")
    reported = evictions(cluster, slack)
    assert sorted({instance for instance, _, _ in reported}) == [0, 1]
    assert {reason for _, _, reason in reported} == {"EvictionReason_QOS"}
    assert all(message.startswith(f"evicting running task: host {name} ") for _, message, _ in reported)

    busy.unlink()
    cluster.wait(lambda: cluster.counts(slack) == {"RUNNING": 2}, "revocable pods running again")
    after = cluster.run_ids(slack)
    assert all(after[instance] > before[instance] for instance in after)
    assert (cluster.counts(ordinary), cluster.run_ids(ordinary)) == ({"RUNNING": 1}, {0: 1})
    assert [task.runtime.failureCount for task in cluster.tasks(slack).values()] == [0, 0]
