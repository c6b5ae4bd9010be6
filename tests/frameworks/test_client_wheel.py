"""The wheel of the client alone, in environments with the oldest and the newest libraries that it takes."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.local import Cluster, temporary
from tests.nightly import NIGHTLY

pytestmark = [
    NIGHTLY,
    pytest.mark.xdist_group("client-wheel"),
    pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 12)), reason="grpcio-tools 1.62 has no wheel"),
]
ROOT = Path(__file__).parents[2]
INSTALL_MAX_S = 600.0
LIBRARIES = {
    "oldest": ("protobuf==4.25.3", "grpcio==1.62.3", "googleapis-common-protos==1.63.0"),
    "protobuf 5": ("protobuf>=5.29,<6",),
    "protobuf 6": ("protobuf>=6.31,<7",),
    "newest": (),
}
PROGRAM = """
import asyncio, sys
from peloton.client import AsyncClient, Client

config = {"name": "hello", "instanceCount": 2, "sla": {"preemptible": True}, "defaultConfig": {
    "resource": {"cpuLimit": 0.1, "memLimitMb": 16}, "command": {"shell": True, "value": "echo hello"}}}

async def wait(job_id):
    async with AsyncClient(sys.argv[1]) as client:
        return await client.wait(job_id, 120)

with Client(sys.argv[1]) as client:
    job_id = client.submit("/team", config)
    print(asyncio.run(wait(job_id)).state, client.logs(job_id, 1), end="")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as ``make dist`` does. It is skipped where the compiler cannot be installed."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT / "clients" / "python")])
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(temporary(tmp_path_factory.mktemp("cluster"))) as cluster:
        cluster.pool("team")
        yield cluster


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_MAX_S, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


def test_it_has_the_client_alone(wheel: Path) -> None:
    """The wheel has the client, the integrations, the public API with its types, and little else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    folders = {name.split("/")[1] for name in names if name.startswith("peloton/") and name.count("/") > 1}

    assert {"api", "client", "integrations", "model"} == folders
    assert not {name for name in names if name.startswith("peloton/api/private/")}
    for name in ("py.typed", "client/asynchronous.py", "api/v0/short_names/job_pb2_grpc.py"):
        assert f"peloton/{name}" in names


@pytest.mark.parametrize("libraries", LIBRARIES)
def test_it_runs_by_itself(wheel: Path, cluster: Cluster, tmp_path: Path, libraries: str) -> None:
    """A program runs a job where nothing but the wheel and its requirements is installed."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", str(wheel), *LIBRARIES[libraries]])

    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM, cluster.local.address],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert ("SUCCEEDED hello\n", "") == (done.stdout, done.stderr)
