"""``peloton settings``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from services.settings_table import SETTINGS
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELOTON_DATABASE", "postgresql+psycopg://me:s3cr3t@db/peloton")


def test_settings_are_listed_with_their_sources(run: Run, tmp_path: Path) -> None:
    """The table has each setting in a line; no output has a password."""
    file = tmp_path / "peloton.toml"
    file.write_text("leader_ttl_s = 4\n")
    lines = [line.split() for line in run(f"settings --config {file}").stdout.splitlines()]

    assert [one.variable for one in SETTINGS.values()] == [line[0] for line in lines[1:]]
    assert ["PELOTON_LEADER_TTL_S", "4.0", str(file)] in lines
    assert ["PELOTON_DATABASE", "postgresql+psycopg://me:***@db/peloton", "environment"] in lines
    assert ["PELOTON_QOS", "true", "default"] in lines


def test_settings_of_a_role_are_for_programs_too(run: Run) -> None:
    """JSON and YAML have the whole rows of the settings that the role reads."""
    rows = json.loads(run("settings --role resmgr --json").stdout)
    ttl = next(row for row in rows if row["name"] == "leader_ttl_s")

    assert rows == yaml.safe_load(run("settings --role resmgr -o yaml").stdout)
    assert [row["variable"] for row in rows] == run("settings --role resmgr -o name").stdout.split()
    assert [one.name for one in SETTINGS.values() if "resmgr" in one.rule.readers] == [row["name"] for row in rows]
    given = (ttl["value"], ttl["type"], ttl["unit"], ttl["readers"])
    assert (5.0, "float", "seconds", ["api", "worker", "resmgr", "hostmgr"]) == given
    assert "s3cr3t" not in json.dumps(rows)


def test_faults_are_reported_instead(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is a line, with exit code 2."""
    monkeypatch.setenv("PELOTON_LEADER_TTL_S", "nan")
    monkeypatch.setenv("PELOTON_QOS", "maybe")
    refused = run("settings")

    assert (2, "") == (refused.exit_code, refused.stdout)
    assert ["PELOTON_LEADER_TTL_S=nan", "PELOTON_QOS=maybe"] == [
        line.split()[0] for line in refused.stderr.splitlines()
    ]
