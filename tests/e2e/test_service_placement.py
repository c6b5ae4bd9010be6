"""Placement of services against a whole cluster: one pod per host by label, and updates in place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import THREE_HOSTS, Lend

WEB = {"key": "service", "value": "web"}
ONE_PER_HOST = {
    "type": "LABEL_CONSTRAINT",
    "labelConstraint": {"kind": "TASK", "condition": "CONDITION_LESS_THAN", "label": WEB, "requirement": 1},
}

pytestmark = pytest.mark.xdist_group("batch")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        yield running


def service(cluster: Cluster, pool: str, count: int, **task: Any) -> str:
    config = shell("sleep 1000", **task)
    return cluster.submit(pool, type="SERVICE", instanceCount=count, defaultConfig=config)


def pod_hosts(cluster: Cluster, job: str) -> dict[int, str]:
    return {i: task.runtime.host for i, task in cluster.tasks(job).items()}


def why(cluster: Cluster, job: str) -> dict[str, Any]:
    """The reasons why pods of the job found no host."""
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, "--json", "job", "why", job])
    assert result.exit_code == 0, result.output
    reasons: list[dict[str, Any]] = json.loads(result.stdout).get("reasons", [])
    return next((reason for reason in reasons if reason["rule"] == "RULE_NO_HOST"), {})


def stop(cluster: Cluster, *jobs: str) -> None:
    for job in jobs:
        current = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job))).jobInfo
        cluster.client.jobs.Stop(
            job_pb2.StopRequest(id=peloton_pb2.JobID(value=job), resourceVersion=current.config.changeLog.version)
        )
        cluster.wait(lambda job=job: set(cluster.counts(job)) == {"KILLED"}, "all stopped")


def test_one_pod_per_host(cluster: Cluster) -> None:
    """Three instances run on three hosts; a fourth waits with the rule and the hosts that fail it, as does one of
    another job with the same label, until a host has none any more."""
    pool = cluster.pool("labels")
    first = service(cluster, pool, 2, labels=[WEB], constraint=ONE_PER_HOST)
    second = service(cluster, pool, 2, labels=[WEB], constraint=ONE_PER_HOST)
    cluster.wait(lambda: running(cluster, first) + running(cluster, second) == 3, "three running")
    full, waiter = sorted((first, second), key=lambda job: -running(cluster, job))

    expected = [{"hostCount": 3, "rule": "pods with service=web < 1 not met"}]
    cluster.wait(lambda: why(cluster, waiter).get("refusingHosts") == expected, "the rule with its hosts")
    taken = [host for job in (first, second) for host in pod_hosts(cluster, job).values() if host]
    assert ["h0", "h1", "h2"] == sorted(taken)

    cluster.stop_part("hostmgr", now=True)  # the next one knows them from storage
    cluster.start_part("hostmgr")
    stop(cluster, full)
    cluster.wait(lambda: running(cluster, waiter) == 2, "the fourth running")
    assert 2 == len(set(pod_hosts(cluster, waiter).values()))
    stop(cluster, waiter)


def running(cluster: Cluster, job: str) -> int:
    return cluster.counts(job).get("RUNNING", 0)


def test_an_update_in_place_while_others_want_the_capacity(cluster: Cluster) -> None:
    """Each instance takes three of four cpus of a host; a batch pod that requires two waits for the first that goes and
    is not placed on the cpus that it leaves."""
    cluster.wait(lambda: cluster.capacity() == 12, "all hosts, known to a new host manager")
    web = service(cluster, cluster.pool("web", own_cpu=9), 3, cpu=3)
    cluster.wait(lambda: running(cluster, web) == 3, "the service running")
    before = pod_hosts(cluster, web)
    batch = cluster.submit(cluster.pool("batch"), instanceCount=1, defaultConfig=shell("sleep 1000", cpu=2))
    cluster.wait(lambda: bool(why(cluster, batch)), "the batch pod admitted without a host")

    config = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=web))).jobInfo.config
    config.defaultConfig.command.value = "sleep 2000"
    asked = update_pb2.UpdateConfig(batchSize=1, inPlace=True)
    request = update_svc_pb2.CreateUpdateRequest(
        jobId=peloton_pb2.JobID(value=web), jobConfig=config, updateConfig=asked
    )
    update_id = cluster.client.updates.CreateUpdate(request).updateID

    look = update_svc_pb2.GetUpdateRequest(updateId=update_id)  # counts of the job may be older
    cluster.wait(
        lambda: cluster.client.updates.GetUpdate(look).updateInfo.status.state == update_pb2.SUCCEEDED, "all updated"
    )
    assert dict.fromkeys(range(3), 2) == cluster.run_ids(web)
    assert before == pod_hosts(cluster, web)
    assert 0 == running(cluster, batch)
    stop(cluster, web)
    cluster.wait(lambda: running(cluster, batch) == 1, "the batch pod running")
