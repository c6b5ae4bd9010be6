"""Several workers and APIs run alongside each other: any of them may die, and the others continue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.watch import watch_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.client import NO_RETRIES, Client
from tests.e2e.local import TIMEOUT_S, Cluster, job_config, shell, temporary
from tests.e2e.service import Service

pytestmark = pytest.mark.xdist_group("scale out")
JOBS, PODS = 6, 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(temporary(tmp_path_factory.mktemp("scale"), simulate=20, workers=2, apis=2)) as running:
        yield running


def clients(cluster: Cluster) -> list[Client]:
    """One for each API."""
    return [Client(address, retry=NO_RETRIES) for address in cluster.local.addresses.split(",")]


def test_the_parts_have_names_and_ports_of_their_own(cluster: Cluster) -> None:
    """A cluster has two workers, two APIs at two ports, one of everything else; each API shows what the other
    stores."""
    job = cluster.submit(cluster.pool("names"), defaultConfig=shell("sleep 1"), instanceCount=1)
    request = job_pb2.GetRequest(id=v0_peloton_pb2.JobID(value=job))
    first, second = clients(cluster)
    with first, second:
        reported = [client.jobs.Get(request).jobInfo.id.value for client in (first, second)]

    assert {"api", "api-2", "worker", "worker-2"} <= set(cluster.local.parts)
    assert [job, job] == reported
    assert "SUCCEEDED" == cluster.finish(job)


def test_jobs_survive_the_death_of_a_worker_and_an_api(cluster: Cluster) -> None:
    """A client with the addresses of both APIs continues to submit with one of them dead; every job ends well."""
    pool, jobs = cluster.pool("deaths"), [str(uuid.uuid4()) for _ in range(JOBS)]
    cluster.stop_part("api", now=True)

    for number, job in enumerate(jobs):
        cluster.wait(lambda job=job: _submit(cluster, pool, job), f"job {job} stored")
        if number == JOBS // 2:
            cluster.stop_part("worker-2", now=True)

    assert ["SUCCEEDED"] * JOBS == [cluster.finish(job) for job in jobs]
    cluster.start_part("api")
    cluster.start_part("worker-2")
    cluster.wait(lambda: both_answer(cluster), "both APIs back")


def _submit(cluster: Cluster, pool: str, job: str) -> bool:
    """Repeated with the same id when the answer was lost; then it exists already."""
    config = job_config(pool, instanceCount=PODS, defaultConfig=shell("sleep 1"))
    answer = cluster.client.jobs.Create(job_pb2.CreateRequest(id=v0_peloton_pb2.JobID(value=job), config=config))
    return bool(answer.jobId.value or answer.error.HasField("alreadyExists"))


def both_answer(cluster: Cluster) -> bool:
    first, second = clients(cluster)
    with first, second:
        request = job_pb2.GetActiveJobsRequest()
        return all(client.jobs.GetActiveJobs(request) is not None for client in (first, second))


def test_a_watch_resumes_at_the_other_api(cluster: Cluster) -> None:
    """A watch whose API is killed resumes at the other one from its last revision and has each later change once."""
    service = Service(cluster, cluster.pool("watched"), 2).create()
    service.wait(lambda: service.status.pod_stats["POD_STATE_RUNNING"] == 2, "both instances running")
    first, second = clients(cluster)
    with first, second:
        wanted = watch_pb2.PodFilter(job_id=peloton_pb2.JobID(value=service.id))
        stream = first.watches.Watch(watch_svc_pb2.WatchRequest(pod_filter=wanted))
        first_revision = next(stream).revision
        cluster.stop_part("api", now=True)
        revision, cut = rest_of(stream, first_revision)
        cluster.wait(lambda: has_stopped(service), "a call that stops it")
        request = watch_svc_pb2.WatchRequest(start_revision=revision, pod_filter=wanted)
        seen = second.watches.Watch(request, timeout=TIMEOUT_S)
        names = set()
        for answer in seen:
            assert answer.revision >= revision
            names |= {pod.pod_name.value for pod in answer.pods}
            if len(names) == 2:
                break
        seen.cancel()
    cluster.start_part("api")
    cluster.wait(lambda: both_answer(cluster), "both APIs back")

    assert grpc.StatusCode.UNAVAILABLE is cut
    assert {f"{service.id}-0", f"{service.id}-1"} == names


def rest_of(stream: Any, revision: int) -> tuple[int, grpc.StatusCode]:
    """The last revision of a watch, and how it ended."""
    try:
        for answer in stream:
            revision = answer.revision
    except grpc.RpcError as error:
        return revision, error.code()
    raise AssertionError("the watch has ended well")


def has_stopped(service: Service) -> bool:
    """A call that the killed API had taken already is repeated."""
    if service.status.desired_state != stateless_pb2.JOB_STATE_KILLED:
        service.stop()
    return True
