"""``peloton admin worker``: requests, printed texts and exit codes."""

from __future__ import annotations

import json

from peloton.api.v0.workers import workers_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

VERSIONS = [
    pb.WorkerVersion(
        version="0.2.0-bb",
        state="RAMPING",
        percent=25.0,
        worker_count=1,
        since_time="2026-11-26T10:00:00Z",
        workflow_tasks_done=30,
        workflow_tasks_failed=1,
        activities_done=40,
        activities_failed=2,
        reason="70 of 200 tasks done",
    ),
    pb.WorkerVersion(version="0.1.0-aa", state="CURRENT", percent=75.0, worker_count=2),
]


def test_versions_are_listed(run: Run, api: FakeApi) -> None:
    """The list shows the tasks of both kinds as one sum."""
    api.answers["worker_versions.QueryWorkerVersions"] = [pb.QueryWorkerVersionsResponse(versions=VERSIONS)] * 3

    lines = run("admin worker ls").stdout.splitlines()

    assert ["Version", "State", "Share", "Workers", "Since", "Done", "Failed", "Crashes", "Reason"] == lines[0].split()
    since = "2026-11-26T10:00:00Z"
    assert ["0.2.0-bb", "RAMPING", "25", "%", "1", since, "70", "3", "0"] == lines[1].split()[:9]
    assert lines[1].endswith("70 of 200 tasks done")
    assert ["0.1.0-aa", "CURRENT", "75", "%", "2", "--", "0", "0", "0", "--"] == lines[2].split()
    assert "RAMPING" == json.loads(run("--json admin worker ls").stdout)["versions"][0]["state"]
    assert "0.2.0-bb\n0.1.0-aa\n" == run("-o name admin worker ls").stdout


def test_no_version_is_known(run: Run, api: FakeApi) -> None:
    """The output says that Temporal has no version of the workers."""
    api.answers["worker_versions.QueryWorkerVersions"] = [pb.QueryWorkerVersionsResponse()]

    assert "Temporal knows no version of the workers" in run("admin worker ls").stdout


def test_a_version_is_promoted(run: Run, api: FakeApi) -> None:
    """All workflows, or a percentage of them, move to the version, and the answer shows the percentage of each
    version."""
    answer = pb.PromoteWorkerVersionResponse(versions=VERSIONS)
    api.answers["worker_versions.PromoteWorkerVersion"] = [answer, answer]

    result = run("admin worker promote 0.2.0-bb --percent 25")

    assert 0 == result.exit_code
    assert [
        "Version 0.2.0-bb runs 25 % of the workflows",
        "Version 0.1.0-aa runs 75 % of the workflows",
    ] == result.stdout.splitlines()[:2]
    assert 0 == run("admin worker promote 0.2.0-bb").exit_code
    assert [25, 0] == [one.percent for one in api.requests("worker_versions.PromoteWorkerVersion")]
    assert 2 == run("admin worker promote 0.2.0-bb --percent 100").exit_code
    assert 2 == run("admin worker promote").exit_code


def test_a_rollback_shows_where_it_went(run: Run, api: FakeApi) -> None:
    """The rollback prints the shares after it, and ``-o name`` prints the names."""
    answer = pb.RollBackWorkerVersionResponse(versions=VERSIONS)
    api.answers["worker_versions.RollBackWorkerVersion"] = [answer, answer]

    assert "Version 0.1.0-aa runs 75 % of the workflows" in run("admin worker rollback").stdout
    assert "0.2.0-bb\n0.1.0-aa\n" == run("-o name admin worker rollback").stdout
