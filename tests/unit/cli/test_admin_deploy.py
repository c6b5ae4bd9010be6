"""``peloton admin deploy`` against an API that keeps services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from cli import admin_deploy, deployed
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2 as job
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

FILE = """
name: west
pool: /control
command: {program}
database: postgresql+psycopg://peloton@db/west
temporal: temporal:7233
mesos: mesos:5050
"""
ROLES = ["resmgr", "hostmgr", "api", "worker"]
ABSENT = (grpc.StatusCode.NOT_FOUND, "no such job")


class Services:
    """The services of an API: each update succeeds at once, or ends in ``state``."""

    def __init__(self, api: FakeApi) -> None:
        self.jobs: dict[str, job.JobInfo] = {}
        self.state = job.WORKFLOW_STATE_SUCCEEDED
        methods = {"CreateJob": self.put, "ReplaceJob": self.put, "GetJob": self.get, "DeleteJob": self.delete}
        for name, method in methods.items():
            api.answers[f"services.{name}"] = [method]
        api.answers["services.ListPods"] = [[]]
        api.answers["respools.LookupResourcePoolID"] = [
            respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="p"))
        ]

    def put(self, request: Any) -> Any:
        count = request.spec.instance_count
        info = job.JobInfo(job_id=request.job_id, spec=request.spec)
        info.status.workflow_status.state = self.state
        info.status.pod_stats["POD_STATE_RUNNING"] = count
        self.jobs[request.job_id.value] = info
        is_new = isinstance(request, svc.CreateJobRequest)
        return svc.CreateJobResponse(job_id=request.job_id) if is_new else svc.ReplaceJobResponse()

    def get(self, request: Any) -> Any:
        info = self.jobs.get(request.job_id.value)
        return ABSENT if info is None else svc.GetJobResponse(job_info=info)

    def delete(self, request: Any) -> Any:
        del self.jobs[request.job_id.value]
        return svc.DeleteJobResponse()

    def command_of(self, name: str) -> str:
        [spec] = [info.spec for info in self.jobs.values() if info.spec.name == name]
        return spec.default_spec.containers[0].entrypoint.value

    @property
    def names(self) -> list[str]:
        return [info.spec.name.partition("-")[2] for info in self.jobs.values()]


@pytest.fixture
def services(api: FakeApi) -> Services:
    return Services(api)


def file_of(folder: Path, program: str = "/opt/old/bin/peloton") -> Path:
    path = folder / "west.yaml"
    path.write_text(FILE.format(program=program))
    return path


def test_it_creates_what_is_missing_and_then_nothing(
    run: Run, services: Services, api: FakeApi, tmp_path: Path
) -> None:
    """Each role is a service, created in the order of an upgrade; a second call finds them by their ids."""
    file = file_of(tmp_path)
    first, second = run("admin", "deploy", file), run("admin", "deploy", file)

    assert [f"create {role}: 2 pods" for role in ROLES] == first.stdout.splitlines()[:4], first.output
    assert ROLES == services.names
    assert ["west is up: peloton --address no address yet host query"] == second.stdout.splitlines()
    assert 4 == len(api.requests("services.CreateJob"))


def test_another_program_is_a_rolling_update(run: Run, services: Services, api: FakeApi, tmp_path: Path) -> None:
    """Pods are replaced one at a time, and an update that fails is rolled back."""
    run("admin", "deploy", file_of(tmp_path))
    run("admin", "deploy", file_of(tmp_path), "--command", "/opt/new/bin/peloton")
    requests = api.requests("services.ReplaceJob")

    assert [f"west-{role}" for role in ROLES] == [request.spec.name for request in requests]
    assert {(1, True)} == {(one.update_spec.batch_size, one.update_spec.rollback_on_failure) for one in requests}


def test_a_plan_changes_nothing(run: Run, services: Services, tmp_path: Path) -> None:
    """Each step is shown with its reason."""
    done = run("admin", "deploy", file_of(tmp_path), "--plan")

    assert ["create  resmgr   2 pods"] == [line.rstrip() for line in done.stdout.splitlines()][1:2]
    assert [] == services.names


def test_a_failed_update_ends_the_command(run: Run, services: Services, api: FakeApi, tmp_path: Path) -> None:
    """The parts behind it keep their version; the error names the part and what to read."""
    run("admin", "deploy", file_of(tmp_path))
    services.state = job.WORKFLOW_STATE_ROLLED_BACK
    done = run("admin", "deploy", file_of(tmp_path, "/opt/broken/bin/peloton"))

    assert 1 == done.exit_code
    assert "resmgr of west: its update is ROLLED_BACK; see `peloton job why " in done.stderr
    assert 1 == len(api.requests("services.ReplaceJob"))


def test_deletion(run: Run, services: Services, tmp_path: Path) -> None:
    """All services of the deployment are gone."""
    run("admin", "deploy", file_of(tmp_path))
    done = run("admin", "deploy", file_of(tmp_path), "--delete")

    assert [*(f"delete {role}" for role in reversed(ROLES)), "west is deleted"] == done.stdout.splitlines()
    assert [] == services.names


def test_a_virtual_cluster_needs_no_file(
    run: Run, services: Services, api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command makes a pool with a reservation for the pods; the address follows from the name."""
    monkeypatch.setattr(admin_deploy, "state_folder", lambda: tmp_path)
    found, missing = respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="p")), respool_pb2.LookupResponse()
    api.answers["respools.LookupResourcePoolID"] = [missing, found]
    root = respool_pb2.GetResponse()
    root.poolinfo.config.resources.add(kind="cpu", reservation=12, limit=12)
    api.answers["respools.GetResourcePool"] = [root]
    api.answers["respools.CreateResourcePool"] = [
        respool_pb2.CreateResponse(result=peloton_pb2.ResourcePoolID(value="p"))
    ]
    done = run("admin deploy --simulate 1000")
    [request] = api.requests("respools.CreateResourcePool")

    assert "created pool /virtual" == done.stdout.splitlines()[0], done.output
    assert ("virtual", 1.5) == (request.config.name, round(request.config.resources[0].reservation, 3))
    assert "--simulate 1000" in services.command_of("virtual-mesos")
    assert "virtual is up: peloton --address 127.0.0.1:19958 host query" in done.stdout


@pytest.mark.parametrize(
    ("content", "text"),
    [("[1]", "is no deployment: want keys and values"), ("a: [", "while parsing"), ("name: x", "`pool` is ''")],
)
def test_files_that_are_refused(run: Run, tmp_path: Path, content: str, text: str) -> None:
    """Invalid files are refused before any call."""
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    done = run("admin", "deploy", path)

    assert 1 == done.exit_code
    assert text in done.stderr


def test_it_needs_something_to_deploy(run: Run) -> None:
    """A file, or a number of simulated hosts."""
    assert "what to deploy? name a FILE, or --simulate N" in run("admin deploy").stderr


def test_a_wait_that_ends_names_the_part(
    run: Run, services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command can be repeated, and continues."""
    monkeypatch.setattr(deployed, "POLL_S", 0.01)
    services.state = job.WORKFLOW_STATE_ROLLING_FORWARD
    done = run("admin", "deploy", file_of(tmp_path), "--wait", "1")

    assert "resmgr of west is not done after 1 s: deploy again to continue" in done.stderr
