"""``peloton examples`` copies the files that other commands' help names, and hints name the program as it is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli import demo
from cli.examples import EXAMPLES
from cli.main import peloton
from cli.terminal import program


def copy(*arguments: str) -> Result:
    return CliRunner().invoke(peloton, ["examples", *arguments], prog_name="peloton")


def test_the_examples_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are below ./examples, as the help of other commands names them."""
    monkeypatch.chdir(tmp_path)

    done = copy()

    assert (done.exit_code, done.output) == (
        0,
        "copied the examples into examples: begin with examples/tutorial/hello.yaml\n",
    )
    copied = {path.relative_to("examples") for path in Path("examples").rglob("*") if path.is_file()}
    known = {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file()}
    assert copied == {path for path in known if "__pycache__" not in path.parts}


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    """A folder that exists is refused, and stays as it is."""
    (tmp_path / "mine").mkdir()

    done = copy(str(tmp_path / "mine"))

    assert done.exit_code == 1
    assert f"{tmp_path}/mine exists: name another folder" in done.output
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(("on_path", "shown"), [(True, "peloton"), (False, "{folder}/peloton")])
def test_the_program_is_named_as_the_shell_finds_it(
    on_path: bool, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has its name alone where PATH leads to it, and else the path by which it was started."""
    script = tmp_path / "peloton"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if on_path else "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])

    assert program() == shown.format(folder=tmp_path)


@pytest.mark.parametrize("has_examples", [True, False])
def test_the_demo_says_how_to_get_the_files_that_it_names(
    has_examples: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hints begin with the command that copies the examples, where their folder is missing."""
    monkeypatch.chdir(tmp_path)
    if has_examples:
        Path("examples").mkdir()

    demo.say_what_to_try()

    shown = capsys.readouterr().out
    assert "\n  peloton respool create /tutorial examples/tutorial/pool.yaml\n" in shown
    assert ("\n  peloton examples " in shown) is not has_examples
