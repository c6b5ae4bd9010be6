"""Services whose first update is carried out by the settles of their job."""

from __future__ import annotations

from peloton.api import convert
from peloton.lifecycle.wake import POLL_S, TIMER_GRACE_S
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, SECOND, K, R, admit, launch, report, states
from tests.conformance.storage.services import service_config

MAX = 100


def new_service(storage: Storage, count: int = 3, spec: UpdateSpec | None = None) -> JobId:
    job_id, config = new_job_id(), service_config(count)
    record = convert.new_job_record(job_id, config, NOW)
    storage.updates.create_service(record, config, b"", spec or UpdateSpec(), "", NOW)
    return job_id


def start(storage: Storage, job_id: JobId) -> None:
    admit(storage, job_id)
    report(storage, job_id, launch(storage, job_id), R)


def update_state(storage: Storage, job_id: JobId) -> UpdateState:
    return storage.updates.of_job(job_id)[0].state


def test_two_settles_create_a_service(storage: Storage) -> None:
    """The first settle creates all pods, which have to be queued. The settle that counts them as running ends the
    update."""
    job_id = new_service(storage)
    first = storage.jobs.settle(job_id, NOW, MAX)
    assert ("", 3, 3) == (first.update_id, first.admit_count, len(states(storage, job_id)))
    assert storage.updates.of_job(job_id)[0].update_id == first.creation_id

    start(storage, job_id)
    last = storage.jobs.settle(job_id, NOW, MAX)
    assert ("", "", JobState.RUNNING) == (last.update_id, last.creation_id, last.state)
    assert UpdateState.SUCCEEDED is update_state(storage, job_id)


def test_a_settle_that_repeats_changes_nothing(storage: Storage) -> None:
    """The update takes no second step while its instances are starting."""
    job_id = new_service(storage)
    storage.jobs.settle(job_id, NOW, MAX)
    before, job = storage.updates.of_job(job_id), storage.jobs.get(job_id)
    storage.jobs.settle(job_id, NOW + SECOND, MAX)
    assert (before, job) == (storage.updates.of_job(job_id), storage.jobs.get(job_id))


def test_what_is_to_be_watched_is_left_to_the_workflow_of_the_update(storage: Storage) -> None:
    """Batches, pulses, a pause, rollbacks, short progress deadlines, and more instances than a settle may create
    require the workflow."""
    watched = (
        UpdateSpec(batch_size=1),
        UpdateSpec(pulse_s=5),
        UpdateSpec(start_paused=True),
        UpdateSpec(rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1),
        UpdateSpec(progress_deadline_s=10),
    )
    for spec in watched:
        job_id = new_service(storage, spec=spec)
        assert storage.jobs.settle(job_id, NOW, MAX).update_id, spec
        assert not states(storage, job_id)
    assert storage.jobs.settle(new_service(storage), NOW, 2).update_id
    assert storage.jobs.settle(new_service(storage), NOW).update_id


def test_a_creation_that_takes_long_is_handed_over(storage: Storage) -> None:
    """The note is due while the update has time left before its progress deadline."""
    job_id = new_service(storage)
    storage.jobs.settle(job_id, NOW, MAX)
    read_ns = NOW + (POLL_S + TIMER_GRACE_S) * NS_PER_S
    assert [(read_ns, job_id)] == storage.wakes.due(read_ns, 10)

    late = storage.jobs.settle(job_id, read_ns, MAX)
    assert storage.updates.of_job(job_id)[0].update_id == late.update_id
    assert storage.updates.advance(job_id, read_ns).stalls_in_s > 0


def test_a_paused_creation_is_the_workflows(storage: Storage) -> None:
    """The step that the settles of the paused update took is kept."""
    job_id = new_service(storage)
    storage.jobs.settle(job_id, NOW, MAX)
    storage.updates.steer(job_id, None, UpdateAct.PAUSE, None, NOW)
    assert storage.jobs.settle(job_id, NOW, MAX).update_id
    assert {0, 1, 2} == storage.updates.of_job(job_id)[0].current


def test_a_creation_that_was_resumed_stays_with_its_workflow(storage: Storage) -> None:
    """Each settle names the update until its end, so that its workflow is notified. The settles of a creation could end
    the update without a notification."""
    paused, begun = new_service(storage, spec=UpdateSpec(start_paused=True)), new_service(storage)
    storage.jobs.settle(begun, NOW, MAX)
    storage.updates.steer(begun, None, UpdateAct.PAUSE, None, NOW)
    for job_id in (paused, begun):
        storage.updates.steer(job_id, None, UpdateAct.RESUME, None, NOW)
        resumed = storage.jobs.settle(job_id, NOW, MAX)
        storage.updates.advance(job_id, NOW)
        advanced = storage.jobs.settle(job_id, NOW, MAX)
        assert storage.updates.of_job(job_id)[0].update_id == resumed.update_id == advanced.update_id


def test_a_service_that_is_stopped_while_it_is_created_ends(storage: Storage) -> None:
    """The update ends with the pods, so that the workflow of the job may end."""
    job_id = new_service(storage)
    storage.jobs.settle(job_id, NOW, MAX)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    storage.admission.kill_queued(job_id, NOW)
    found = storage.jobs.settle(job_id, NOW, MAX)
    while found.creation_id or found.update_id:
        storage.updates.advance(job_id, NOW)
        found = storage.jobs.settle(job_id, NOW, MAX)
    assert found.is_finished
    assert ([K] * 3, UpdateState.SUCCEEDED) == (states(storage, job_id), update_state(storage, job_id))
