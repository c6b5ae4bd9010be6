"""Chooses the modules of the client's wheel, and generates the code of the API with the compiler of this build.

The wheel has the client, the integrations, the public API, and what they import: no other module of the repository.
"""

from __future__ import annotations

import ast
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("peloton/client", "peloton/integrations")


class OfIntegrations(MetadataHookInterface):
    """Adds the extras that are named after an integration, and the commands and plug-ins of integrations."""

    def update(self, metadata: dict[str, Any]) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        names = {path.stem for path in (ROOT / "peloton/integrations").iterdir()}
        extras = project["optional-dependencies"].items()
        metadata["optional-dependencies"] = {
            name: [need.replace(project["name"], metadata["name"]) for need in needs]
            for name, needs in extras
            if name in names
        }
        metadata["scripts"] = of_integrations(project["scripts"])
        groups = {group: of_integrations(places) for group, places in project["entry-points"].items()}
        metadata["entry-points"] = {group: places for group, places in groups.items() if places}


def of_integrations(places: dict[str, str]) -> dict[str, str]:
    return {name: place for name, place in places.items() if place.startswith("peloton.integrations.")}


class ClientModules(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the modules to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(ROOT))
        from peloton.api.generate import PRIVATE, generate_services, proto_files, run_protoc

        self.folder = Path(tempfile.mkdtemp())
        protos, generated = self.folder / "protos", self.folder / "wheel"
        generated.mkdir()
        for path in proto_files(ROOT):
            if PRIVATE not in path.parents:
                (protos / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, protos / path)
        run_protoc(protos, ["python"], generated, proto_files(protos))
        generate_services(protos, generated)
        (generated / "peloton" / "py.typed").touch()
        included = {path.relative_to(generated): path for path in generated.rglob("*") if path.is_file()}
        types = {path.with_suffix(".pyi") for path in included}
        included |= {path: ROOT / path for path in types if (ROOT / path).exists()}
        included |= {path: ROOT / path for path in modules_of(ROOT, included)}
        build_data["force_include"].update({str(source): str(path) for path, source in sorted(included.items())})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self.folder)


def modules_of(root: Path, generated: Iterable[Path]) -> set[Path]:
    """Return the client's files that are not generated: its packages, and the modules that they import."""
    found = {
        path.relative_to(root)
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    made = set(generated)
    found |= {
        folder / "__init__.py"
        for path in made
        for folder in path.parents
        if folder.name and (root / folder / "__init__.py").exists()
    }
    left = list(found)
    while left:
        path = left.pop()
        if path.suffix != ".py":
            continue
        for imported in imports_of(root / path):
            for file in files_of(root, imported):
                if file not in found and file not in made:
                    found.add(file)
                    left.append(file)
    return found


def imports_of(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a module of Peloton imports, or may import."""
    if not path.exists():
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def files_of(root: Path, name: str) -> Iterator[Path]:
    """Yield the file of a module of Peloton, or of the module that defines the name, and those of its packages."""
    parts = name.split(".")
    if parts[0] != "peloton":
        return
    for count in range(1, len(parts) + 1):
        place = Path(*parts[:count])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if (root / file).exists():
                yield file
