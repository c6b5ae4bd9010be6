"""The source distribution and the wheel have what an installation needs, and nothing that it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cli.examples import EXAMPLES
from tests.unit.tidy import PYMESOS, ROOT, files

pytestmark = pytest.mark.xdist_group("package")  # one worker builds it once
SOURCES = Path("services/web/app")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a source distribution, built from a copy of the tree, and of the wheel built from that."""
    copy, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for path in files():
        if path.parts[0] not in ("docs", "tests"):
            (copy / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, copy / path)
    build("sdist", copy, dist)
    [source] = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(dist, filter="data")
    build("wheel", dist / source.name.removesuffix(".tar.gz"), dist)
    return dist


def build(target: str, folder: Path, dist: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(dist)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def names(built: Path) -> set[str]:
    """Returns the names of all files in the wheel."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_all_code_of_the_product(names: set[str]) -> None:
    """The wheel has each module of the five packages, generated ones as well."""
    code = files("peloton", "workflows", "activities", "services", "cli")
    modules = {str(path) for path in code if path.suffix == ".py" and SOURCES not in path.parents}

    assert "peloton/api/private/hostmgr_pb2_grpc.py" in modules
    assert f"{PYMESOS}/scheduler.py" in modules
    assert modules - names == set()


def test_the_wheel_has_data_that_the_product_reads(names: set[str]) -> None:
    """The wheel has built pages, migrations, comments of the API, and all examples."""
    examples = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}

    assert {"services/web/assets/index.html", "peloton/api/comments.json"} <= names
    assert {f"cli/example_files/{name}" for name in examples if "__pycache__" not in name} - names == set()


def test_the_wheel_has_no_sources_of_pages_and_no_tests(names: set[str]) -> None:
    """The wheel has the built pages alone, and no top-level package that could replace another distribution's."""
    assert {name for name in names if name.endswith((".ts", ".tsx")) or Path(name).is_relative_to(SOURCES)} == set()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        *("peloton", "workflows", "activities", "services", "cli")
    }


def test_the_wheel_requires_nothing_that_cannot_be_installed(built: Path) -> None:
    """Neither pymesos nor http-parser, which cannot be compiled, is a requirement, of the wheel or of an extra."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]

    assert "kazoo<3,>=2.10" in required
    assert [line for line in required if line.startswith(("pymesos", "http-parser"))] == []
    assert {"local", "postgres", "web"} <= {
        line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra: ")
    }
