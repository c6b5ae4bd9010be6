"""The image of the Dockerfile has what production needs, and runs without rights on read-only files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compose.box import Box, Image
from tests.compose.file import read
from tests.nightly import NIGHTLY
from tests.unit.tidy import PACKAGES

pytestmark = [NIGHTLY, pytest.mark.xdist_group("compose"), pytest.mark.timeout(3600)]
COMMAND_MAX_S = 180.0
LEFT_OUT = ("temporal", "pip", "pytest", "grpc_tools", "hatchling")
"""Programs and modules of tests, of local clusters, and of builds."""


@pytest.fixture
def run(peloton: Image, tmp_path: Path, memory: Path) -> Box:
    """A container as each role has one."""
    service = read()["api"]
    return Box(
        folder=memory / tmp_path.name,
        image=peloton,
        hostname="api",
        hosts="127.0.0.1 localhost api\n",
        tmpfs=service.tmpfs,
        environment={"PELOTON_DATABASE": "sqlite:////tmp/peloton.db"},
        is_read_only=service.is_read_only,
        drops_capabilities=service.drops_capabilities,
    )


def test_the_image_runs_without_rights(run: Box) -> None:
    """The program runs as the user of the image, without capabilities, on files that it cannot write."""
    script = (
        "id -u; grep CapEff /proc/self/status; peloton version; touch /opt/peloton/x /x 2>/dev/null || echo refused"
    )
    user, capabilities, version, refused = run.run(["sh", "-euc", script], COMMAND_MAX_S).splitlines()

    assert (user, capabilities.split()[-1], refused) == ("10001", "0" * 16, "refused")
    assert version.startswith(f"peloton {read()['api'].version}")


def test_the_environment_is_that_of_production(run: Box) -> None:
    """The virtual environment imports each package and what its extras install, and has nothing of tests or builds."""
    wanted = "import importlib\nfor name in " + repr([*PACKAGES, "psycopg", "starlette", "uvicorn", "numpy"])
    run.run(["python", "-c", f"{wanted}: importlib.import_module(name)"], COMMAND_MAX_S)
    found = run.run(["python", "-c", "import sys, os; print(*os.listdir(sys.path[-1]))"], COMMAND_MAX_S).split()
    programs = run.run(["ls", "/opt/peloton/bin"], COMMAND_MAX_S).split()

    assert [name for name in LEFT_OUT if name in found or name in programs] == []


def test_the_migration_of_compose_runs(run: Box) -> None:
    """The entry point of the service that upgrades the schema works on read-only files."""
    entrypoint = read()["migrate"].entrypoint
    assert entrypoint is not None

    assert "schema" in run.run(run.image.words(entrypoint, None), COMMAND_MAX_S)


def test_a_role_that_cannot_start_says_why(run: Box) -> None:
    """The entry point refuses an unknown role, and the health check fails before the first heartbeat."""
    check = read()["api"].check
    assert check is not None
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run.run(run.image.words(None, ["nonsense"]), COMMAND_MAX_S)
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1") as unhealthy:
        run.run(check.command, COMMAND_MAX_S)

    assert "nonsense" in refused.value.output
    assert "no heartbeat yet" in unhealthy.value.output
