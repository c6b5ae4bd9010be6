"""The root command: lazy loading, global options, help, completion, errors."""

import json
import os
import re
import subprocess
import sys

import click
import grpc
import pytest
from click.testing import CliRunner

from cli import reference
from cli.command import Command, LazyGroup
from cli.errors import Failed, failure
from cli.main import ENTRIES, peloton
from peloton.api.limits import RETRY_AFTER
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.errors import NotFound
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

COMMANDS = {
    path: (command, ctx)
    for path, command, ctx in reference.iterate_commands(peloton, reference.context(peloton, "peloton"))
}
NOUNS = ("job", "task", "pod", "watch", "update", "respool", "host", "admin", "completion")
OURS = [path for path in COMMANDS if path.split()[1:2] in ([], *([noun] for noun in NOUNS))]
HEAVY = ("grpc", "google.protobuf", "rich", "yaml", "temporalio", "sqlmodel", "numpy")


def test_help_loads_nothing_heavy() -> None:
    """``peloton --help`` and a command's help import neither gRPC nor protobuf nor rich."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom cli.main import peloton\n"
        "for words in (['--help'], ['job', 'create', '--help'], ['task', 'logs', '--help'], ['respool', '--help'],\n"
        "    ['job', 'stateless', 'replace', '--help'], ['pod', '--help'], ['watch', 'job', '--help'],\n"
        "    ['update', 'create', '--help'], ['admin', 'lock', '--help']):\n"
        "    assert CliRunner().invoke(peloton, words).exit_code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_command_has_help() -> None:
    """Each command, each option and each group has a help text."""
    assert [path for path in OURS if not COMMANDS[path][0].get_short_help_str()] == []
    undescribed = [
        f"{path} {param.name}" for path in OURS for param in COMMANDS[path][0].get_params(COMMANDS[path][1])
        if isinstance(param, click.Option) and not param.hidden and not param.help
    ]  # fmt: skip
    assert undescribed == []


@pytest.mark.parametrize("name", NOUNS)
def test_the_short_help_of_lazy_commands_is_theirs(name: str) -> None:
    """The text of ``peloton --help``, which loads no command, is the command's own short help."""
    assert ENTRIES[name].short_help == COMMANDS[f"peloton {name}"][0].get_short_help_str(limit=200)


def test_the_commands_of_the_integrator_are_registered() -> None:
    """up, local and serve are loaded from the modules with these names."""
    assert {name: ENTRIES[name].module for name in ("up", "local", "serve")} == {
        "up": "cli.up",
        "local": "cli.local",
        "serve": "cli.serve",
    }


def test_the_reference_is_current() -> None:
    """docs/cli.md equals the output of ``python -m cli.reference``."""
    assert reference.reference() == reference.TARGET.read_text()


def test_every_command_is_in_the_reference() -> None:
    """Each command has its own heading in docs/cli.md."""
    headings = set(re.findall(r"^#+ `(.+)`$", reference.TARGET.read_text(), re.MULTILINE))

    assert [path for path in COMMANDS if path not in headings] == []


TYPOS = {
    "jbo": "No such command 'jbo'. Did you mean 'job'?",
    "job creat": "No such command 'creat'. Did you mean 'create'?",
    "task lsit x": "No such command 'lsit'. Did you mean 'list'?",
    "job query --state X": "'--states'",
}


@pytest.mark.parametrize(("line", "expected"), TYPOS.items())
def test_the_nearest_name_is_suggested(run: Run, line: str, expected: str) -> None:
    """A mistyped command or option is wrong usage and the error names the nearest one."""
    result = run(line)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_version_is_printed(run: Run) -> None:
    """--version prints and exits without a command."""
    result = run("--version")
    assert (result.exit_code, result.stdout.startswith("peloton ")) == (0, True)


ANYWHERE = {
    "before": "--json job active-list",
    "between": "job active-list --json",
    "short, behind": "job active-list -j",
}


@pytest.mark.parametrize("line", ANYWHERE.values(), ids=ANYWHERE.keys())
def test_global_options_stand_anywhere(run: Run, api: FakeApi, line: str) -> None:
    """Global options are valid before and after the command's name, as in the original."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    assert json.loads(run(line).stdout) == {"ids": []}


def test_a_service_may_have_its_own_address(run: Run, api: FakeApi) -> None:
    """--jobmgr wins over --address, written as a URL too."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    result = run(f"--address 127.0.0.1:1 --jobmgr http://{api.address} job active-list")
    assert (result.exit_code, len(api.calls)) == (0, 1)


def test_each_of_several_addresses_may_be_a_url(run: Run, api: FakeApi) -> None:
    """Each of several addresses may be a URL."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    assert 0 == run(f"--address 127.0.0.1:1,http://{api.address}/ job active-list").exit_code


def test_an_address_behind_the_command_is_used(run: Run, api: FakeApi) -> None:
    """--address after the command's name wins over the one before."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    assert run(f"--address 127.0.0.1:1 job active-list --address {api.address}").exit_code == 0


def test_an_option_of_the_command_wins_over_a_global_one() -> None:
    """-a is the sort order of ``job query``, and elsewhere the address."""
    query = COMMANDS["peloton job query"][0]
    assert isinstance(query, Command)
    assert [param.name for param in query.params if "-a" in param.opts] == ["sortorder"]
    assert [param.name for param in query.params if "--address" in param.opts] == ["address"]


def test_calls_carry_the_headers_of_the_original(run: Run, api: FakeApi) -> None:
    """Each call names caller, service and encoding, which a server of the original requires."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    api.answers["respools.Query"] = [respool_pb2.QueryResponse()]
    run("job active-list")
    run("respool list")
    names = ("rpc-caller", "rpc-service", "rpc-encoding")
    assert [tuple(call.headers[name] for name in names) for call in api.calls] == [
        ("peloton-cli", "peloton-jobmgr", "proto"),
        ("peloton-cli", "peloton-resmgr", "proto"),
    ]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "host:port"])
def test_no_server_at_the_address_is_reported_in_one_line(address: str, run: Run) -> None:
    """An unreachable API is one line with the address and the remedy."""
    result = run(f"--address {address} job active-list")
    assert (result.exit_code, result.stderr) == (
        1,
        f'cannot reach Peloton at {address}: is "peloton up" running? (or name another with --address)\n',
    )


STATUSES = {
    "not found": (grpc.StatusCode.NOT_FOUND, "job not found", "job not found (NOT_FOUND)"),
    "not the leader": (grpc.StatusCode.UNAVAILABLE, "not suppported on non-leader",
                       "not suppported on non-leader (UNAVAILABLE at {address}, try again)"),
    "unknown call": (grpc.StatusCode.UNIMPLEMENTED, "nope", "{address} does not offer this call (UNIMPLEMENTED): nope"),
    "no details": (grpc.StatusCode.UNKNOWN, "", "failed (UNKNOWN)"),
    "several lines": (grpc.StatusCode.INTERNAL, "one\ntwo", "one; two (INTERNAL)"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "details", "expected"), STATUSES.values(), ids=STATUSES.keys())
def test_a_status_is_one_line_on_stderr(
    run: Run, api: FakeApi, code: grpc.StatusCode, details: str, expected: str
) -> None:
    """A refused call prints one line on standard error, nothing on standard output, and exits with 1."""
    api.answers["jobs.GetActiveJobs"] = [(code, details)]
    result = run("job active-list")
    line = expected.format(address=api.address) + "\n"
    assert (1, "", line) == (result.exit_code, result.stdout, result.stderr)


def test_an_answer_that_takes_too_long(run: Run, api: FakeApi) -> None:
    """--timeout bounds a call, and the message names it."""
    api.answers["jobs.GetActiveJobs"] = [(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")]
    expected = f"no answer from {api.address} within 0.5 s (DEADLINE_EXCEEDED); a longer --timeout may help\n"
    assert expected == run("--timeout 500ms job active-list").stderr


def test_a_busy_peloton_is_asked_again_with_one_line_about_it(run: Run, api: FakeApi) -> None:
    """The command prints one line for all refusals within --patience, and fails with the refusal afterwards."""
    text = "9 jobs wait to be started, the bound is 9: try again in 0.0 s"
    busy = (grpc.StatusCode.RESOURCE_EXHAUSTED, text, ((RETRY_AFTER, "10"),))
    line = f"Peloton is busy: {text}. Waiting for at most {{}} s (--patience) ...\n"
    api.answers["jobs.GetActiveJobs"] = [busy, busy, job_pb2.GetActiveJobsResponse()]
    result = run("job active-list")
    assert (0, line.format(60)) == (result.exit_code, result.stderr)

    api.answers["jobs.GetActiveJobs"] = [busy]
    result = run("job active-list --patience 25ms")
    assert (1, f"{line.format(0.025)}{text} (RESOURCE_EXHAUSTED)\n") == (result.exit_code, result.stderr)
    assert 3 < len(api.calls) <= 3 + 3  # as many as a busy machine completes in that time


def test_a_defect_is_one_line_unless_debugged(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is named in one line; with --debug it is raised with its trace."""
    monkeypatch.setattr("cli.job.query.print_for_programs", lambda *_: 1 // 0)
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    quiet, debugged = run("-j job active-list"), run("-j --debug job active-list")
    line = "internal error: ZeroDivisionError: integer division or modulo by zero (run with --debug for the trace)\n"
    assert (1, line) == (quiet.exit_code, quiet.stderr)
    assert isinstance(debugged.exception, ZeroDivisionError)


def test_the_cause_in_a_group_is_named() -> None:
    """The error is the one of the part that failed first."""
    group = ExceptionGroup("unhandled errors", [ExceptionGroup("inner", [NotFound("no such pool"), ValueError()])])
    assert "no such pool" == str(failure(group, None))


def test_an_interrupted_command_is_not_a_failed_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends any command with the exit code that shells give to SIGINT, and without a traceback."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.task.logs.Sandbox.download", interrupt)
    result = run("task logs 91b1b8e5-2ba8-11e7-bc23-0242ac11000d 0")
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(run: Run, shell: str) -> None:
    """Each shell has a script that calls peloton for completion."""
    result = run(f"completion {shell}")
    assert (result.exit_code, "_PELOTON_COMPLETE" in result.stdout) == (0, True)


def completions(line: str, address: str) -> list[str]:
    environment = {"_PELOTON_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    result = CliRunner().invoke(
        peloton, [], prog_name="peloton", env={**environment, "PELOTON_ADDRESS": address}, standalone_mode=True
    )
    return [entry.partition(",")[2] for entry in result.stdout.split()]


POOL_LINES = ["job create /d", "job stateless create /d", "job stateless replace JOB pyproject.toml 1 /d"]


@pytest.mark.parametrize("line", POOL_LINES)
def test_pool_paths_are_completed(api: FakeApi, line: str) -> None:
    """The shell offers the API's pool paths."""
    pools = [respool_pb2.ResourcePoolInfo(path=respool_pb2.ResourcePoolPath(value=path)) for path in ("/dev", "/eng")]
    api.answers["respools.Query"] = [respool_pb2.QueryResponse(resourcePools=pools)]
    assert completions(f"peloton {line}", api.address) == ["/dev"]


def test_completion_is_silent_without_an_api() -> None:
    """The completion prints no errors."""
    assert completions("peloton job create /d", "127.0.0.1:1") == []


def test_commands_are_completed() -> None:
    """The shell offers the commands of a group."""
    assert completions("peloton job rolling", "127.0.0.1:1") == ["rolling-restart", "rolling-start", "rolling-stop"]


def test_lazy_groups_report_what_is_installed() -> None:
    """The help leaves out a command whose module is missing."""
    assert isinstance(peloton, LazyGroup)
    assert peloton.is_installed("job")


def test_several_faults_stay_apart_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Faults that the API returns on lines of their own are one line, separated by semicolons."""
    Failed("instance 0 asks cpu 4\ninstance 1 asks  cpu 5\n").show()

    assert "instance 0 asks cpu 4; instance 1 asks cpu 5\n" == capsys.readouterr().err


def test_a_reader_that_leaves_is_not_reported() -> None:
    """``peloton ... | head -1`` ends without an error about the pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "cli.main", "completion", "bash"]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)

    assert (1, "") == (done.returncode, done.stderr)


def test_local_parts_are_those_of_the_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """``peloton up`` with several APIs prints all addresses; the control port is found by the first one."""
    asked: list[int] = []

    def call(port: int, *_: object) -> list[object]:
        asked.append(port)
        return []

    monkeypatch.setattr("services.lab.local.control.call", call)

    result = CliRunner().invoke(peloton, ["--address", "localhost:25397,localhost:24221", "local", "status"])

    assert (0, [25397]) == (result.exit_code, asked)


@pytest.mark.parametrize(("name", "action"), [("degrade", "degrade"), ("sicken", "degrade"), ("heal", "restore")])
def test_old_names_of_local_commands(name: str, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that were renamed keep their old names, which the help does not list."""
    asked: list[tuple[str, str]] = []

    def call(_: int, action: str, host: str, now: bool) -> list[str]:
        asked.append((action, host))
        return []

    monkeypatch.setattr("services.lab.local.control.call", call)

    result = CliRunner().invoke(peloton, ["local", name, "h1"])

    assert (0, [(action, "h1")]) == (result.exit_code, asked)
    assert (name == action) == (name in CliRunner().invoke(peloton, ["local", "--help"]).output.split())
