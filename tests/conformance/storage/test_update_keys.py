"""Keys and pulses of updates in storage: a repeated request of a deploy system is carried out once, and an update
pauses when its pulses cease."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from peloton.api import convert
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from peloton.model.ids import EntityVersion, JobId, new_job_id
from peloton.model.update import UpdateAct, UpdateKey, UpdateProgress, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from services.storage.updates.rows import UPDATES_KEPT
from tests.conformance.storage.builders import NOW, SECOND
from tests.conformance.storage.services import a_service, roll, service_config, turn, update, versions
from tests.conformance.storage.test_concurrency import together
from tests.present import require

FIRST, OTHER_WORDS, SECOND_KEY = UpdateKey("deploy-1", "a"), UpdateKey("deploy-1", "b"), UpdateKey("deploy-2", "a")
PULSED = UpdateSpec(batch_size=1, pulse_s=5)
ONE = EntityVersion(1, 1, 1)
ROUNDS = 5


def create_with_key(storage: Storage, job_id: JobId, key: UpdateKey, count: int = 2) -> str:
    config = service_config(count)
    job = storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", PULSED, "", NOW, key)
    return job.update_id


def test_a_repeat_is_the_same_update(storage: Storage) -> None:
    """The repeat is recognized while the update runs, after its end, and after a newer one took over. Nothing is
    done."""
    job_id = a_service(storage, 2)
    asked: dict[str, Any] = {"version": ONE, "key": FIRST}
    first = update(storage, job_id, service_config(2, "v2"), **asked)
    again = update(storage, job_id, service_config(2, "v2"), **asked)
    assert (first.update_id, first.entity_version) == (again.update_id, again.entity_version)
    roll(storage, job_id)
    again = update(storage, job_id, service_config(2, "v2"), **asked)
    assert (first.update_id, "2-1-2") == (again.update_id, str(again.entity_version))
    newer = update(storage, job_id, service_config(2, "v3"), key=SECOND_KEY)
    again = update(storage, job_id, service_config(2, "v2"), **asked)
    assert (newer.update_id, newer.entity_version) == (again.update_id, again.entity_version)
    assert 3 == len(storage.updates.of_job(job_id))
    roll(storage, job_id)
    assert {0: 3, 1: 3} == versions(storage, job_id)


def test_a_restart_is_done_once(storage: Storage) -> None:
    """A restart is done once, also when the repeat names the version that is current by then."""
    job_id = a_service(storage, 2)
    update(storage, job_id, None, type=UpdateType.RESTART, key=FIRST)
    roll(storage, job_id)
    job = storage.jobs.get(job_id)
    assert job is not None
    update(storage, job_id, None, type=UpdateType.RESTART, key=FIRST, version=job.entity_version)
    roll(storage, job_id)
    assert {0: 2, 1: 2} == {pod.instance_id: pod.run_id for pod in storage.pods.page(job_id)}


def test_a_key_belongs_to_one_request(storage: Storage) -> None:
    """A different request with the key is refused, and nothing changes. Another job may have the same key."""
    job_id = a_service(storage, 2)
    update(storage, job_id, service_config(2, "v2"), key=FIRST)
    before = storage.jobs.get(job_id)
    text = f"update key 'deploy-1' of job {job_id} belongs to another request, which led to version 2"
    with pytest.raises(AlreadyExists, match=text):
        update(storage, job_id, service_config(2, "v3"), key=OTHER_WORDS)
    assert before == storage.jobs.get(job_id)
    assert "2-1-2" == str(
        update(storage, a_service(storage, 2), service_config(2, "v3"), key=OTHER_WORDS).entity_version
    )


def test_another_key_is_another_update(storage: Storage) -> None:
    """A request with its own key makes its own update, though the same is under way already. A request without a key
    receives that one."""
    job_id = a_service(storage, 2)
    first = update(storage, job_id, service_config(2, "v2"), PULSED, key=FIRST)
    turn(storage, job_id)
    assert first.update_id == update(storage, job_id, service_config(2, "v2"), PULSED).update_id
    other = update(storage, job_id, service_config(2, "v2"), PULSED, key=SECOND_KEY)
    assert first.update_id != other.update_id
    assert UpdateState.ABORTED is require(storage.updates.get(first.update_id)).state


def test_a_forgotten_key_is_stopped_by_its_version(storage: Storage) -> None:
    """The key is forgotten ten updates later. The repeat is refused by its version, and nothing is done twice."""
    job_id = a_service(storage, 1)
    update(storage, job_id, service_config(1, "first"), key=FIRST, version=ONE)
    for number in range(UPDATES_KEPT):
        update(storage, job_id, service_config(1, f"v{number}"))
    with pytest.raises(Aborted, match="unexpected entity version"):
        update(storage, job_id, service_config(1, "first"), key=FIRST, version=ONE)


def test_a_creation_is_done_once(storage: Storage) -> None:
    """The creation is recognized by its key, later too. With another key, or none, the job exists already."""
    job_id = new_job_id()
    first = create_with_key(storage, job_id, FIRST)
    assert first == create_with_key(storage, job_id, FIRST)
    for key in (OTHER_WORDS, SECOND_KEY, UpdateKey()):
        with pytest.raises(AlreadyExists):
            create_with_key(storage, job_id, key)
    newer = update(storage, job_id, service_config(2, "v2"))
    assert newer.update_id == create_with_key(storage, job_id, FIRST)


def test_requests_at_once_make_one_update(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """All concurrent repeats of a request receive the same answer."""
    writers = [storage, open_storage(), open_storage()]
    for _ in range(ROUNDS):
        job_id, config = a_service(storage, 2), service_config(2, "v2")
        answers = together(*(lambda g=g: update(g, job_id, config, key=FIRST, version=ONE) for g in writers))  # noqa: B023
        assert 1 == len({(job.update_id, job.entity_version) for job in answers})
        assert 2 == len(storage.updates.of_job(job_id))


def test_creations_at_once_make_one_job(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """All creations with one key receive the same job. Of two keys one is refused."""
    writers = [storage, open_storage(), open_storage()]
    for _ in range(ROUNDS):
        job_id = new_job_id()
        assert 1 == len(set(together(*(lambda g=g: create_with_key(g, job_id, FIRST) for g in writers))))  # noqa: B023

        def attempt(writer: Storage, key: UpdateKey, job_id: JobId) -> bool:
            try:
                create_with_key(writer, job_id, key)
            except AlreadyExists:
                return False
            return True

        other = new_job_id()
        keys = (FIRST, SECOND_KEY)
        won = together(*(lambda g=g, k=k: attempt(g, k, other) for g, k in zip(writers, keys, strict=False)))  # noqa: B023
        assert [False, True] == sorted(won)


# -- pulses


def advance(storage: Storage, job_id: JobId, after_s: float) -> UpdateProgress:
    return storage.updates.advance(job_id, NOW + int(after_s * SECOND))


def test_pulses_let_it_continue(storage: Storage) -> None:
    """The update begins nothing before the first pulse, and continues as long as pulses arrive in time. A new pulse
    resumes it."""
    job_id = a_service(storage, 3)
    update(storage, job_id, service_config(3, "v2"), PULSED)
    assert (0, "its first pulse", False) == (
        (progress := advance(storage, job_id, 0)).current_count, progress.waiting_for, progress.look_again,
    )  # fmt: skip
    job, seen = storage.updates.pulse(job_id, "", NOW)
    assert (True, NOW, "2-1-2") == (seen.awaits_pulse, seen.pulsed_ns, str(job.entity_version))
    assert 1 == advance(storage, job_id, 4).current_count
    turn(storage, job_id)
    progress = advance(storage, job_id, 6)
    assert (1, 0, "a pulse: none has come for 5 s") == (
        progress.done_count, progress.current_count, progress.waiting_for,
    )  # fmt: skip
    storage.updates.pulse(job_id, "", NOW + 7 * SECOND)
    assert 1 == advance(storage, job_id, 7).current_count


def test_a_waiting_workflow_is_woken_until_it_has_read(storage: Storage) -> None:
    """A pulse replaces the lost wake-up of the one before. After the step no pulse wakes the workflow. Watchers are
    notified once of the wait, and never of pulses."""
    job_id = a_service(storage, 3)
    update(storage, job_id, service_config(3, "v2"), PULSED)
    advance(storage, job_id, 0)
    _, newest = storage.watch_log.bounds()
    assert [True] * 3 == [storage.updates.pulse(job_id, "", NOW + n)[1].awaits_pulse for n in range(3)]
    assert newest == storage.watch_log.bounds()[1]
    advance(storage, job_id, 0)
    assert not storage.updates.pulse(job_id, "", NOW + SECOND)[1].awaits_pulse


def test_a_pulse_is_for_one_update(storage: Storage) -> None:
    """A pulse with a key is refused by a newer update. An ended update ignores it, and one without pulses reports
    that."""
    job_id = a_service(storage, 1)
    with pytest.raises(InvalidArgument, match="needs no pulses: its pulse_seconds are 0"):
        storage.updates.pulse(job_id, "", NOW)
    update(storage, job_id, service_config(1, "v2"), PULSED, key=FIRST)
    assert NOW == storage.updates.pulse(job_id, FIRST.text, NOW)[1].pulsed_ns
    update(storage, job_id, service_config(1, "v3"), PULSED, key=SECOND_KEY)
    with pytest.raises(Aborted, match=f"the update of job {job_id} is not 'deploy-1' but 'deploy-2', to version 3"):
        storage.updates.pulse(job_id, FIRST.text, NOW)
    storage.updates.steer(job_id, None, UpdateAct.ABORT, None, NOW)
    ended = storage.updates.pulse(job_id, SECOND_KEY.text, NOW)[1]
    assert (UpdateState.ABORTED, 0) == (ended.state, ended.pulsed_ns)
    with pytest.raises(NotFound):
        storage.updates.pulse(new_job_id(), "", NOW)


def test_a_pulse_is_not_lost_in_a_step(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """A pulse that arrives during a step, which writes the whole row, is kept."""
    other = open_storage()
    job_id = a_service(storage, 6)
    job = update(storage, job_id, service_config(6, "v2"), PULSED)
    for second in range(ROUNDS):
        at = NOW + second * SECOND
        together(
            lambda: turn(storage, job_id),
            partial(other.updates.pulse, job_id, "", at),
        )
        assert at == require(storage.updates.get(job.update_id)).pulsed_ns
