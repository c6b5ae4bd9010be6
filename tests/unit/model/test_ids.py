"""Ids: accepted and rejected forms, and agreement of formatting and parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.ids import JobId, PodId, PodName, gang_workflow_id, hostmgr_role, job_workflow_id, parse_job_id

JOB = JobId("91b1b8e5-2ba8-11e7-bc23-0242ac11000d")


@given(instance=st.integers(0, 2**32 - 1), run=st.integers(0, 2**63))
def test_a_pod_id_survives_the_way_through_text(instance: int, run: int) -> None:
    """The formatted id parses to the same id."""
    pod_id = PodId(JOB, instance, run)

    assert pod_id == PodId.parse(str(pod_id))
    assert PodName(JOB, instance) == PodName.parse(str(PodName(JOB, instance)))


@pytest.mark.parametrize("text", ["", str(JOB), f"{JOB}-1", f"{JOB}-1-2-3", f"{JOB}-x-1", f"{JOB}-{2**32}-1"])
def test_a_malformed_pod_id_is_refused(text: str) -> None:
    """A pod id has seven parts, of which the last two are numbers."""
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ by piece
        PodId.parse(text)


@pytest.mark.parametrize("text", ["", "1", f"{JOB}", f"{JOB}-", f"{JOB}--1", f"{JOB}-{2**32}", f"{JOB}-٣"])
def test_a_malformed_pod_name_is_refused(text: str) -> None:
    """A pod name is a job id, a dash, and an instance number in ASCII digits."""
    with pytest.raises(ValueError):  # noqa: PT011
        PodName.parse(text)


def test_job_ids_are_canonical() -> None:
    """Upper case and braces are accepted; every other form is refused."""
    assert parse_job_id("{91B1B8E5-2BA8-11E7-BC23-0242AC11000D}") == JOB
    with pytest.raises(ValueError, match="badly formed"):
        parse_job_id("job-1")


def test_a_job_has_one_workflow() -> None:
    """The workflow's id follows from the job's."""
    assert f"job/{JOB}" == job_workflow_id(JOB)


def test_each_launch_of_a_gang_has_a_workflow() -> None:
    """The workflow's id follows from the job's and the run of the gang's first member."""
    assert f"gang/{JOB}/3" == gang_workflow_id(JOB, 3)


def test_names_of_clusters() -> None:
    """Names of clusters are parts of roles, lease ids and paths, so their characters are restricted."""
    assert "hostmgr/west-1.a_b" == hostmgr_role("west-1.a_b")
    for name in ("", "a/b", "-a", "a b", "ä", "a" * 64):
        with pytest.raises(ValueError, match="want at most 63 letters"):
            hostmgr_role(name)
