"""Files that are no files, have no end, or expand: each command ends with an error that names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import peloton.files
from peloton.api import yaml_config
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.test_respool_and_host import lookup_answer

COMMANDS = (
    "job create /pool FILE",
    "job update 91b1b8e5-2ba8-11e7-bc23-0242ac11000d FILE",
    "job stateless create /pool FILE 1",
    "job daemon create /pool FILE",
    "job schedule create nightly /pool FILE --cron 0_0_*_*_*",
    "respool create /pool FILE",
    "respool update /pool FILE",
    "admin deploy FILE",
    "admin keyring ls FILE",
    "admin keyring add FILE",
    "settings --config FILE",
    "admin check --config FILE",
    "admin rotate-secrets --config FILE",
)
BYTES_MAX = 2**20


def endless(folder: Path) -> Path:
    return Path("/dev/zero")


def a_folder(folder: Path) -> Path:
    return folder


def a_pipe(folder: Path) -> Path:
    """A pipe whose writer stays and writes nothing."""
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def large(folder: Path) -> Path:
    return write_given(folder, b"#" * (BYTES_MAX + 1))


def no_utf8(folder: Path) -> Path:
    return write_given(folder, b"name: \xff\xfe\n")


def deep(folder: Path) -> Path:
    return write_given(folder, b"a = " + b"[" * 100_000)


def deep_mapping(folder: Path) -> Path:
    return write_given(folder, b"a: " + b"{a: " * 50_000)


def aliases(folder: Path) -> Path:
    """Nine levels of ten aliases each: a thousand million values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return write_given(folder, "\n".join([*lines, "labels: *a8"]).encode())


def write_given(folder: Path, content: bytes) -> Path:
    path = folder / "given"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("make", [endless, a_folder, a_pipe, large, no_utf8, deep, deep_mapping, aliases])
def test_a_hostile_file_is_refused_by_each_command(
    make: Callable[[Path], Path], run: Run, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is a line or the usage, names the file and is no internal one; nothing is sent."""
    monkeypatch.setattr(yaml_config, "BYTES_MAX", BYTES_MAX)
    monkeypatch.setattr(peloton.files, "PIPE_S", 0.05)
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    path = make(tmp_path)
    odd = []
    for command in COMMANDS:
        words = [word.replace("_", " ") if "*" in word else word for word in command.split()]
        result = run(*[str(path) if word == "FILE" else word for word in words])
        is_clear = result.exit_code in (1, 2) and str(path) in result.stderr and "internal error" not in result.stderr
        if not is_clear or len(result.stderr) > 2_000:
            odd.append((command, result.exit_code, result.stderr[:500]))

    assert [] == odd
