"""Reads of the API of services: jobs by page, pods by version, the events of a whole update."""

from __future__ import annotations

import pytest

from peloton.api import convert
from peloton.model.ids import new_job_id
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, SECOND, K, a_job, report, settle_all
from tests.conformance.storage.services import ALL_AT_ONCE, a_service, roll, service_config, turn, update

ONE_BY_ONE = UpdateSpec(batch_size=1)


def test_jobs_page_by_page(storage: Storage) -> None:
    """Every job of any type comes once, by id."""
    made = sorted([a_job(storage, 1), a_service(storage, 1), a_job(storage, 1)])
    first = storage.search.jobs_after("", 2)
    rest = storage.search.jobs_after(first[-1].job_id, 2)

    assert [job.job_id for job in first + rest] == made
    assert storage.search.jobs_after(made[-1], 2) == []


def test_pods_by_version(storage: Storage) -> None:
    """Pods are counted by version and by state. An unknown job has none."""
    job_id = a_service(storage, 3)
    update(storage, job_id, service_config(3, "v2"), ONE_BY_ONE)
    turn(storage, job_id)

    assert storage.pods.counts_by_version(job_id) == {1: {PodState.RUNNING: 2}, 2: {PodState.RUNNING: 1}}
    assert storage.pods.counts_by_version(new_job_id()) == {}


def test_events_of_all_instances(storage: Storage) -> None:
    """One call returns the events that ``update_events`` returns for each instance."""
    job_id = a_service(storage, 3)
    job = update(storage, job_id, service_config(5, "v2"), ONE_BY_ONE)
    roll(storage, job_id)
    every = storage.updates.instance_events(job.update_id)
    newest = storage.updates.instance_events(job.update_id, 1)

    assert every == {i: storage.updates.events(job.update_id, i) for i in range(5)}
    assert newest == {i: events[:1] for i, events in every.items()}
    assert storage.updates.instance_events("00000000-0000-4000-8000-000000000000") == {}


def test_the_id_and_name_of_a_deleted_service_can_be_used_again(storage: Storage) -> None:
    """The record of a name outlives its job, and does not prevent a new job of that name."""
    job_id = a_service(storage, 1)
    storage.jobs.set_service_goal(job_id, None, JobState.DELETED, True, NOW)
    for _ in range(3):
        settle_all(storage, job_id)
        report(storage, job_id, [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10)], K)
    storage.jobs.delete(job_id)
    assert storage.jobs.get(job_id) is None

    config = service_config(1)
    storage.updates.create_service(
        convert.new_job_record(job_id, config, NOW), config, b"", ALL_AT_ONCE, "", NOW + SECOND
    )

    assert storage.jobs.get(job_id) is not None
    assert [job_id] == storage.search.services_named(config.name)


@pytest.mark.parametrize("version", [3, 2**31, 2**63, 10**30])
def test_versions_that_no_job_has(storage: Storage, version: int) -> None:
    """A version comes from the client and may have any number of digits."""
    job_id = a_service(storage, 1)

    assert (None, b"") == (storage.configs.job_config(job_id, version), storage.configs.job_spec(job_id, version))
