"""The command line of minicluster."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest

from services.lab.mesos.command import minicluster, settings_of
from services.lab.shared.hosts import default_hosts

ROOT = Path(__file__).resolve().parents[4]


def test_the_package_installs_the_command() -> None:
    """The package installs `minicluster` alongside `peloton`."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, name = scripts["minicluster"].partition(":")

    assert minicluster is getattr(import_module(module), name)


def test_its_page_names_every_option() -> None:
    """The page names every option of the command and no other."""
    page = (ROOT / "docs" / "minicluster.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `--")]
    options = [name for parameter in minicluster.params for name in parameter.opts]

    assert sorted(options) == sorted(name for row in rows for name in re.findall(r"--[a-z-]+", row))


def test_every_option_has_a_help_text() -> None:
    """Every help text is a sentence."""
    texts = [option.help or "" for option in minicluster.params if isinstance(option, click.Option)]

    assert [] == [text for text in texts if not text.endswith(".")]


def test_without_options_there_are_three_hosts() -> None:
    """The defaults are real tasks, the port of a Mesos master, and no token."""
    settings = settings_of([])

    assert (default_hosts(), False, 5050, "") == (settings.hosts, settings.simulate, settings.port, settings.token)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("--simulation s.yaml", "--simulation needs --simulate N"),
        ("--hosts h.yaml --simulate 3", "--hosts and --simulate exclude each other"),
        ("--hosts h.yaml", "h.yaml: cannot be read"),
        ("--simulate 0", "the number of simulated hosts must be between 1 and 200000, got 0"),
        ("--tls-ca ca.pem", "--tls-ca needs --tls-cert"),
        ("--task-ports 9-8", "want A-B with 1 <= A <= B <= 65535, got '9-8'"),
        ("--agent-timeout -1", "-1.0 is not in the range"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: str, fault: str) -> None:
    """Conflicting options are rejected with the option, the rule and the numbers."""
    with pytest.raises(click.UsageError, match=re.escape(fault)):
        settings_of(arguments.split())
