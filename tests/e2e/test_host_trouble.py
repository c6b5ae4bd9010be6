"""Hosts that operators of Mesos take away, and hosts on which nothing runs well: pods go elsewhere, and do not pay."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.task import task_pb2
from services.hostmgr.mesos.operator import Operator
from tests.e2e.local import Cluster, bound_to, shell, temporary
from tests.e2e.service import Service, hosts_of
from tests.e2e.test_faults import control

pytestmark = pytest.mark.xdist_group("host-trouble")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(temporary(tmp_path_factory.mktemp("host-trouble"))) as running:
        yield running


def agents(cluster: Cluster) -> dict[str, str]:
    """Agent ids by host."""
    answer = Operator().call(cluster.local.mesos, {"type": "GET_AGENTS"})["get_agents"]["agents"]
    return {agent["agent_info"]["hostname"]: agent["agent_info"]["id"]["value"] for agent in answer}


def ask(cluster: Cluster, call: str, host: str, **body: object) -> None:
    agent = {"agent_id": {"value": agents(cluster)[host]}}
    Operator().call(cluster.local.mesos, {"type": call, call.lower(): {**agent, **body}})


def avoided(cluster: Cluster) -> dict[str, str]:
    """Hosts that are avoided, and why."""
    infos = cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
    return {info.hostname: info.avoided for info in infos if info.avoided}


def test_pods_of_a_host_that_mesos_drains_move(cluster: Cluster) -> None:
    """A batch job that allows no failure and a service run on elsewhere, say why they moved, and count nothing; the
    host takes pods again once it is reactivated."""
    pool = cluster.pool("drained")
    spread = {"placementStrategy": "PLACEMENT_STRATEGY_SPREAD_JOB"}
    batch = cluster.submit(pool, instanceCount=6, defaultConfig=shell("sleep 1000", cpu=0.2), **spread)
    service = Service(cluster, pool, 3).create()
    cluster.wait(lambda: cluster.counts(batch) == {"RUNNING": 6}, "the job to run")
    service.wait_running()
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
        jobId={"value": batch}, instanceId=min(moved), runId=f"{batch}-{min(moved)}-1"
    )
    told = [event for event in cluster.client.tasks.GetPodEvents(events).result if event.actualState == "KILLED"]
    assert ["REASON_AGENT_DRAINING"] == [event.reason for event in told]
    cluster.wait(lambda: "drained" in avoided(cluster).get(host, ""), "the host to be shown as drained")

    ask(cluster, "REACTIVATE_AGENT", host)
    cluster.wait(lambda: not avoided(cluster), "the host to be back")
    cluster.wait(lambda: "UNCORDONED" in dict(cluster.host_events(host)), "an event of that")
    told = dict(cluster.host_events(host))
    why = "an operator of Mesos (drains it|has drained it, and must reactivate it)"  # as it was seen first, and last
    assert re.fullmatch(f"Takes no pods: {why}", told["CORDONED"])
    assert re.fullmatch(f"Takes pods again, before not: {why}", told["UNCORDONED"])
    again = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true", **bound_to("hostname", host)))
    assert "SUCCEEDED" == cluster.finish(again)
    service.stop()
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId={"value": batch}))
    assert "KILLED" == cluster.finish(batch)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three simulated hosts, one of which is about to fall ill."""
    with Cluster(temporary(tmp_path_factory.mktemp("farm"), simulate=3)) as running:
        yield running


@pytest.fixture
def sick(farm: Cluster) -> Iterator[str]:
    """A host on which every pod fails at once."""
    control(farm, "sicken", "sim-00001")
    yield "sim-00001"
    control(farm, "heal", "sim-00001")


def failures(cluster: Cluster, job: str) -> list[int]:
    """Of each pod."""
    return [task.runtime.failureCount for task in cluster.tasks(job).values()]


def hosts_used(cluster: Cluster, job: str) -> set[str]:
    return {task.runtime.host for task in cluster.tasks(job).values()}


def test_a_sick_host_does_not_burn_a_job(farm: Cluster, sick: str) -> None:
    """At most a third of the pods fail where everything fails, once; then the job keeps away from there, although the
    other hosts are full for longer than its retries wait."""
    pool, twentieth = farm.pool("burnt"), farm.capacity() / 3 / 20
    task = shell("sleep 12", cpu=twentieth, restartPolicy={"maxFailures": 3})

    job = farm.submit(pool, instanceCount=60, defaultConfig=task)

    assert "SUCCEEDED" == farm.finish(job)
    assert {0, 1} == set(failures(farm, job))
    assert 20 >= sum(failures(farm, job))
    assert sick not in hosts_used(farm, job)


def test_a_host_on_which_several_jobs_fail_is_avoided(farm: Cluster, sick: str) -> None:
    """Jobs that have never been there keep away, and it is said why; what can run nowhere else runs there anyway."""
    pool = farm.pool("avoiding")
    there = bound_to("hostname", sick)
    for _ in range(2):
        job = farm.submit(pool, instanceCount=3, defaultConfig=shell("true", **there))
        assert "FAILED" == farm.finish(job)

    assert re.match(r"after \d+ pods of \d jobs failed there within 1 s, until 2", avoided(farm)[sick])
    farm.wait(lambda: any(kind == "AVOIDED" for kind, _ in farm.host_events(sick)), "an event of that")
    told = [text for kind, text in farm.host_events(sick) if kind == "AVOIDED"]
    assert re.match(r"Avoided for \d+ (s|min) after \d+ pods of \d jobs failed there within 1 s$", told[-1])
    elsewhere = farm.submit(pool, instanceCount=20, defaultConfig=shell("sleep 1", cpu=0.1))
    assert "SUCCEEDED" == farm.finish(elsewhere)
    assert sick not in hosts_used(farm, elsewhere)

    control(farm, "heal", sick)
    bound = farm.submit(pool, instanceCount=1, defaultConfig=shell("true", **there))
    assert "SUCCEEDED" == farm.finish(bound)
    assert [sick] == [*avoided(farm)]
