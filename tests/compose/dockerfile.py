"""Builds the image of the Dockerfile without an engine: each instruction is carried out in a box.

The base image, Python on Debian, is this machine with the interpreter of that version at /usr/local.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.compose.box import SEARCHED, Box, Image
from tests.present import require
from tests.unit.tidy import ROOT, files

STEP_MAX_S = 3000.0
FORMS = {"COPY", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "WORKDIR"}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, " ".join(arguments.split())) for name, _, arguments in found]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage after its FROM, the last stage last."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            found[arguments] = []
        else:
            found[list(found)[-1]].append((name, arguments))
    return found


def python_version() -> str:
    """Return the version of Python of all stages."""
    [version] = {require(re.fullmatch(r"python:(\d+\.\d+)-slim(?:-\w+)?(?: AS \w+)?", base))[1] for base in stages()}
    return version


def build(folder: Path, prefix: Path) -> Image:
    """Return the image of the last stage. ``folder`` keeps the stages: it is in memory. ``prefix``: the installation of
    a Python of that version.
    """
    base = Image(
        binds={prefix: "/usr/local"},
        environment={"PATH": SEARCHED, "LD_LIBRARY_PATH": "/usr/local/lib"},
        command=("python3",),
    )
    built: dict[str, Path] = {}
    image = base
    for index, (header, steps) in enumerate(stages().items()):
        box = Box(folder / f"stage-{index}", base)
        image = base
        for name, arguments in steps:
            image = _carry_out(box, image, name, arguments, built)
        built[header.partition(" AS ")[2]] = box.folder / "changes"
        image = replace(image, layer=box.folder / "changes")
    return image


def _carry_out(box: Box, image: Image, name: str, arguments: str, built: dict[str, Path]) -> Image:
    match name:
        case "RUN":
            _forget(box)
            replace(box, image=image).run(["/bin/sh", "-c", arguments], STEP_MAX_S)
        case "COPY":
            for source, target in _copies(arguments, image.folder, built):
                _copy(source, box.folder / "changes" / target.lstrip("/"))
        case "WORKDIR":
            (box.folder / "changes" / arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
            return replace(image, folder=arguments)
        case "ENV":
            values = dict(pair.split("=", 1) for pair in shlex.split(arguments))
            known = image.environment
            given = {key: value.replace("$PATH", known["PATH"]) for key, value in values.items()}
            return replace(image, environment={**known, **given})
        case "USER":
            return replace(image, user=arguments)
        case "ENTRYPOINT":
            return replace(image, entrypoint=tuple(json.loads(arguments)), command=())
        case "CMD":
            return replace(image, command=tuple(json.loads(arguments)))
        case "EXPOSE" | "STOPSIGNAL":
            pass
        case _:
            raise ValueError(f"{name} is unknown here: add it to {__name__}")
    return image


def _forget(box: Box) -> None:
    """Remove the folders of the previous step's overlay; its changes stay."""
    for name in ("root", "work"):
        shutil.rmtree(box.folder / name, ignore_errors=True)


def _copies(arguments: str, folder: str, built: dict[str, Path]) -> Iterator[tuple[Path, str]]:
    """Yield sources and targets of a COPY, as paths of this machine and of the image."""
    words = arguments.split()
    top = built[words.pop(0).removeprefix("--from=")] if words[0].startswith("--from=") else ROOT
    *sources, target = words
    for source in sources:
        path = top / source.lstrip("/")
        into = str(Path(folder, target))
        is_named = target.endswith("/") or (len(sources) > 1)
        yield path, f"{into}/{path.name}" if path.is_file() and (is_named or target == ".") else into


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder; of the repository what belongs to it alone, which is what .dockerignore sends."""
    if not source.is_relative_to(ROOT):
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    relative = source.relative_to(ROOT)
    for path in (one for one in files() if one == relative or one.is_relative_to(relative)):
        place = target / path.relative_to(relative) if source.is_dir() else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, place)
