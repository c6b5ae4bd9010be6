"""Where each Python process of a cluster spends its time: py-spy looks 100 times a second who holds the interpreter.

What runs beside the interpreter (SQLite, compression, the insides of gRPC) does not show: that is the rest of a
process's CPU seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from services.local.part import Part

FOLDER_VARIABLE = "PELOTON_BENCH_PROFILE"
RATE_HZ = 100
TOP = 12
PATIENCE_S = 60.0
_OURS = ("services/", "peloton/", "workflows/", "activities/")
_FRAME = re.compile(r"(?P<function>.*?) \((?P<file>[^():]+)(?::\d+)?\)$")


def into(folder: Path) -> None:
    """Clusters that this process starts from now on are profiled."""
    _program()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER_VARIABLE] = str(folder.resolve())


def _program() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if not found:
        raise SystemExit("py-spy is missing: pip install -e '.[docs]'")
    return found


@contextmanager
def profiled(parts: dict[str, Part]) -> Iterator[None]:
    """Writes `PART.txt` (stacks, for flame graphs) and `PART.md` (the table), if somebody asked for it. A second
    cluster of the same case takes the place of the first."""
    folder = os.environ.get(FOLDER_VARIABLE)
    with ExitStack() as stack:
        for name, part in parts.items() if folder else ():
            if name != "temporal":
                assert part.process is not None
                stack.enter_context(_watched(part.process.pid, Path(str(folder)) / name))
        yield


@contextmanager
def _watched(pid: int, path: Path) -> Iterator[None]:
    stacks = path.with_suffix(".txt")
    command = [
        _program(),
        "record",
        "--pid",
        str(pid),
        "--rate",
        str(RATE_HZ),
        "--format",
        "raw",
        "--full-filenames",
        "--gil",
    ]
    spy = subprocess.Popen([*command, "--output", str(stacks)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        spy.send_signal(signal.SIGINT)
        spy.wait(PATIENCE_S)
    path.with_suffix(".md").write_text(table(stacks.read_text().splitlines()))


def table(stacks: Iterable[str]) -> str:
    """Lines `frame;frame;... COUNT` -> seconds and shares by the innermost function of ours, and what it had called."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in stacks:
        frames, _, count = line.rpartition(" ")
        counts[_place(frames.split(";"))] += int(count)
    total = sum(counts.values())
    rows = [f"{total / RATE_HZ:.1f} s in Python", "", "| share | in | in it |", "|---|---|---|"]
    rows += [f"| {count / total:.0%} | {ours} | {callee} |" for (ours, callee), count in counts.most_common(TOP)]
    return "\n".join([*rows, ""])


def _place(frames: list[str]) -> tuple[str, str]:
    """The innermost frame of ours, and the innermost package beneath it."""
    beneath: list[str] = []
    where = "no code of ours"
    for frame in frames:
        match = _FRAME.match(frame)
        if match is None:
            continue
        own = _own(match["file"])
        if own:
            where, beneath = f"`{own}` {match['function']}", []
        else:
            beneath.append(_package(match["file"]))
    packages = [name for name in beneath if not name.endswith((".py", ">"))]
    return where, (packages or beneath or ["itself"])[-1]


def _own(file: str) -> str:
    """Path within the project; empty for the code of others."""
    for folder in _OURS:
        before, found, rest = file.rpartition(f"/{folder}")
        if found and "site-packages" not in before:
            return f"{folder}{rest}"
    return ""


def _package(file: str) -> str:
    """Of another's file: its package, or the name of a file of Python's own library."""
    _, found, rest = file.rpartition("site-packages/")
    return rest.split("/")[0] if found else Path(file).name
