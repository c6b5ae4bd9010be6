"""The source distribution and the wheel have what an installation needs, and nothing that it does not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from cli.examples import EXAMPLES
from tests.package import build_distributions
from tests.unit.tidy import PYMESOS, files

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]  # one worker builds it once
SOURCES = Path("services/web/app")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_distributions(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def names(built: Path) -> set[str]:
    """Return the names of all files in the wheel."""
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
    """The wheel has built pages, migrations, comments of the API, types of Aurora's, and all examples."""
    examples = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}
    data = {"services/web/assets/index.html", "peloton/api/comments.json", "services/aurorabridge/aurora.thrift"}

    assert data <= names
    assert {f"cli/example_files/{name}" for name in examples if "__pycache__" not in name} - names == set()


def test_the_wheel_has_no_sources_of_pages_and_no_tests(names: set[str]) -> None:
    """The wheel has the built pages alone, and no top-level package that could replace another distribution's."""
    assert {name for name in names if name.endswith((".ts", ".tsx")) or Path(name).is_relative_to(SOURCES)} == set()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        *("peloton", "workflows", "activities", "services", "cli")
    }


def test_the_wheel_requires_nothing_that_cannot_be_installed(built: Path) -> None:
    """The requirements, also those of extras, include neither pymesos nor http-parser, which cannot be compiled."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]

    assert "kazoo<3,>=2.10" in required
    assert [line for line in required if line.startswith(("pymesos", "http-parser"))] == []
    assert {"aurora", "local", "postgres", "web"} <= {
        line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra: ")
    }
