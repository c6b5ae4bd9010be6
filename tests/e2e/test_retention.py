"""A job that ended long ago is archived, deleted, and found in the archive, by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.main import peloton
from peloton.lifecycle.retention import DAY_NS
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from services.storage.tables import JOB
from tests.e2e.local import Cluster, shell


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def cluster(tmp_path: Path, archive: Path) -> Iterator[Cluster]:
    environment = {"PELOTON_RETENTION_PERIOD_S": "0.5", "PELOTON_ARCHIVE": str(archive)}
    settings = LocalSettings(port=0, data_dir=tmp_path / "data", simulate=2, environment=environment)
    with Cluster(settings) as running:
        yield running


def test_an_old_job_leaves_for_the_archive(cluster: Cluster, archive: Path) -> None:
    """One that ended yesterday stays. The resource manager is killed meanwhile."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(peloton, ["--address", cluster.local.address, *words])

    pool = cluster.pool("old")
    old, young = (cluster.submit(pool, name="train", instanceCount=2, defaultConfig=shell("true")) for _ in range(2))
    assert ["SUCCEEDED"] * 2 == [cluster.finish(job) for job in (old, young)]
    storage = Storage(cluster.local.database)
    for job, days in ((old, 40), (young, 1)):
        change = sa.update(JOB).where(JOB.c.job_id == job).values(completed_ns=JOB.c.completed_ns - days * DAY_NS)
        storage.db.write(lambda conn, change=change: conn.execute(change))  # type: ignore[misc]
    storage.close()
    cluster.kill("resmgr")

    cluster.wait(lambda: "deleted by age at" in run("job", "get", old).output, "the deletion of the old job")

    assert "archived in jobs/" in run("job", "get", old).output
    assert "SUCCEEDED" in run("job", "get", young).output
    found = run("archive", "query", "--archive", str(archive), "--pool", "/old", "--json")
    lines = json.loads(found.output)
    assert [(old, "train", "SUCCEEDED")] == [
        (line["job_id"], line["job_name"], line["state"]) for line in lines if line["kind"] == "job"
    ]
    (config,) = (line["config"] for line in lines if line["kind"] == "config")
    assert 2 == config["instanceCount"]
    pods = json.loads(run("archive", "query", "pods", "--archive", str(archive), "--job", "train", "--json").output)
    assert [0, 1] == sorted(line["instance_id"] for line in pods)
    events = run("archive", "query", "pod-events", "--archive", str(archive), "--state", "running").output
    assert 2 == events.count("RUNNING")
    assert "objects are as their manifests say" in run("archive", "verify", "--archive", str(archive)).output
    classes = {one["name"]: one for one in json.loads(run("--json", "admin", "retention").output)["classes"]}
    assert 1 <= int(classes["pruned-jobs"]["rowCount"])
    assert 0 < int(classes["jobs"]["archivedBytes"])
    assert 0 == classes["jobs"]["dueCount"]
