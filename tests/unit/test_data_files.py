"""Faults of a data folder that are found before a local cluster uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.errors import Unavailable
from services.lab.local import data_files


def test_a_full_disk_is_reported_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported with the folder and the numbers."""
    monkeypatch.setattr(data_files, "FREE_MIN_BYTES", 1 << 60)

    with pytest.raises(
        Unavailable, match=rf"the disk of data folder {tmp_path} is full: \d+ MiB are free, 1099511627776"
    ):
        data_files.check(tmp_path)


def test_files_of_an_earlier_version_are_for_their_user_alone(tmp_path: Path) -> None:
    """Files of the cluster become private to their user; other files are unchanged."""
    for name in ("peloton.db", "temporal.db-wal", "theirs"):
        (tmp_path / name).touch(mode=0o644)
    (tmp_path / "logs").mkdir(mode=0o755)

    data_files.check(tmp_path)

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {"peloton.db": 0o600, "temporal.db-wal": 0o600, "logs": 0o700, "theirs": 0o644} == modes
