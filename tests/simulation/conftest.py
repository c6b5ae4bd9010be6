"""Fixtures of random lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.storage import migrate
from tests import sqlite_engines

sqlite_engines.reuse()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path
