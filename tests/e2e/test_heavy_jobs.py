"""Jobs that come in pieces, on the whole of a cluster: they run, and what breaks off leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest
import sqlalchemy as sa
from google.protobuf.json_format import ParseDict

from peloton.api.bulk import create_messages
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.job import job_pb2
from peloton.model.ids import new_job_id
from services.storage.engine import Database
from services.storage.tables import JOB_STREAM, OVERRIDE
from tests.bench.weight import heavy_config
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import SIMULATED, Lend

pytestmark = pytest.mark.xdist_group("simulated")
PODS = 160


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(SIMULATED) as running:
        yield running


@pytest.fixture(scope="module")
def pool(cluster: Cluster) -> str:
    return cluster.pool("heavy")


def heavy_job(pool: str) -> job_pb2.JobConfig:
    job = ParseDict({"name": "heavy", "instanceCount": PODS, "sla": {"preemptible": True}}, job_pb2.JobConfig())
    job.respoolID.value = pool
    ParseDict(shell("true", cpu=0.5, memory=64), job.defaultConfig)
    return job


def messages(pool: str, job_id: str) -> list[bulk_pb2.CreateJobRequest]:
    configs = ((i, heavy_config(i, is_compressible=True)) for i in range(PODS))
    return list(create_messages(job_id, heavy_job(pool), configs))


def count_left(cluster: Cluster) -> int:
    """Rows of streams."""
    db = Database(cluster.local.database)
    try:
        streams = sa.select(sa.func.count()).select_from(JOB_STREAM)
        return int(db.read(lambda conn: conn.execute(streams).scalar_one()))
    finally:
        db.close()


def configs_left(cluster: Cluster, job_id: str) -> int:
    db = Database(cluster.local.database)
    try:
        query = sa.select(sa.func.count()).select_from(OVERRIDE).where(OVERRIDE.c.job_id == job_id)
        return int(db.read(lambda conn: conn.execute(query).scalar_one()))
    finally:
        db.close()


def test_a_heavy_job_runs(cluster: Cluster, pool: str) -> None:
    """Each pod runs with its own configuration, which reads and lists give back."""
    job_id = str(cluster.client.bulk.CreateJob(iter(messages(pool, new_job_id()))).jobId.value)

    assert cluster.finish(job_id) == "SUCCEEDED"
    assert cluster.counts(job_id) == {"SUCCEEDED": PODS}
    assert cluster.task(job_id, 7).config.command == heavy_config(7, is_compressible=True).command
    assert all(
        task.config.command == heavy_config(i, is_compressible=True).command
        for i, task in cluster.tasks(job_id).items()
    )


def test_a_bad_instance(cluster: Cluster, pool: str) -> None:
    """The refusal names instance, rule and numbers; nothing is left."""
    job_id = new_job_id()
    bad = messages(pool, job_id)
    bad[-2].instances.configs[-1].resource.memLimitMb = -3

    answer = cluster.client.bulk.CreateJob(iter(bad))

    said = answer.error.invalidConfig.message
    assert said == f"Invalid config for instance {PODS - 1}, memLimitMb -3 is negative"
    assert (count_left(cluster), configs_left(cluster, job_id)) == (0, 0)


class Paused:
    """A stream that has sent all but the commit, which follows on request."""

    def __init__(self, pieces: list[bulk_pb2.CreateJobRequest]) -> None:
        self.pieces = pieces
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[bulk_pb2.CreateJobRequest]:
        yield from self.pieces[:-1]
        self.go_on.wait()
        yield self.pieces[-1]


def test_a_client_that_goes_away(cluster: Cluster, pool: str) -> None:
    """The parts that a client has sent are deleted at once when it goes away."""
    job_id = new_job_id()
    paused = Paused(messages(pool, job_id))
    call = cluster.client.bulk.CreateJob.future(iter(paused))
    cluster.wait(lambda: configs_left(cluster, job_id) == PODS, "all configs but no commit")

    call.cancel()
    paused.go_on.set()

    cluster.wait(lambda: (count_left(cluster), configs_left(cluster, job_id)) == (0, 0), "nothing")
    assert job_id not in cluster.client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest()).ids


@pytest.mark.parametrize("is_repeated", [False, True], ids=["given up", "repeated"])
def test_an_api_that_dies(cluster: Cluster, pool: str, is_repeated: bool) -> None:
    """The client may start again with the same id after kill -9 in the middle; if it does not, the next api cleans
    up."""
    job_id = new_job_id()
    paused = Paused(messages(pool, job_id))
    call = cluster.client.bulk.CreateJob.future(iter(paused))
    cluster.wait(lambda: configs_left(cluster, job_id) == PODS, "all configs but no commit")

    cluster.kill("api")

    with pytest.raises(grpc.RpcError):
        call.result()
    paused.go_on.set()
    assert configs_left(cluster, job_id) == PODS
    cluster.wait(lambda: bool(cluster.capacity()), "an api")
    if is_repeated:
        assert cluster.client.bulk.CreateJob(iter(messages(pool, job_id))).jobId.value == job_id
        assert cluster.finish(job_id) == "SUCCEEDED"
    else:
        forget_when_touched(cluster)
        cluster.wait(lambda: configs_left(cluster, job_id) == 0, "nothing")
    cluster.wait(lambda: count_left(cluster) == 0, "no stream")


def forget_when_touched(cluster: Cluster) -> None:
    """Ages all job streams, as if minutes had passed since their last use."""
    db = Database(cluster.local.database)
    try:
        db.write(lambda conn: conn.execute(sa.update(JOB_STREAM).values(touched_ns=0)))
    finally:
        db.close()
