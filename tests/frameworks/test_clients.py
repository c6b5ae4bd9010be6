"""Programs in Go and Java, built from the artifacts of a release, on a local cluster whose API is killed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clients.build import GO, GO_MODULE, JAVA, build_go, build_java, read_version
from services.lab.local.cluster import LocalSettings
from tests.e2e.local import Cluster
from tests.nightly import NIGHTLY

BUILD_MAX_S, TOUR_MAX_S = 900.0, 180.0
POOL = "langs"

pytestmark = NIGHTLY


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(LocalSettings(port=0)) as running:
        running.pool(POOL)
        yield running


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_MAX_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def go_tour(folder: Path) -> list[str]:
    """Return the command of the tour in a module of its own, which has the client's archive by `replace`."""
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    with tarfile.open(build_go(folder, "1.2.3")) as files:
        files.extractall(folder, filter="data")
    user = folder / "user"
    user.mkdir()
    shutil.copy(GO / "examples" / "tour" / "main.go", user)
    run(["go", "mod", "init", "example.com/user"], user)
    run(["go", "mod", "edit", f"-replace={GO_MODULE}=../peloton-go-1.2.3"], user)
    run(["go", "mod", "tidy"], user)
    run(["go", "build", "-o", "tour", "."], user)
    return [str(user / "tour")]


def java_tour(folder: Path) -> list[str]:
    """Return the command of the tour, with the jar and the libraries that it needs."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not on PATH")
    jar = build_java(folder, read_version())
    return ["java", "-cp", f"{jar}:{JAVA / 'target' / 'lib'}/*", str(JAVA / "examples" / "Tour.java")]


def test_the_client_of_go_passes_its_tests() -> None:
    """The tests of the module itself, on the code that the last build generated."""
    if shutil.which("go") is None or not (GO / "api").exists():
        pytest.skip("the client of Go is not built: make clients")
    run(["go", "vet", "./..."], GO)
    run(["go", "test", "./..."], GO)


@pytest.mark.parametrize("prepare", [go_tour, java_tour])
def test_a_tour_survives_the_api(cluster: Cluster, tmp_path: Path, prepare: Callable[[Path], list[str]]) -> None:
    """The tour runs a job, waits for it, lists its pods, reads a reason and watches a service; the API is killed in the
    middle of the wait and of the watch, and neither loses anything.
    """
    command = [*prepare(tmp_path), cluster.local.addresses, f"/{POOL}"]
    lines: list[str] = []
    kill_at = ["created job .*", "pod .*-0-1 POD_STATE_RUNNING"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tour:
        assert tour.stdout is not None
        for line in tour.stdout:
            lines.append(line.strip())
            if kill_at and re.fullmatch(kill_at[0], lines[-1]):
                kill_at.pop(0)
                cluster.kill("api")
        assert tour.wait(TOUR_MAX_S) == 0, "\n".join(lines)

    assert "job ended as SUCCEEDED" in lines
    assert [f"instance {number} SUCCEEDED" for number in range(3)] == [
        line.partition(" on ")[0] for line in lines if line.startswith("instance")
    ]
    [refusal] = [line for line in lines if line.startswith("refused: JOB_NOT_FOUND")]
    assert "unknown" in refusal
    assert {"watch stream 1", "watch stream 2", "service deleted"} <= set(lines)
    first, second = (lines.index(f"watch stream {number}") for number in (1, 2))
    assert first < second < lines.index("service deleted")
