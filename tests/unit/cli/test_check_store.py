"""``peloton admin check``: findings, their forms and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.storage import migrate
from services.storage.engine import Database
from tests.unit.cli.conftest import Run


def test_findings_are_shown_and_fail(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is 0 for a clean store and 1 for one with a broken rule; JSON has the ids."""
    url = f"sqlite:///{tmp_path}/peloton.db"
    monkeypatch.setenv("PELOTON_DATABASE", url)
    refused = run("admin check")
    assert (1, True) == (refused.exit_code, "upgrade it first" in refused.stderr)
    assert list(tmp_path.iterdir()) == []
    migrate.upgrade(url)
    clean = run("admin check")
    assert (0, True) == (clean.exit_code, clean.stdout.endswith(" rules hold\n"))
    db = Database(url)
    orphan = "INSERT INTO job_wake VALUES ('00000000000040008000000000000001', 0, 0)"
    db.write(lambda conn: conn.execute(sa.text(orphan)))
    db.close()

    shown, asked = run("admin check"), run("admin check --json")

    assert (1, 1) == (shown.exit_code, asked.exit_code)
    assert "1 rows break 1 of " in shown.stderr
    assert "job_wake" in shown.stdout
    assert [
        {
            "table": "job_wake",
            "rule": "its job exists",
            "count": 1,
            "first_ids": ["00000000-0000-4000-8000-000000000001"],
            "is_note": False,
        }
    ] == json.loads(asked.stdout)


def test_a_file_of_settings_names_the_database(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--config names the file whose ``database`` is checked."""
    monkeypatch.delenv("PELOTON_DATABASE", raising=False)
    migrate.upgrade(url := f"sqlite:///{tmp_path}/peloton.db")
    (tmp_path / "peloton.toml").write_text(f'database = "{url}"\n')

    checked = run(f"admin check --config {tmp_path}/peloton.toml")

    assert (0, True) == (checked.exit_code, checked.stdout.endswith(" rules hold\n"))
