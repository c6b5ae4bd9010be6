"""``peloton migration``: requests, printed texts and exit codes."""

from __future__ import annotations

import json

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.migration import migration_pb2 as pb
from peloton.api.v0.respool import respool_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
ID = "00000000-0000-4000-8000-00000000000a"
MOVING = pb.Migration(
    id=ID, name="web", target="east", state="MIGRATING", moved_count=3, left_count=5, done_count=0, service_count=1,
    waiting_for="web: 2 instances to serve", created_time="2026-11-22T10:00:00Z",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _pools(api: FakeApi) -> None:
    """Answers that the only pool is /eng/maps."""

    def fetch(request: respool_pb2.LookupRequest) -> respool_pb2.LookupResponse:
        is_there = request.path.value == "/eng/maps"
        return respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="p") if is_there else None)

    api.answers["respools.LookupResourcePoolID"] = [fetch]


def test_migrate(run: Run, api: FakeApi) -> None:
    """The command prints the plan, then the command that follows it; options are sent as counts and flags."""
    api.answers["migrations.Start"] = [pb.StartResponse(migration=MOVING, plan=pb.Plan(text="8 instances move"))]

    result = run(f"migration start {JOB} --to east --batch 2 --services 3 --now --force")

    reported = f"8 instances move\nMigration {ID} is under way: peloton migration status {JOB}\n"
    assert (0, reported) == (result.exit_code, result.stdout)
    (request,) = api.requests("migrations.Start")
    assert request == pb.StartRequest(job_id=JOB, target="east", batch_size=2, services_at_once=3, now=True, force=True)


def test_a_plan(run: Run, api: FakeApi) -> None:
    """The plan of a pool is text, or JSON."""
    api.answers["migrations.Start"] = [pb.StartResponse(plan=pb.Plan(text="8 instances move", instance_count=8))]

    plain = run("migration start /eng/maps/ --to east --dry-run")
    machine = run("--json migrate /eng/maps --to east --dry-run")

    assert "8 instances move\n" == plain.stdout
    assert 8 == json.loads(machine.stdout)["plan"]["instanceCount"]
    assert [pb.StartRequest(pool_path="/eng/maps", target="east", dry_run=True)] * 2 == api.requests("migrations.Start")


def test_migrate_is_the_old_name_of_its_start(run: Run, api: FakeApi) -> None:
    """The old name still works, and no list of commands has it."""
    api.answers["migrations.Start"] = [pb.StartResponse(plan=pb.Plan(text="x"))]

    assert "x\n" == run(f"migrate {JOB} --to east --dry-run").stdout

    assert "  migrate " not in run("--help").stdout


def test_a_path_may_be_that_of_a_job(run: Run, api: FakeApi) -> None:
    """A path that is not a pool's is looked up as a job's."""
    api.answers["migrations.Start"] = [pb.StartResponse(plan=pb.Plan(text="x"))]

    run("migration start /eng/maps/web --to east --dry-run")

    assert ["/eng/maps/web"] == [request.text for request in api.requests("lookup.FindJobs")]
    assert "" == api.requests("migrations.Start")[0].pool_path


STATUS = f"""\
Name  Target  State      Moved  Left  Services done  Waiting for                Created              Id
web   east    MIGRATING  3      5     0/1            web: 2 instances to serve  2026-11-22T10:00:00  {ID}
"""


def test_status(run: Run, api: FakeApi) -> None:
    """The list has all migrations or one object's; a list that is cut says so."""
    api.answers["migrations.Query"] = [pb.QueryResponse(migrations=[MOVING], has_more=True), pb.QueryResponse()]

    result = run("migration status")
    none = run("migration list /eng/maps --limit 5")

    assert STATUS == result.stdout
    assert "These are the first 1: --limit 0 shows all\n" == result.stderr
    assert "No migrations\n" == none.stdout
    assert ["", "/eng/maps"] == [request.pool_path for request in api.requests("migrations.Query")]
    assert 5 == api.requests("migrations.Query")[1].limit


@pytest.mark.parametrize(
    ("act", "method", "state"),
    [("pause", "Pause", "PAUSED"), ("resume", "Resume", "MIGRATING"), ("rollback", "Rollback", "ROLLING_BACK")],
)
def test_acts(run: Run, api: FakeApi, act: str, method: str, state: str) -> None:
    """The request has the id of the object's newest migration."""
    api.answers["migrations.Query"] = [pb.QueryResponse(migrations=[MOVING])]
    after = pb.Migration(id=ID, name="web", target="east", state=state)
    answers = {"Pause": pb.PauseResponse, "Resume": pb.ResumeResponse, "Rollback": pb.RollbackResponse}
    api.answers[f"migrations.{method}"] = [answers[method](migration=after)]

    result = run(f"migration {act} {JOB}")

    assert (0, f"The migration of web to east is {state}\n") == (result.exit_code, result.stdout)
    assert [ID] == [request.id for request in api.requests(f"migrations.{method}")]


def test_release(run: Run, api: FakeApi) -> None:
    """The output names the cluster of the released binding, or says that there was none."""
    api.answers["migrations.Release"] = [pb.ReleaseResponse(cluster="east"), pb.ReleaseResponse()]

    said = [run("migration release /eng/maps").stdout for _ in range(2)]

    assert ["/eng/maps was bound to east\n", "/eng/maps was bound to no cluster\n"] == said


def test_refusals(run: Run, api: FakeApi) -> None:
    """The error is the API's text, or says that the object has never been migrated."""
    api.answers["migrations.Start"] = [(grpc.StatusCode.ABORTED, "web needs cpu 3 and finds cpu 2")]
    api.answers["migrations.Query"] = [pb.QueryResponse()]

    refused, unknown = run(f"migration start {JOB} --to east"), run(f"migration pause {JOB}")

    assert (1, True) == (refused.exit_code, "web needs cpu 3 and finds cpu 2" in refused.output)
    assert (1, f"{JOB} has never been migrated") == (unknown.exit_code, unknown.output.strip())
