"""The launch agent of gangs: commands run in the pods of other members, for callers that have the gang's key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peloton.integrations import launch_agent
from tests.ports import free_ports

ROOT = Path(__file__).parents[3]
MEMBERS = 2
PATIENCE_S = 20


class Gang:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(MEMBERS)]
        self.server = self.start(1, "serve")
        assert self.server.stdout is not None
        assert self.server.stdout.readline().startswith("peer1 takes commands at port")

    def start(self, instance: int, *arguments: str, key: str = "key") -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PELOTON_INSTANCE_ID": str(instance),
            "PELOTON_GANG_ADDRESS": self.addresses[instance],
            "PELOTON_GANG_MINIMUM": str(MEMBERS),
            "PELOTON_GANG_MAXIMUM": str(MEMBERS),
            "PELOTON_GANG_PEERS": ",".join(self.addresses),
            launch_agent.KEY_FILE: str(self.folder / key),
        }
        command = [sys.executable, "-m", "peloton.integrations.launch_agent", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str, key: str = "key") -> tuple[int, str, str]:
        process = self.start(0, *arguments, key=key)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output, errors


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    made.server.kill()
    made.server.communicate()


def test_a_command_runs_in_the_other_pod(gang: Gang) -> None:
    """Output of either stream and the exit code arrive; own commands run in the own pod."""
    text = "echo from $PELOTON_INSTANCE_ID; echo bad >&2; exit 7"

    assert gang.run("run", "peer1", text) == (7, "from 1\n", "bad\n")
    assert gang.run("run", "peer0", text) == (7, "from 0\n", "bad\n")
    assert gang.run("run", "peer1", "kill -9 $$")[0] == 128 + signal.SIGKILL


def test_the_members_are_listed_for_horovod(gang: Gang) -> None:
    """Each has a name and one slot; a pod whose agent has ended is not listed."""
    assert gang.run("hosts") == (0, "peer0:1\npeer1:1\n", "")
    gang.run("stop")
    gang.server.wait(PATIENCE_S)
    assert gang.run("hosts") == (0, "peer0:1\n", "")


def test_the_agent_ends_after_stop(gang: Gang) -> None:
    """The agent ends with success, as does its pod; one that has ended already is no error."""
    assert gang.run("stop")[0] == 0
    assert gang.server.wait(PATIENCE_S) == 0
    assert "peer1 has ended already" in gang.run("stop")[2]


def test_a_caller_without_the_key_is_refused(gang: Gang) -> None:
    """A caller with another key runs nothing, and the agent still serves."""
    assert gang.run("run", "peer1", "touch", str(gang.folder / "made"), key="other")[0] == launch_agent.REFUSED
    assert not (gang.folder / "made").exists()
    assert (gang.folder / "key").stat().st_mode & 0o777 == 0o600
    assert gang.run("run", "peer1", "true")[0] == 0


def test_a_command_ends_with_its_caller(gang: Gang) -> None:
    """A caller that is killed takes its command along."""
    mark = gang.folder / "pid"
    caller = gang.start(0, "run", "peer1", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60")
    wait_until(mark.exists)
    pid = int(mark.read_text())

    caller.kill()
    caller.communicate()

    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_commands_end_with_the_agent(gang: Gang) -> None:
    """A pod that is asked to end leaves no process behind, and the caller learns of the end."""
    mark = gang.folder / "pid"
    caller = gang.start(0, "run", "peer1", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60")
    wait_until(mark.exists)

    gang.server.terminate()

    assert caller.wait(PATIENCE_S) in (128 + signal.SIGTERM, launch_agent.REFUSED)
    caller.communicate()
    assert 128 + signal.SIGTERM == gang.server.wait(PATIENCE_S)
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run", "host7", "true"], "unknown member 'host7'; members are peer0, peer1 and so on"),
        (["run", "peer7", "true"], "peer7 is no live member of the gang, which has 2"),
        (
            ["run", "peer1"],
            "usage: python -m peloton.integrations.launch_agent serve | hosts | stop | run peerN COMMAND...",
        ),
        ([], "usage: "),
    ],
)
def test_bad_calls_are_refused(arguments: list[str], error: str, gang: Gang) -> None:
    """Members that do not exist, and missing arguments, are named in the error."""
    code, _, errors = gang.run(*arguments)

    assert code in (1, launch_agent.REFUSED)
    assert error in errors


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)
