"""What pods wrote goes with their job."""

from __future__ import annotations

from pathlib import Path

from peloton.api.v0.job import job_pb2
from tests.e2e.local import Cluster, shell, temporary


def test_sandboxes_go_with_their_job(tmp_path: Path) -> None:
    """Soon after it was deleted; those of another job stay, and its logs can be read."""
    data = tmp_path / "data"

    def sandboxes(job: str) -> list[Path]:
        return sorted(data.glob(f"minicluster/slaves/*/frameworks/*/executors/{job}-*"))

    with Cluster(temporary(data)) as cluster:
        pool = cluster.pool("files")
        goes, stays = (cluster.submit(pool, instanceCount=3, defaultConfig=shell("echo hello")) for _ in range(2))
        assert ["SUCCEEDED", "SUCCEEDED"] == [cluster.finish(job) for job in (goes, stays)]
        assert [3, 3] == [len(sandboxes(job)) for job in (goes, stays)]

        cluster.client.jobs.Delete(job_pb2.DeleteRequest(id={"value": goes}))
        cluster.wait(lambda: not sandboxes(goes), "the end of the sandboxes")

        assert 3 == len(sandboxes(stays))
        assert "hello\n" == cluster.log_of(stays)
