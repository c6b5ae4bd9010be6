"""The archive of public .proto files, and what clients of other languages have in common with that of Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from clients.build import GO, JAVA, build_protos, main, public_protos, read_version
from peloton.client.repeats import METHODS, Repeat


def test_the_archive_compiles_by_itself(tmp_path: Path) -> None:
    """A plain compiler needs no other file than those of the archive, which has no private one."""
    archive = build_protos(tmp_path, "1.2.3")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    root = tmp_path / "peloton-protos-1.2.3"
    ours = sorted(str(path.relative_to(root)) for path in root.rglob("peloton/**/*.proto"))
    code = (
        "import sys; from grpc_tools import _protoc_compiler as c; sys.exit(c.run_main([a.encode() for a in sys.argv]))"
    )
    command = [sys.executable, "-c", code, "--proto_path=.", "--descriptor_set_out=all.binpb", *ours]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert ours == [str(path) for path in sorted(public_protos())]
    assert {"LICENSE", "NOTICE"} <= {path.name for path in root.iterdir()}


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    """Two builds of the same files have the same bytes."""
    first, second = (build_protos(tmp_path / name, read_version()) for name in ("first", "second"))

    assert first.read_bytes() == second.read_bytes()


def test_an_unknown_client_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal names the clients that can be built."""
    with pytest.raises(SystemExit):
        main(["rust"])

    assert "unknown parts rust; known parts: protos, go, java" in capsys.readouterr().err


@pytest.mark.parametrize("source", [GO / "client.go", JAVA / "src/main/java/peloton/client/Repeats.java"])
def test_other_languages_repeat_reads_alone(source: Path) -> None:
    """Each method whose name begins as a read does is one by the table of Python."""
    [found] = re.findall(r"(?:readPrefixes = |READS = List\.of).*?((?:\"\w+\",? ?)+)", source.read_text())
    prefixes = tuple(re.findall(r"\w+", found))
    kinds = [repeat for methods in METHODS.values() for name, repeat in methods.items() if name.startswith(prefixes)]

    assert len(kinds) > 50
    assert set(kinds) == {Repeat.READ}
