"""Access of commands to agents of a Mesos cluster with authentication."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import agents
from peloton.api.mesos_access import OPEN
from peloton.errors import InvalidArgument


def test_the_environment_says_how() -> None:
    """The variables have the names of the host manager's settings; without them requests are plain and
    unauthenticated."""
    assert OPEN == agents.access_from({})
    with pytest.raises(InvalidArgument, match="PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE go together"):
        agents.access_from({"PELOTON_MESOS_PRINCIPAL": "ops"})


def test_credentials_go_along(tmp_path: Path) -> None:
    """Each request carries the credentials."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    access = agents.access_from({"PELOTON_MESOS_PRINCIPAL": "ops", "PELOTON_MESOS_SECRET_FILE": str(secret)})
    assert {"Authorization": "Basic b3BzOnMzY3JldA=="} == access.headers
