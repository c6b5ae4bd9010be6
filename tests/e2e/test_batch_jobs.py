"""Stories of batch jobs on the whole system: real Temporal, emulated Mesos, real processes, all our roles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.local import MESOS, Cluster, on_real_mesos, shell
from tests.e2e.shared import THREE_HOSTS, Lend
from tests.messages import instance_range

pytestmark = pytest.mark.xdist_group("batch")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    """The emulated cluster, or the real Mesos that PELOTON_TEST_MESOS=host:port names."""
    with on_real_mesos() if MESOS else lend(THREE_HOSTS) as running:
        yield running


@pytest.fixture(scope="module")
def pool(cluster: Cluster) -> str:
    return cluster.pool("stories")


def test_a_job_runs_real_processes_and_shows_their_output(cluster: Cluster, pool: str) -> None:
    """Ten instances run to success on three hosts, and each one's stdout can be read."""
    job = cluster.submit(pool, instanceCount=10, defaultConfig=shell('echo "hello from $PELOTON_INSTANCE_ID"'))

    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.counts(job) == {"SUCCEEDED": 10}
    assert "hello from 7\n" in cluster.log_of(job, 7)


def test_instance_configs_are_merged_over_the_default(cluster: Cluster, pool: str) -> None:
    """An override replaces the command of its instance only."""
    job = cluster.submit(
        pool,
        instanceCount=3,
        defaultConfig=shell("echo default"),
        instanceConfig={1: {"command": {"shell": True, "value": "echo override"}}},
    )

    assert cluster.finish(job) == "SUCCEEDED"
    assert [cluster.log_of(job, i).split()[-1] for i in range(3)] == ["default", "override", "default"]


def test_a_failing_instance_is_retried_up_to_its_bound(cluster: Cluster, pool: str) -> None:
    """A job with maxFailures 3 has three runs and fails; the last run has exit code and run id."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("exit 3", restartPolicy={"maxFailures": 3}))

    assert cluster.finish(job) == "FAILED"
    runtime = cluster.task(job).runtime
    assert (runtime.failureCount, runtime.terminationStatus.exit_code) == (3, 3)
    assert cluster.run_ids(job) == {0: 3}


def test_a_retry_may_succeed(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """The second run finds the mark of the first and succeeds."""
    mark = tmp_path / "mark"
    command = f"test -e {mark} || {{ touch {mark}; exit 1; }}"
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell(command, restartPolicy={"maxFailures": 2}))

    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.run_ids(job) == {0: 2}


def test_no_more_instances_run_than_allowed(cluster: Cluster, pool: str) -> None:
    """A job with maximumRunningInstances 2 never has more than two of its six instances beyond INITIALIZED and
    unfinished."""
    job = cluster.submit(pool, instanceCount=6, sla={"maximumRunningInstances": 2}, defaultConfig=shell("sleep 0.5"))
    most = 0
    idle = {"INITIALIZED", "SUCCEEDED"}

    def has_ended() -> bool:
        nonlocal most
        most = max(most, sum(state not in idle for state in cluster.states(job).values()))
        return cluster.job_state(job) == "SUCCEEDED"

    cluster.wait(has_ended, "the end of the job")
    assert most == 2


def test_the_controller_decides_how_its_job_ends(cluster: Cluster, pool: str) -> None:
    """Instance 0 succeeds and a worker fails: the job has succeeded."""
    job = cluster.submit(
        pool,
        instanceCount=2,
        defaultConfig=shell("exit 1"),
        instanceConfig={0: {"controller": True, "command": {"shell": True, "value": "true"}}},
    )

    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.counts(job) == {"SUCCEEDED": 1, "FAILED": 1}


def test_dynamic_ports_are_assigned_and_passed_on(cluster: Cluster, pool: str) -> None:
    """Two instances on one host have different ports, in the environment and in the runtime."""
    ports = [{"name": "http", "value": 0, "envName": "HTTP_PORT"}]
    job = cluster.submit(pool, instanceCount=4, defaultConfig=shell("echo $HTTP_PORT; sleep 1", ports=ports))

    assert cluster.finish(job) == "SUCCEEDED"
    reported = [cluster.log_of(job, i).split()[-1] for i in range(4)]
    assert [str(cluster.task(job, i).runtime.ports["http"]) for i in range(4)] == reported
    hosts = [cluster.task(job, i).runtime.host for i in range(4)]
    assert len(set(zip(hosts, reported, strict=True))) == 4


def test_a_static_port_is_used_once_at_a_time_on_a_host(cluster: Cluster, pool: str) -> None:
    """Instances wait while a static port is in use on all hosts; none shares a host with another."""
    ports = [{"name": "fix", "value": 8080, "envName": "FIX"}]
    job = cluster.submit(pool, instanceCount=5, defaultConfig=shell("echo $FIX; sleep 0.5", ports=ports))

    assert cluster.finish(job) == "SUCCEEDED"
    assert ["8080"] * 5 == [cluster.log_of(job, i).split()[-1] for i in range(5)]
    runs = [cluster.task(job, i).runtime for i in range(5)]
    for host in {run.host for run in runs}:
        spans = sorted((run.startTime, run.completionTime) for run in runs if run.host == host)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_stopped_job_ends_killed_and_its_processes_with_it(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """A stop reaches running instances (SIGTERM, then their end) and waiting ones."""
    ready, mark = tmp_path / "ready", tmp_path / "terminated"
    trap = f"trap 'echo $PELOTON_INSTANCE_ID >> {mark}; exit 0' TERM"
    command = f"{trap}; echo >> {ready}; while true; do sleep 0.1; done"
    job = cluster.submit(pool, instanceCount=4, defaultConfig=shell(command, cpu=1))
    cluster.wait(lambda: ready.exists() and ready.read_text() == "\n" * 4, "four instances with their traps")

    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))

    assert cluster.finish(job) == "KILLED"
    assert cluster.counts(job) == {"KILLED": 4}
    assert sorted(mark.read_text().split()) == ["0", "1", "2", "3"]


def test_one_instance_can_be_stopped_and_started_again(cluster: Cluster, pool: str) -> None:
    """A stopped instance has a new run when it is started; the others continue."""
    job = cluster.submit(pool, instanceCount=2, defaultConfig=shell("sleep 60"))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2}, "two running instances")

    stop = cluster.client.tasks.Stop(
        task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job), ranges=[instance_range(1, 2)])
    )
    cluster.wait(lambda: cluster.states(job) == {0: "RUNNING", 1: "KILLED"}, "instance 1 killed")
    start = cluster.client.tasks.Start(
        task_pb2.StartRequest(jobId=peloton_pb2.JobID(value=job), ranges=[instance_range(1, 2)])
    )
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2}, "instance 1 running again")

    assert (list(stop.stoppedInstanceIds), list(start.startedInstanceIds)) == ([1], [1])
    assert cluster.run_ids(job) == {0: 1, 1: 2}
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def test_a_restarted_instance_gets_a_new_run(cluster: Cluster, pool: str) -> None:
    """Restart ends the run and starts the next one, without counting a failure."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("sleep 60"))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "a running instance")

    cluster.client.tasks.Restart(
        task_pb2.RestartRequest(jobId=peloton_pb2.JobID(value=job), ranges=[instance_range(0, 1)])
    )

    cluster.wait(
        lambda: cluster.run_ids(job) == {0: 2} and cluster.states(job) == {0: "RUNNING"}, "the second run running"
    )
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert cluster.finish(job) == "KILLED"


def test_pod_events_report_the_story_of_a_run(cluster: Cluster, pool: str) -> None:
    """Newest first: from SUCCEEDED back to INITIALIZED, all of run 1."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true"))
    cluster.finish(job)

    events = cluster.client.tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=peloton_pb2.JobID(value=job))).result

    states = [event.actualState for event in events]
    assert states[0] == "SUCCEEDED"
    reported = ("RUNNING", "LAUNCHED", "PENDING", "INITIALIZED")
    assert [s for s in states if s in reported] == ["RUNNING", "LAUNCHED", "PENDING", "PENDING", "INITIALIZED"]
    assert [e.reason for e in events if e.actualState == "PENDING"] == ["admitted, waits for a host", ""]
    assert {event.taskId.value for event in events} == {f"{job}-0-1"}


def test_instances_can_be_added_to_a_running_job(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """Update grows the job; old instances keep their runs."""
    may_end = tmp_path / "may-end"
    command = f"until [ -e {may_end} ]; do sleep 0.1; done"
    job = cluster.submit(pool, instanceCount=2, defaultConfig=shell(command))
    config = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job))).jobInfo.config
    config.instanceCount = 5

    answer = cluster.client.jobs.Update(job_pb2.UpdateRequest(id=peloton_pb2.JobID(value=job), config=config))

    may_end.touch()
    assert answer.message == "added 3 instances"
    assert cluster.finish(job) == "SUCCEEDED"
    assert cluster.run_ids(job) == dict.fromkeys(range(5), 1)


def test_an_instance_that_runs_too_long_is_ended(cluster: Cluster, pool: str) -> None:
    """maxRunningTime 1 s ends a run of a minute, and says why."""
    job = cluster.submit(pool, instanceCount=1, sla={"maxRunningTime": 1}, defaultConfig=shell("sleep 60"))

    assert cluster.finish(job) == "KILLED"
    reason = cluster.task(job).runtime.terminationStatus.reason
    assert task_pb2.TerminationStatus.Reason.Name(reason) == "TERMINATION_STATUS_REASON_DEADLINE_TIMEOUT_EXCEEDED"


def test_pods_that_do_not_fit_wait_for_those_that_run(cluster: Cluster, pool: str) -> None:
    """Nine three-cpu pods on twelve cpus run in waves of at most three."""
    job = cluster.submit(pool, instanceCount=6, defaultConfig=shell("sleep 0.5", cpu=3))

    assert cluster.finish(job) == "SUCCEEDED"


def test_a_gang_starts_whole(cluster: Cluster, pool: str) -> None:
    """minimumRunningInstances 3: none of the gang runs before all three have a host."""
    job = cluster.submit(
        pool, instanceCount=4, sla={"minimumRunningInstances": 3}, defaultConfig=shell("sleep 1", cpu=2)
    )

    assert cluster.finish(job) == "SUCCEEDED"
    started = [cluster.task(job, i).runtime.startTime for i in range(3)]
    assert all(started)


def test_a_finished_job_can_be_deleted(cluster: Cluster, pool: str) -> None:
    """Delete removes job and tasks; asking again says so."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true"))
    cluster.finish(job)

    cluster.client.jobs.Delete(job_pb2.DeleteRequest(id=peloton_pb2.JobID(value=job)))

    answer = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job)))
    assert answer.error.HasField("getRuntimeFail")
