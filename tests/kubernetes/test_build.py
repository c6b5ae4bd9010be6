"""The build of a real Kubernetes, with a fake compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kubernetes import build, kubelet_parts

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0
COMPILER = """#!/bin/sh
echo $$ > {seen}.new
mv {seen}.new {seen}
exec sleep 600
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_build_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    """No compiler continues after kill -9 of a build."""
    seen, compiler = tmp_path / "seen", tmp_path / "go"
    compiler.write_text(COMPILER.format(seen=seen))
    compiler.chmod(0o700)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "tests.kubernetes.build"], env=environment)
    try:
        _wait(seen.is_file)
        compiling = seen.read_text().strip()
        assert _lives(compiling)
    finally:
        process.kill()
        process.wait()
    _wait(lambda: not _lives(compiling))


def _lives(process_id: str) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # it has ended, and its parent has not reaped it


def _wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


# How it ends, with a compiler of our own.

LISTS = 'if [ "$1" = list ]; then printf "a/one\\nb/two\\nc/three\\n"; exit; fi\n'
BUILDS = """#!/bin/sh
{lists}
echo a/one
while [ ! -e {go_on} ]; do sleep 0.05; done
echo b/two
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""
FAILS = """#!/bin/sh
{lists}
echo a/one
echo '# a/one'
echo 'one.go:7: no such thing'
exit 2
"""


@pytest.fixture
def compile_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install the text of a compiler; return the file that lets it continue."""

    def take(text: str) -> Path:
        compiler, go_on = tmp_path / "go", tmp_path / "go-on"
        compiler.write_text(text.format(lists=LISTS, go_on=go_on))
        compiler.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(build, "POLL_S", 0.02)
        return go_on

    return take


def test_a_build_continues_until_it_is_done_and_shows_its_progress(
    compile_with: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build without a bound ends when the compiler does."""
    go_on, shown = compile_with(BUILDS), "kube: compiled 1 packages of 3 at most"
    monkeypatch.setattr(build, "PROGRESS_S", 0.05)
    said = ""

    def until_shown() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return shown in said

    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(build.main, [])
        _wait(until_shown)
        assert not ends.done()
        go_on.touch()
        assert 0 == ends.result(TIMEOUT_S)

    assert build.is_built()


def test_a_build_whose_time_is_up_fails(
    compile_with: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the progress, and states that the compiled packages are kept."""
    compile_with(BUILDS)

    assert 1 == build.main(["--until", f"{time.time() + 0.5}"])
    assert "the time is up (kube: " in (said := capsys.readouterr().err)
    assert "the next build continues from here" in said
    assert not build.is_built()


def test_a_build_that_fails_shows_what_the_compiler_said(
    compile_with: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The names of compiled packages, which surround the compiler's lines, are left out."""
    compile_with(FAILS)

    assert 1 == build.main([])
    assert "failed:\n# a/one\none.go:7: no such thing\n" in capsys.readouterr().err


def test_without_a_compiler_a_build_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The build fails without a compiler, with an exit code."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert 1 == build.main([])


@pytest.mark.parametrize(("why", "code"), [("a kubelet runs as root", 0), ("", 1)])
def test_a_kubelet_that_is_not_got_fails_where_the_machine_is_one_for_it(
    why: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing kubelet is a failure on a supported machine only."""

    def fetch() -> None:
        raise kubelet_parts.CannotFetch("no archive")

    monkeypatch.setattr(kubelet_parts, "unfit", lambda: why)
    monkeypatch.setattr(kubelet_parts, "fetch", fetch)

    assert code == kubelet_parts.main([])


def test_ci_runs_the_tests_when_a_build_fails(tmp_path: Path) -> None:
    """The build of CI has a time limit, and the results of `make types` and `make test` decide."""
    make, seen = tmp_path / "make", tmp_path / "seen"
    make.write_text(f'#!/bin/sh\necho "$@" >> {seen}\n[ "$1" = test ] || [ "$1" = types ]\n')
    make.chmod(0o700)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run([ROOT / ".ci/run"], env=environment, capture_output=True, text=True, check=False)

    first, *rest = seen.read_text().splitlines()
    assert (0, ["browser", "types", "test"]) == (done.returncode, rest)
    assert 600 < float(first.removeprefix("kubernetes UNTIL=")) - time.time() < 1_200
