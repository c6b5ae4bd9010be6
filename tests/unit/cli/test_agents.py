"""How commands reach the agents of a Mesos that asks who calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import agents
from peloton.api.mesos_access import OPEN
from peloton.errors import InvalidArgument


def test_the_environment_says_how() -> None:
    """By the names of the host manager's settings; nothing of it: in plain text, as nobody."""
    assert OPEN == agents.access_from({})
    with pytest.raises(InvalidArgument, match="PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE go together"):
        agents.access_from({"PELOTON_MESOS_PRINCIPAL": "ops"})


def test_credentials_go_along(tmp_path: Path) -> None:
    """With each request."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    access = agents.access_from({"PELOTON_MESOS_PRINCIPAL": "ops", "PELOTON_MESOS_SECRET_FILE": str(secret)})
    assert {"Authorization": "Basic b3BzOnMzY3JldA=="} == access.headers
