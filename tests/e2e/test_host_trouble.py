"""Hosts that operators of Mesos drain: pods run elsewhere, and no failure is counted for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from services.hostmgr.mesos.operator import Operator
from tests.e2e.local import Cluster, bound_to, shell
from tests.e2e.service import Service, hosts_of
from tests.e2e.shared import FIVE_HOSTS, Lend
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("services")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(FIVE_HOSTS) as running:
        yield running


def agents(cluster: Cluster) -> dict[str, str]:
    """Agent ids by host."""
    answer = Operator().call(cluster.local.mesos, {"type": "GET_AGENTS"})["get_agents"]["agents"]
    return {agent["agent_info"]["hostname"]: agent["agent_info"]["id"]["value"] for agent in answer}


def ask(cluster: Cluster, call: str, host: str, **body: object) -> None:
    agent = {"agent_id": {"value": agents(cluster)[host]}}
    Operator().call(cluster.local.mesos, {"type": call, call.lower(): {**agent, **body}})


@NIGHTLY
def test_pods_of_a_host_that_mesos_drains_move(cluster: Cluster) -> None:
    """A batch job that allows no failure and a service run on elsewhere, say why they moved, and count nothing; the
    host takes pods again once it is reactivated."""
    pool = cluster.pool("drained")
    spread: dict[str, Any] = {"placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB"}
    batch = cluster.submit(pool, instanceCount=6, defaultConfig=shell("sleep 1000", cpu=0.2), **spread)
    cluster.wait(lambda: cluster.counts(batch) == {"RUNNING": 6}, "the job to run")
    service = Service(cluster, pool, 3).create().wait_running()  # at once both would be given hosts of their own
    host = hosts_of(service)[0]
    moved = {i for i, task in cluster.tasks(batch).items() if task.runtime.host == host}
    assert moved

    ask(cluster, "DRAIN_AGENT", host, max_grace_period={"seconds": 1})
    cluster.wait(lambda: host not in {t.runtime.host for t in cluster.tasks(batch).values()}, "all to leave")
    cluster.wait(lambda: cluster.counts(batch) == {"RUNNING": 6}, "the job to run elsewhere")
    cluster.wait(lambda: host not in hosts_of(service), "the service to leave")
    service.wait_running()

    after = cluster.tasks(batch)
    assert {0} == {task.runtime.failureCount for task in after.values()}
    assert moved == {i for i, run in cluster.run_ids(batch).items() if run > 1}
    events = task_pb2.GetPodEventsRequest(
        jobId=peloton_pb2.JobID(value=batch), instanceId=min(moved), runId=f"{batch}-{min(moved)}-1"
    )
    killed = [event for event in cluster.client.tasks.GetPodEvents(events).result if event.actualState == "KILLED"]
    assert ["REASON_AGENT_DRAINING"] == [event.reason for event in killed]
    cluster.wait(lambda: "drained" in cluster.list_avoided().get(host, ""), "the host to be shown as drained")

    ask(cluster, "REACTIVATE_AGENT", host)
    cluster.wait(lambda: not cluster.list_avoided(), "the host to be back")
    cluster.wait(lambda: "UNCORDONED" in dict(cluster.host_events(host)), "an event of that")
    reported = dict(cluster.host_events(host))
    why = "an operator of Mesos (drains it|has drained it, and must reactivate it)"  # as it was seen first, and last
    assert re.fullmatch(f"Takes no pods: {why}", reported["CORDONED"])
    assert re.fullmatch(f"Takes pods again; it did not before: {why}", reported["UNCORDONED"])
    again = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true", **bound_to("hostname", host)))
    assert "SUCCEEDED" == cluster.finish(again)
    service.stop()
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=batch)))
    assert "KILLED" == cluster.finish(batch)
