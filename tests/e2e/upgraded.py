"""A local cluster whose processes begin with the code of the last release, each to be replaced by the present one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from services.lab.local.cluster import LocalCluster, LocalSettings
from tests.e2e.local import Cluster
from tests.unit.compatibility.release import latest

ROOT = Path(__file__).parents[2]
PYMESOS = "services/hostmgr/mesos/pymesos"
"""The modules that release 0.1 took from an installed package, which its successors bring along."""
MIGRATE = "import sys; from services.storage.migrate import upgrade; upgrade(sys.argv[1])"


def unpack_last_release(folder: Path) -> Path:
    """Unpack and return the tree of the last release; skip the test where the history of the repository does not
    reach so far."""
    packed = subprocess.run(["git", "archive", latest().commit], cwd=ROOT, capture_output=True)
    if packed.returncode:
        pytest.skip(f"release {latest().name} is commit {latest().commit}, which is not in this clone")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tree:
        tree.extractall(folder, filter="data")
    shutil.copytree(ROOT / PYMESOS, folder / "pymesos")
    (folder / "pymesos" / "__init__.py").write_text("from .scheduler import MesosSchedulerDriver\n")
    return folder


class Upgraded(Cluster):
    """``release`` is the tree of the last release, whose code all processes run until they are replaced."""

    def __init__(self, settings: LocalSettings, release: Path) -> None:
        self.release = release
        super().__init__(settings)

    async def _make(self, settings: LocalSettings) -> LocalCluster:
        local = OfRelease(settings, lambda part, line: self.log.append(f"{part}: {line}"))
        local.code = code_of(self.release)
        return local

    def replace(self, part: str, *, back: bool = False) -> None:
        """Replace a process by one of the present code; ``back``: of the last release."""
        self.stop_part(part)
        kept = {name: value for name, value in self.local.part(part).environment.items() if name not in CODE}
        self.local.part(part).environment = {**kept, **(code_of(self.release) if back else {})}
        self.start_part(part)


CODE = ("PYTHONPATH", "PYTHONSAFEPATH")


def code_of(tree: Path) -> dict[str, str]:
    """The variables with which an interpreter takes our packages from there, and not from where it was started."""
    return dict(zip(CODE, (str(tree), "1"), strict=True))


class OfRelease(LocalCluster):
    code: Mapping[str, str]

    def _describe_parts(self) -> None:
        super()._describe_parts()
        roles = [part for part in self.parts.values() if not any("services.lab" in word for word in part.argv)]
        for part in roles:  # the emulated cluster is no part of a release
            part.environment = {**part.environment, **self.code}

    def _migrate(self) -> None:
        """Migrates the schema by the last release, as its operator did."""
        environment: dict[str, Any] = {**self.parts["api"].whole_environment}
        subprocess.run([sys.executable, "-c", MIGRATE, self.database], env=environment, check=True)
