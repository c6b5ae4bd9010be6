"""Names, messages and output of other users cannot control the terminal."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import yaml
from rich.console import Console
from rich.text import Text

from cli import terminal
from cli.top.grid import text, visible
from peloton.api.generate import REPOSITORY_ROOT
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.text import MULTI_LINE, is_printable
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeAgent, FakeApi
from tests.unit.cli.test_respool_and_host import lookup_answer

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
ID = peloton_pb2.JobID(value=JOB)
EVIL = "a\x1b[31m\x1b]0;title\x07\u202eb\u2028\x9bc"
SHOWN = r"a\x1b[31m\x1b]0;title\x07\u202eb"
"""The minimum that is left of it in every output: white space of any kind is a blank in tables."""


@pytest.fixture
def answers(api: FakeApi) -> FakeApi:
    """Answers with a pool, a job and a task that have this name."""
    info = job_pb2.JobInfo(id=ID, config=job_pb2.JobConfig(name=EVIL, owningTeam=EVIL))
    info.config.labels.add(key=EVIL, value=EVIL)
    pool = respool_pb2.ResourcePoolInfo(id=peloton_pb2.ResourcePoolID(value="p"))
    pool.path.value, pool.config.name = f"/{EVIL}", EVIL
    task = task_pb2.TaskInfo(jobId=ID)
    task.config.name = task.runtime.message = task.runtime.host = EVIL
    tasks = task_pb2.ListResponse()
    tasks.result.value[0].CopyFrom(task)
    event = task_pb2.PodEvent(message=EVIL, hostname=EVIL, actualState="FAILED")
    summary = job_pb2.JobSummary(id=ID, name=EVIL, owner=EVIL)
    summary.respoolID.value = "p"
    api.answers |= {
        "jobs.Get": [job_pb2.GetResponse(jobInfo=info)],
        "jobs.Query": [job_pb2.QueryResponse(results=[summary], records=[info])],
        "table.ListJobs": [table_pb2.ListJobsResponse(jobs=[table_pb2.JobRow(id=ID, name=EVIL, poolPath=f"/{EVIL}")])],
        "respools.Query": [respool_pb2.QueryResponse(resourcePools=[pool])],
        "respools.LookupResourcePoolID": [lookup_answer("p")],
        "respools.GetResourcePool": [respool_pb2.GetResponse(poolinfo=pool)],
        "tasks.List": [tasks],
        "tasks.Get": [task_pb2.GetResponse(result=task, results=[task])],
        "tasks.GetPodEvents": [task_pb2.GetPodEventsResponse(result=[event])],
    }
    return api


@pytest.mark.parametrize(
    "line",
    [
        "respool list",
        "respool list -o yaml",
        "respool list -o name",
        "respool dump --format yaml",
        "respool dump --format json",
        "job query",
        "job query -o wide",
        "job list",
        f"job get {JOB}",
        f"job get {JOB} -o json",
        f"task list {JOB}",
        f"task list {JOB} -o yaml",
        f"task get {JOB} 0",
        f"task events {JOB} 0",
    ],
)
def test_no_command_prints_what_steers(run: Run, answers: FakeApi, line: str) -> None:
    """No form of the output has control characters; the text is still recognisable."""
    result = run(line)

    assert (0, True) == (result.exit_code, is_printable(result.output, MULTI_LINE)), result.output
    assert "title" in result.output


def test_tables_show_the_escapes(run: Run, answers: FakeApi) -> None:
    """The escapes are readable, and columns have their displayed width."""
    lines = run(f"task list {JOB}").stdout.splitlines()

    assert SHOWN in lines[1]
    assert [lines[0].index("State")] == [lines[1].index("UNKNOWN")]


def test_json_and_yaml_mean_the_same_text(run: Run, answers: FakeApi) -> None:
    """JSON and YAML encode control characters with their own escapes."""
    output_json = json.loads(run(f"job get {JOB} -o json").stdout)
    output_yaml = yaml.safe_load(run(f"job get {JOB} -o yaml").stdout)

    assert EVIL == output_json["jobInfo"]["config"]["name"]
    assert EVIL == output_yaml["jobInfo"]["config"]["name"]
    assert {"key": EVIL, "value": EVIL} == output_yaml["jobInfo"]["config"]["labels"][0]


def test_errors_show_the_escapes(run: Run, api: FakeApi) -> None:
    """The error escapes control characters in a message of the API."""
    api.answers["tasks.List"] = [task_pb2.ListResponse(notFound=errors_pb2.JobNotFound(id=ID, message=EVIL))]
    result = run(f"task list {JOB}")

    assert (1, True) == (result.exit_code, is_printable(result.stderr, "\n"))
    assert SHOWN in result.stderr


LOG = "red \x1b[31m\x07 \u202e\r\n\ttab 東京\n".encode() + b"\xff\x9b\n"
SAFE_LOG = "red \\x1b[31m\\x07 \\u202e\\x0d\n\ttab 東京\n\\xff\\x9b\n"


@pytest.mark.parametrize(
    ("is_terminal", "raw", "expected"), [(True, False, SAFE_LOG.encode()), (True, True, LOG), (False, False, LOG)]
)
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_output_of_pods(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    raw: bool,
    expected: bytes,
    size: int,
) -> None:
    """A terminal receives escaped output unless --raw is given; pieces may end within a character."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    terminal.echo_output((LOG[at : at + size] for at in range(0, len(LOG), size)), raw, prefix="0 | ")

    assert b"0 | " + expected == capfdbinary.readouterr().out


@pytest.mark.parametrize("command", ["task logs {} 0", "pod logs {} 0", "job logs {} --no-prefix"])
@pytest.mark.parametrize(("flags", "is_raw"), [([], False), (["--raw"], True)])
def test_commands_that_print_logs(
    run: Run,
    api: FakeApi,
    agent: FakeAgent,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    flags: list[str],
    is_raw: bool,
) -> None:
    """Each of these commands has the option."""
    task_id = f"{JOB}-0-1"
    agent.files = {f"/sandbox/{task_id}/stdout": b"x\x1b[31m\n"}
    info = task_pb2.TaskInfo(jobId=ID)
    info.runtime.mesosTaskId.value, info.runtime.host = task_id, "h"
    tasks = task_pb2.ListResponse()
    tasks.result.value[0].CopyFrom(info)
    api.answers["tasks.List"] = [tasks]
    api.answers["tasks.BrowseSandbox"] = [
        task_pb2.BrowseSandboxResponse(hostname=agent.host, port=agent.port, paths=[*agent.files])
    ]
    raws: list[bool] = []
    monkeypatch.setattr("cli.task.logs.echo_output", lambda _, raw, prefix="": raws.append(raw))
    monkeypatch.setattr("cli.job.logs.echo_output", lambda _, raw, prefix="": raws.append(raw))

    assert 0 == run(*command.format(JOB).split(), *flags).exit_code
    assert [is_raw] == raws


def test_pictures_of_rich() -> None:
    """Styles and controls of Rich itself pass."""
    out = StringIO()
    drawn_on = Console(file=out, force_terminal=True, color_system="standard", width=80)
    drawn_on.print(terminal.Visible(Text(EVIL, style="red")))

    shown = out.getvalue()
    assert shown.startswith("\x1b[31ma\\x1b[31m")
    assert "\u202e" not in shown
    assert is_printable(shown.replace("\x1b[31m", "").replace("\x1b[0m", ""), "\n")


def test_top() -> None:
    """Cells of tables are escaped, and texts of several lines keep their styles."""
    head = Text("one\n").append(EVIL, "red")

    assert SHOWN in text(EVIL).plain
    assert (True, "one\n") == (is_printable(visible(head).plain, "\n"), visible(head).plain[:4])
    assert ["red"] == [span.style for span in visible(head).spans]


def test_nothing_is_printed_past_it() -> None:
    """The module of the terminal has the only calls of Click's printing functions."""
    words = ("click.echo", "click.secho", "Console(")
    own = ("terminal.py", "reference.py")
    paths = [path for path in (REPOSITORY_ROOT / "cli").rglob("*.py") if path.name not in own]

    assert [] == [path.name for path in paths if any(word in path.read_text() for word in words)]
