"""``peloton admin backup`` and ``restore``."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.storage import migrate, schema_version
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder of a local cluster with both stores, which are empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("peloton.db", "temporal.db"):
        migrate.upgrade(f"sqlite:///{folder / name}")
    return folder


def test_both_stores_go_and_come_back(run: Run, data: Path, tmp_path: Path) -> None:
    """The commands say what they did; stores that are there are replaced on demand, and kept under another name."""
    where, folder = f"--data {data}", tmp_path / "monday"

    said = run(f"admin backup {folder} {where} --no-schedules").stdout

    assert said.startswith(f"{folder}: the database (schema {schema_version.newest()}), Temporal's store; ")
    assert {"manifest.json", "peloton.db", "temporal.db"} == {path.name for path in folder.iterdir()}
    refused = run(f"admin restore {folder} {where} --part temporal")
    assert 1 == refused.exit_code
    assert "temporal.db exists" in refused.stderr
    parts = "--part database --part temporal"
    restored = run(f"admin restore {folder} {where} {parts} --replace").stdout.splitlines()
    assert [
        f"{data / name} restored; the previous file is {name}.replaced" for name in ("peloton.db", "temporal.db")
    ] == restored
    assert (data / "peloton.db.replaced").exists()
    (data / "temporal.db").unlink()
    assert f"{data}/temporal.db restored\n" == run(f"admin restore {folder} {where} --part temporal").stdout


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("backup {folder} --no-schedules", "PELOTON_DATABASE is not set"),
        ("backup {folder} --data {data} --no-schedules", "exists: name a new folder"),
        ("restore {folder}/nowhere --data {data}", "no complete backup"),
        ("restore {folder} --data {data} --part schedules", "has no schedules"),
    ],
)
def test_what_cannot_be_done_is_refused(
    line: str, why: str, run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the setting, the folder or the part."""
    monkeypatch.delenv("PELOTON_DATABASE", raising=False)
    folder = tmp_path / "monday"
    if "{data}" in line:
        run(f"admin backup {folder} --data {data} --no-schedules")

    refused = run("admin " + line.format(folder=folder, data=data))

    assert refused.exit_code
    assert why in refused.stderr
