"""Stops of jobs and updates, as people request them and as a cancelled workflow does."""

from __future__ import annotations

import pytest

from peloton.errors import Aborted, NotFound
from peloton.model.ids import new_job_id
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec, UpdateState
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, a_job, settle_all
from tests.conformance.storage.services import a_service, service_config, turn, update


def state_of(storage: Storage, update_id: str) -> UpdateState:
    found = storage.updates.get(update_id)
    assert found is not None
    return found.state


def test_an_update_under_way_is_aborted_once(storage: Storage) -> None:
    """The abort raises the version of updates, and workflows are notified. A second abort changes nothing."""
    job_id = a_service(storage, 3)
    begun = update(storage, job_id, service_config(3, "v2"), UpdateSpec(batch_size=1))
    turn(storage, job_id)
    versions = []
    for _ in range(2):
        storage.updates.abort_active(job_id, NOW)
        job = storage.jobs.get(job_id)
        assert job is not None
        versions.append(job.workflow_version)

    assert [begun.workflow_version + 1] * 2 == versions
    assert UpdateState.ABORTED is state_of(storage, begun.update_id)


def test_without_an_update_nothing_is_aborted(storage: Storage) -> None:
    """A call without an update changes nothing, and neither does one for an unknown job."""
    job_id = a_service(storage, 2)
    before = storage.jobs.get(job_id)
    storage.updates.abort_active(job_id, NOW)
    storage.updates.abort_active(new_job_id(), NOW)

    assert before == storage.jobs.get(job_id)


def test_a_service_whose_update_was_aborted_is_stopped(storage: Storage) -> None:
    """A service whose update had to start pods is stopped, too. It ends as a stopped service does."""
    job_id = a_service(storage, 3)
    update(storage, job_id, service_config(3, "v2"), UpdateSpec(batch_size=1, start_pods=True))
    storage.updates.abort_active(job_id, NOW)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    turn(storage, job_id)
    progress = storage.jobs.settle(job_id, NOW)

    assert (JobState.KILLED, {PodState.KILLED: 3}, True) == (progress.state, progress.counts, progress.is_finished)


def test_a_job_that_is_to_be_deleted_stays_so(storage: Storage) -> None:
    """A late stop of the job does not cancel its deletion."""
    job_id = a_service(storage, 2)
    storage.jobs.set_service_goal(job_id, None, JobState.DELETED, True, NOW)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    turn(storage, job_id)

    assert storage.jobs.settle(job_id, NOW).is_unwanted


def test_a_service_is_stopped_by_its_own_rules(storage: Storage) -> None:
    """A stop of v1alpha is refused while an update starts pods."""
    job_id = a_service(storage, 2)
    assert JobState.KILLED is storage.jobs.stop(job_id, NOW).goal
    for _ in range(2):
        turn(storage, job_id)
    update(storage, job_id, service_config(2, "v2"), UpdateSpec(start_pods=True))

    with pytest.raises(Aborted, match="active update with start_pods"):
        storage.jobs.stop(job_id, NOW)


def test_a_batch_job_is_stopped_until_it_has_ended(storage: Storage) -> None:
    """An ended job stays as it is, and an unknown one is not found."""
    job_id = a_job(storage, 2)
    assert JobState.KILLED is storage.jobs.stop(job_id, NOW).goal
    settle_all(storage, job_id)
    ended = storage.jobs.get(job_id)

    assert ended is not None
    assert ended == storage.jobs.stop(job_id, NOW)
    with pytest.raises(NotFound):
        storage.jobs.stop(new_job_id(), NOW)
