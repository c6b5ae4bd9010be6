"""Sandboxes are deleted with their job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import THREE_HOSTS, Lend

pytestmark = pytest.mark.xdist_group("batch")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        yield running


def test_sandboxes_go_with_their_job(cluster: Cluster) -> None:
    """Sandboxes of a deleted job are removed soon after; another job's stay, and its logs can be read."""

    def sandboxes(job: str) -> list[Path]:
        return sorted(cluster.local.data_dir.glob(f"minicluster/slaves/*/frameworks/*/executors/{job}-*"))

    pool = cluster.pool("files")
    goes, stays = (cluster.submit(pool, instanceCount=3, defaultConfig=shell("echo hello")) for _ in range(2))
    assert ["SUCCEEDED", "SUCCEEDED"] == [cluster.finish(job) for job in (goes, stays)]
    assert [3, 3] == [len(sandboxes(job)) for job in (goes, stays)]

    cluster.client.jobs.Delete(job_pb2.DeleteRequest(id=peloton_pb2.JobID(value=goes)))
    cluster.wait(lambda: not sandboxes(goes), "the end of the sandboxes")

    assert 3 == len(sandboxes(stays))
    assert "hello\n" == cluster.log_of(stays)
