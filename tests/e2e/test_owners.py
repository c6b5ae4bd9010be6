"""Users of one cluster: their jobs, schedules and quotas, and events that name them, over all processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import NO_RETRIES, Client
from tests.e2e.local import Cluster, job_config, shell, temporary

QUOTA = 3
Tokens = dict[str, str]


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    found, lines = {}, []
    for name in ("ann", "bob"):
        found[name], row = make_token(name, CallerKind.USER, (), 0.0, time.time(), os.urandom(RANDOM_BYTES))
        lines.append(row.to_line())
    (tmp_path / "tokens").write_text("\n".join(lines))
    (tmp_path / "roles").write_text('[[binding]]\nrole = "admin"\nsubjects = ["*"]\npools = ["/"]\n')
    return found


@pytest.fixture
def cluster(tmp_path: Path, tokens: Tokens) -> Iterator[Cluster]:
    environment = {
        "PELOTON_AUTH_TOKENS_FILE": str(tmp_path / "tokens"),
        "PELOTON_AUTH_ROLES_FILE": str(tmp_path / "roles"),
        "PELOTON_AUTH_ANONYMOUS": "admin",  # for the steps of these tests that are about no user
        "PELOTON_QUOTA_ACTIVE_PODS": str(QUOTA),
    }
    with Cluster(temporary(tmp_path / "data", environment=environment)) as cluster:
        yield cluster


def test_users_of_one_cluster(cluster: Cluster, tokens: Tokens) -> None:
    """The jobs of a schedule belong to its creator and count for the quota; others are named where they act."""
    ann, bob = (Client(cluster.local.address, token=tokens[name], retry=NO_RETRIES) for name in ("ann", "bob"))
    pool = cluster.pool("maps")
    sleeps = job_config(pool, instanceCount=2, defaultConfig=shell("sleep 600"))
    schedule = schedule_pb2.CreateScheduleRequest(
        name="report", job_config=sleeps, overlap=schedule_pb2.OVERLAP_ALLOW_ALL
    )
    schedule.times.interval_s = 86_400 * 300
    ann.schedules.CreateSchedule(schedule)

    def runs() -> dict[str, schedule_pb2.Run]:
        found = bob.schedules.GetSchedule(schedule_pb2.GetScheduleRequest(name="report")).schedule.runs
        return {run.state: run for run in found}

    bob.schedules.TriggerSchedule(schedule_pb2.TriggerScheduleRequest(name="report"))
    cluster.wait(lambda: bool(runs().get("RUNNING") and runs()["RUNNING"].job_id), "a run with its job")
    job_id = JobID(value=runs()["RUNNING"].job_id)
    cluster.wait(lambda: cluster.counts(job_id.value).get("RUNNING") == 2, "both pods of the run")
    bob.schedules.TriggerSchedule(schedule_pb2.TriggerScheduleRequest(name="report"))
    cluster.wait(lambda: "REFUSED" in runs(), "a run beyond the quota")
    with pytest.raises(grpc.RpcError) as refused:
        ann.jobs.Create(job_pb2.CreateRequest(config=sleeps))

    text = "user ann has 2 active pods, and 2 more would exceed the quota of 3; the rule is PELOTON_QUOTA_ACTIVE_PODS"
    assert (text, text) == (runs()["REFUSED"].reason, refused.value.details())
    assert "ann" == bob.jobs.Get(job_pb2.GetRequest(id=job_id)).jobInfo.creator

    one = task_pb2.InstanceRange(**{"from": 0, "to": 1})
    bob.tasks.Stop(task_pb2.StopRequest(jobId=job_id, ranges=[one]))
    events = bob.tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=job_id, instanceId=0)).result
    host = cluster.task(job_id.value, 1).runtime.host
    bob.hosts.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostnames=[host]))
    asked = [what for kind, what in cluster.host_events(host) if "requested" in what]
    assert "Task stop API request by bob" in [event.message for event in events]
    assert ["Maintenance requested by bob"] == asked
    ann.tasks.Stop(task_pb2.StopRequest(jobId=job_id))
    cluster.finish(job_id.value)
