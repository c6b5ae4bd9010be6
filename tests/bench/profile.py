"""Profile of each Python process of a cluster: py-spy samples the thread that holds the interpreter 100 times a second.

Work outside the interpreter (SQLite, compression, the insides of gRPC) is missing: it is the rest of a process's CPU
seconds.
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

from services.lab.local.part import Part

FOLDER_VARIABLE = "PELOTON_BENCH_PROFILE"
RATE_HZ = 100
TOP = 12
TIMEOUT_S = 60.0
_OURS = ("services/", "peloton/", "workflows/", "activities/")
_FRAME = re.compile(r"(?P<function>.*?) \((?P<file>[^():]+)(?::\d+)?\)$")


def into(folder: Path) -> None:
    """Profile the clusters that this process starts from now on."""
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
def profile_parts(parts: dict[str, Part]) -> Iterator[None]:
    """Write `PART.txt` (stacks, for flame graphs) and `PART.md` (the table), if profiling is on. A second cluster of
    the same case overwrites the files of the first.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    with ExitStack() as stack:
        for name, part in parts.items() if folder else ():
            if name != "temporal":
                assert part.process is not None
                stack.enter_context(_watch(part.process.pid, Path(str(folder)) / name))
        yield


@contextmanager
def _watch(pid: int, path: Path) -> Iterator[None]:
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
        spy.wait(TIMEOUT_S)
    path.with_suffix(".md").write_text(table(stacks.read_text().splitlines()))


def table(stacks: Iterable[str]) -> str:
    """Return seconds and shares by the innermost function of Peloton and its callee, from lines `frame;frame;...
    COUNT`.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for line in stacks:
        frames, _, count = line.rpartition(" ")
        counts[_place(frames.split(";"))] += int(count)
    total = sum(counts.values())
    rows = [f"{total / RATE_HZ:.1f} s in Python", "", "| share | in | in it |", "|---|---|---|"]
    rows += [f"| {count / total:.0%} | {ours} | {callee} |" for (ours, callee), count in counts.most_common(TOP)]
    return "\n".join([*rows, ""])


def _place(frames: list[str]) -> tuple[str, str]:
    """Return the innermost frame of Peloton, and the innermost package beneath it."""
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
    """Return the path within the project; empty for foreign code."""
    for folder in _OURS:
        before, found, rest = file.rpartition(f"/{folder}")
        if found and "site-packages" not in before:
            return f"{folder}{rest}"
    return ""


def _package(file: str) -> str:
    """Return the package of a foreign file, or the name of a file of Python's own library."""
    _, found, rest = file.rpartition("site-packages/")
    return rest.split("/")[0] if found else Path(file).name
