"""Active pods of the user who created their jobs, and what remains of the creator when a job changes."""

from __future__ import annotations

from dataclasses import replace

from peloton.api import convert
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, a_config
from tests.conformance.storage.plans import plans_of
from tests.present import require


def a_job(storage: Storage, creator: str, count: int, type_: JobType = JobType.BATCH, **changes: object) -> JobId:
    config = a_config(count, type_=type_)
    record = convert.new_job_record(new_job_id(), config, NOW, creator)
    storage.jobs.create(replace(record, **changes), config, NOW)  # type: ignore[arg-type]
    return record.job_id


def test_pods_of_jobs_that_have_not_ended_count(storage: Storage) -> None:
    """Ended jobs, those of others, and succeeded pods of batch jobs do not; succeeded pods of services do."""
    a_job(storage, "ann", 3)
    a_job(storage, "ann", 3)
    a_job(storage, "ann", 50, state=JobState.KILLED)
    a_job(storage, "ann", 50, state=JobState.SUCCEEDED)
    a_job(storage, "bob", 7)
    a_job(storage, "", 9)
    a_job(storage, "ann", 10, pod_counts={PodState.SUCCEEDED: 4, PodState.FAILED: 1, PodState.RUNNING: 5})
    a_job(storage, "ann", 100, JobType.SERVICE, pod_counts={PodState.SUCCEEDED: 60, PodState.RUNNING: 40})

    assert (112, 7, 0) == tuple(storage.search.pods_of_creator(name) for name in ("ann", "bob", "eve"))


def test_the_count_reads_an_index_of_the_active_jobs_of_users(storage: Storage) -> None:
    """Ended jobs, and jobs without a creator, are not in it."""
    a_job(storage, "ann", 3)

    ((_, plan),) = plans_of(storage, lambda: storage.search.pods_of_creator("ann"))

    assert "ix_job_creator" in plan, plan


def test_a_job_keeps_its_creator(storage: Storage) -> None:
    """Growth and steering of the job change nothing, and a name with NUL is stored without it."""
    job_id = a_job(storage, "ann\x00", 2)
    storage.jobs.add_instances(job_id, a_config(5), 5, 1, NOW)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert ("ann", 5) == (require(storage.jobs.get(job_id)).creator, require(storage.jobs.get(job_id)).instance_count)
