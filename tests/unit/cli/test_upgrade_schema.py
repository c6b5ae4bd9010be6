"""``peloton admin upgrade-schema`` and its forms at the start of a role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services import runtime
from services.storage import schema_version
from tests.unit.cli.conftest import Run


def test_the_schema_is_created_and_then_left_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says from which version to which the schema went."""
    url = f"sqlite:///{tmp_path}/peloton.db"
    monkeypatch.setenv("PELOTON_DATABASE", url)

    assert f"Created schema {schema_version.newest()}\n" == run("admin upgrade-schema").stdout

    assert schema_version.newest() == schema_version.of(url)
    assert "nothing to upgrade" in run("admin upgrade-schema").stdout


def test_without_a_database_it_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting."""
    monkeypatch.delenv("PELOTON_DATABASE", raising=False)

    refused = run("admin upgrade-schema")

    assert 2 == refused.exit_code
    assert "PELOTON_DATABASE is not set" in refused.stderr


@pytest.mark.parametrize(("line", "is_upgraded"), [("", False), ("--upgrade-schema", True), ("--migrate", True)])
def test_a_role_upgrades_it_on_demand(line: str, is_upgraded: bool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old name of the option has the same effect, and is not in any help."""
    asked: list[Any] = []
    monkeypatch.setattr(runtime, "run", lambda roles, upgrade, config: asked.append((roles, upgrade)))

    run(f"serve {line} api")

    assert [(("api",), is_upgraded)] == asked
    assert "--migrate" not in run("serve --help").stdout
