"""The original's file of users and roles: what would reject nothing is a fault of the file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from peloton.errors import InvalidSettings
from services.access.basic import BasicUsers, parse_users
from services.api.private_calls import UNSERVED

FILE = """
users:
- {{username: ann, password: secret, role: batch}}
roles:
- role: batch
  accept: ["*"]
  reject: ["{}"]
"""
JOBS = "peloton.api.v0.job.svc.JobManager"


@pytest.mark.parametrize(
    "rule",
    [
        "peloton.api.v0.job.svc.JobManger:Delete",
        "peloton.api.v0.job.svc.JobManager:Delte",
        "peloton.api.v0.job.svc.JobManager:delete",
        "peloton.api.v0.job.svc.JobManager:Remove*",
        "peloton.private.hostmgr.hostsvc.InternalHostServce:DisableKillTasks",
        "JobManager:Delete",
    ],
)
def test_a_misspelt_reject_is_a_fault(rule: str, tmp_path: Path) -> None:
    """The error names the file, the role and the rule, and the process does not start."""
    path = tmp_path / "users.yaml"
    path.write_text(FILE.format(rule))

    with pytest.raises(InvalidSettings) as caught:
        BasicUsers(str(path), UNSERVED)

    for part in (str(path), "role 1, batch", f"reject '{rule}' matches no method"):
        assert part in caught.value.message
    assert "secret" not in caught.value.message


def test_a_close_method_is_named() -> None:
    """The error says what may have been meant."""
    with pytest.raises(ValueError, match=r"did you mean peloton\.api\.job\.JobManager:Delete"):
        parse_users(FILE.format("peloton.api.job.JobManager:Delte"))


@pytest.mark.parametrize(
    "rule",
    [
        "*",
        f"{JOBS}:Delete",
        f"{JOBS}:Del*",
        f"{JOBS}:*",
        "peloton.private.resmgrsvc.ResourceManagerService:EnqueueGangs",
        "peloton.private.hostmgr.hostsvc.InternalHostService:*",
    ],
)
def test_a_reject_of_a_method_is_kept(rule: str) -> None:
    """Methods of the original that are not served may be rejected as well."""
    assert 1 == len(parse_users(FILE.format(rule), UNSERVED).by_name["ann"][1].reject)


def test_a_misspelt_accept_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The start continues: such an entry lets nothing through."""
    with caplog.at_level(logging.WARNING):
        parse_users(FILE.format("*").replace('accept: ["*"]', f'accept: ["{JOBS}:Delte"]'))

    assert f"role 1, batch: accept '{JOBS}:Delte' matches no method of Peloton, and has no effect" in caplog.text


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ('- {role: batch, accept: ["*"]}', "role 2: role batch is there twice"),
        (f'  reject: ["{JOBS}:Get"]', "has a key twice, at line"),
    ],
)
def test_a_reject_is_not_lost_by_a_second_one(more: str, fault: str) -> None:
    """Two roles of a name, and two lists of a role, are faults."""
    with pytest.raises(ValueError, match=fault):
        parse_users(FILE.format("*") + more)
