"""Gives the tests the image of the Dockerfile and the stack of docker-compose.yml."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.figures import Missing
from tests.compose.box import Image, folder_in_memory, lacking
from tests.compose.dockerfile import build, python_version
from tests.compose.engine import Engine, engine
from tests.compose.file import read
from tests.compose.images import AGENTS, CannotFetch, all_images
from tests.e2e.test_installation import interpreter


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    if reason := lacking():
        pytest.skip(reason)
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="session")
def peloton(memory: Path) -> Image:
    """The image of the Dockerfile."""
    python = interpreter(python_version())
    if not python:
        pytest.skip(f"no Python {python_version()} on this machine")
    code = "import sys; print(sys.base_prefix)"
    prefix = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    try:
        return build(memory / "peloton", Path(prefix))
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error}\n{error.output}")


@pytest.fixture(scope="session")
def stack(memory: Path, peloton: Image) -> Iterator[Engine]:
    """All services that are run here, up."""
    try:
        images = all_images(peloton)
    except (CannotFetch, Missing, subprocess.CalledProcessError) as error:
        pytest.skip(f"a part of docker-compose.yml cannot be had: {error}")
    services = read()
    agents = {name: "mesos-master" for name in services if name.startswith(AGENTS)}
    folder = memory / "stack"
    folder.mkdir()
    with engine(services, images, folder, agents) as made:
        made.up()
        yield made
