"""Generates the code of gRPC services and Peloton's part of pymesos while the package is built or installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PYMESOS = Path("third_party/pymesos")
PYMESOS_MODULES = ("detector", "interface", "process", "scheduler", "utils")
PYMESOS_TARGET = Path("services/hostmgr/mesos/pymesos")
PARSER_IMPORT = "from http_parser.http import HttpParser\n"
NO_PARSER = "HttpParser = None  # of Connection, which Peloton replaces\n"


class GenerateCode(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root))
        from peloton.api.generate import generate_services

        generate_services(root, root)
        extract_pymesos(download_pymesos(root), root / PYMESOS_TARGET)
        write_commit(root)
        build_data["artifacts"].append("/cli/commit.txt")


def write_commit(root: Path) -> None:
    """Write the commit of the checkout for ``peloton version``; a source distribution brought its own."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        (root / "cli" / "commit.txt").write_text(found.stdout)


def download_pymesos(root: Path) -> Path:
    """Return the archive of the pinned release, which pip downloads unless a source distribution brought it along."""
    requirement = root / PYMESOS / "requirements.txt"
    release, _, digest = requirement.read_text().strip().partition(" --hash=sha256:")
    archive = root / PYMESOS / f"{release.replace('==', '-')}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", ":all:", "--requirement", str(requirement), "--dest", str(archive.parent)]
        subprocess.run(command, check=True)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{archive} is not the release that {requirement} names: delete it, and build again")
    return archive


def extract_pymesos(archive: Path, target: Path) -> None:
    """Write the modules that Peloton uses as a package below its own, without the import of http-parser.

    The released http-parser cannot be compiled any more, and only the stock connection would call it.
    """
    target.mkdir(exist_ok=True)
    (target / "__init__.py").touch()
    folder = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as files:
        for module in PYMESOS_MODULES:
            member = files.extractfile(f"{folder}/pymesos/{module}.py")
            assert member is not None
            (target / f"{module}.py").write_text(member.read().decode().replace(PARSER_IMPORT, NO_PARSER))
