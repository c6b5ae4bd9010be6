"""Output of commands: tables that fit, the forms of --output, bounds of lists."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from cli import queries, update
from cli.job import query as job_query
from cli.output import Row, Table, print_terminal_table
from cli.pod import group as pod
from cli.pod import table as pod_table
from cli.stateless import query as stateless_query
from cli.task import group as task
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import Answer, FakeApi
from tests.unit.cli.test_job import pool_answer

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
ID_TABLES = {
    "job": job_query.TABLE,
    "service": stateless_query.TABLE,
    "task events": task.EVENT_TABLE,
    "pod events": pod.EVENT_TABLE,
    "pods": pod_table.TABLE,
    "update": update.TABLE,
}


def drawn(table: Table[Any], row: list[str], width: int) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=width)
    print_terminal_table(table, [row], console)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("table", ID_TABLES.values(), ids=ID_TABLES.keys())
def test_ids_are_whole_on_every_terminal(table: Table[Any], width: int) -> None:
    """Other columns are folded, and then left out, so that ids are whole and no line is too long."""
    ids = {"Name": f"{JOB}-17", "ID": JOB, "Update-ID": JOB}
    row = [
        ids.get(title, f"{JOB}-17-3") if title in table.whole and title not in STATES else f"some {title.lower()} here"
        for title in table.header
    ]
    lines = drawn(table, row, width)

    assert any(JOB in word for word in " ".join(lines).split())
    assert max(map(len, lines)) <= width
    pieces = [word for line in lines for word in line.split() if word[:4] == JOB[:4]]
    assert {piece in (JOB, f"{JOB}-17", f"{JOB}-17-3") for piece in pieces} == {True}


STATES = {"State", "Actual State", "Host", "Start Time", "Run Time", "Update Time"}
SMALL: Table[Row] = Table("ID", "Owner", "Note", "Message", whole=["ID"], spare=["Owner", "Note"])


def test_columns_are_left_out_in_order() -> None:
    """Empty columns are left out first; long texts are folded."""
    row = [JOB, "", "a note", "something that is long"]

    assert ["ID", "Owner", "Note", "Message"] == drawn(SMALL, row, 80)[0].split()
    assert ["ID", "Note", "Message"] == drawn(SMALL, row, 60)[0].split()
    assert ["ID", "Message"] == drawn(SMALL, row, 50)[0].split()


def summary(number: int) -> job_pb2.JobSummary:
    return job_pb2.JobSummary(id=peloton_pb2.JobID(value=f"j{number}"), name="hello")


FORMS = ["job list", "job ls", "job query"]


@pytest.mark.parametrize("line", FORMS)
def test_forms_of_a_list(run: Run, api: FakeApi, line: str) -> None:
    """A list has four forms: table, JSON with the names of the API, YAML, and names as arguments of other commands."""
    api.answers["jobs.Query"] = [job_pb2.QueryResponse(results=[summary(1), summary(2)])]

    rows = [row.split()[:2] for row in run(f"{line} --output wide").stdout.splitlines()]
    assert [["ID", "Name"], ["j1", "hello"], ["j2", "hello"]] == rows
    found = json.loads(run(f"{line} -o json").stdout)["results"]
    assert [("j1", ""), ("j2", "")] == [(job["id"]["value"], job["owningTeam"]) for job in found]
    assert ["j1", "j2"] == [job["id"]["value"] for job in yaml.safe_load(run(f"{line} -o yaml").stdout)["results"]]
    assert "j1\nj2\n" == run(f"-o name {line}").stdout


EMPTY: dict[str, tuple[str, Answer, str]] = {
    "job list": ("jobs.Query", job_pb2.QueryResponse(), "results"),
    "job stateless list": ("services.ListJobs", [], "jobs"),
    "task list j": ("tasks.Query", task_pb2.QueryResponse(), "records"),
    "host list": ("hosts.QueryHosts", host_svc_pb2.QueryHostsResponse(), "hostInfos"),
    "pod list j": ("services.ListPods", [], "pods"),
    "respool list": ("respools.Query", respool_pb2.QueryResponse(), "resourcePools"),
}


@pytest.mark.parametrize("line", [line.replace("task list", "task query") for line in EMPTY])
def test_an_empty_list_is_a_list(run: Run, api: FakeApi, line: str) -> None:
    """JSON of an empty list has its key."""
    method, answer, key = EMPTY[line.replace("task query", "task list")]
    api.answers[method] = [answer]

    assert [] == json.loads(run(f"{line} --json").stdout)[key]


def test_the_offset_of_a_query_keeps_its_letter(run: Run, api: FakeApi) -> None:
    """-o before a number is the original's --offset, before a format it is --output."""
    api.answers["jobs.Query"] = [job_pb2.QueryResponse(results=[summary(1)])]

    assert "j1\n" == run("job query -o 7 -o name").stdout
    assert 7 == api.requests("jobs.Query")[0].spec.pagination.offset


def test_lists_say_that_there_is_more(run: Run, api: FakeApi) -> None:
    """Standard error says that there are more, and the total if it is known."""
    page = job_pb2.QueryResponse(results=[summary(number) for number in range(5)])
    page.pagination.total = 5
    api.answers["jobs.Query"] = [page]
    some, every = run("job list --limit 2 -o name"), run("job list -o name")

    assert ("j0\nj1\n", "These are 2 of 5: --limit 0 shows all\n") == (some.stdout, some.stderr)
    assert (5, "") == (len(every.stdout.split()), every.stderr)

    tasks = task_pb2.ListResponse()
    for instance in range(3):
        tasks.result.value[instance].instanceId = instance
    api.answers["tasks.List"] = [tasks]
    listed = run(f"task list {JOB} -n 2 --json")
    assert ["0", "1"] == list(json.loads(listed.stdout)["result"]["value"])
    assert "These are the first 2: --limit 0 shows all\n" == listed.stderr
    assert (0, 3) == (getattr(api.requests("tasks.List")[0].range, "from"), api.requests("tasks.List")[0].range.to)


def test_more_jobs_than_the_api_reads(run: Run, api: FakeApi) -> None:
    """The API lists the newest 10,000, and the command says that there are more."""
    page = job_pb2.QueryResponse(results=[summary(1)])
    page.pagination.total = queries.READ_MAX
    api.answers["jobs.Query"] = [page]

    assert "These are the first 1: --limit 0 shows all\n" == run("job list -n 1").stderr


@pytest.mark.parametrize(("limit", "shown"), [("", 1_000), ("-n 0", 1_200), ("-o name", 1_200), ("-o name -n 7", 7)])
def test_tables_are_bounded(run: Run, api: FakeApi, limit: str, shown: int) -> None:
    """A table has a default limit, and JSON and names have none."""
    hosts = host_svc_pb2.QueryHostsResponse()
    for number in range(1_200):
        hosts.host_infos.add(hostname=f"h{number:04}")
    api.answers["hosts.QueryHosts"] = [hosts]
    lines = run(f"host ls {limit}").stdout.splitlines()

    assert shown == len([line for line in lines if line.startswith("h0") or line.startswith("h1")])


def test_a_file_may_come_from_standard_input(run: Run, api: FakeApi) -> None:
    """Faults in standard input have a line and column."""
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value="j"))]
    api.answers["services.CreateJob"] = [stateless_svc_pb2.CreateJobResponse()]

    assert "j\n" == run(*["job", "create", "/dev", "-", "-o", "name"], text="name: hello\n").stdout
    assert 0 == run(*["job", "stateless", "create", "/dev", "-", "1"], text="name: web\n").exit_code
    assert "hello" == api.requests("jobs.Create")[0].config.name
    assert "web" == api.requests("services.CreateJob")[0].spec.name
    wrong = run(*["job", "create", "/dev", "-"], text="nmae: hello\n")
    assert (1, True) == (wrong.exit_code, wrong.stderr.startswith("standard input:1:1: unknown key 'nmae'"))


def test_version(run: Run) -> None:
    """The command and the option print the same version."""
    plain = run("--version").stdout

    assert plain == run("version").stdout
    answer = json.loads(run("version --json").stdout)
    commit = f" ({answer['commit']})" if answer["commit"] else ""
    assert plain == f"peloton {answer['version']}{commit}\n"


ADDRESSES = {"PELOTON_JOBMGR_URL": 0, "JOBMGR_URL": 0, "PELOTON_RESMGR_URL": 1}


@pytest.mark.parametrize(("name", "code"), ADDRESSES.items())
def test_variables_have_a_prefix(api: FakeApi, name: str, code: int) -> None:
    """The original's variables for addresses are valid too."""
    from click.testing import CliRunner

    from cli.main import peloton

    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    environment = {"PELOTON_ADDRESS": "127.0.0.1:1", name: api.address, "TIMEOUT": "nonsense", "PELOTON_TIMEOUT": "5s"}

    assert code == CliRunner().invoke(peloton, ["job", "active-list"], env=environment).exit_code


def test_the_reference_of_files(tmp_path: Path, run: Run, api: FakeApi) -> None:
    """A file whose name is a dash is read through its path."""
    (tmp_path / "-").write_text("name: hello\n")
    api.answers["respools.LookupResourcePoolID"] = [pool_answer()]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value="j"))]

    assert "Job j created\n" == run("job", "create", "/dev", tmp_path / "-").stdout
