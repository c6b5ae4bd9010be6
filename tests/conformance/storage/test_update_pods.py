"""Reads of pods by a step of an update, which equal a choice among all pods of its job."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.api.convert import HEALTH_NUMBERS, POD_STATE_NUMBERS, TERMINATION_NUMBERS
from peloton.lifecycle import rollout, sla
from peloton.lifecycle.rollout_pods import AtHand, Pods
from peloton.model.ids import JobId
from peloton.model.pod import HealthState, PodState, TerminationReason
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from services.storage.tables import POD
from services.storage.updates import instances
from services.storage.updates.update_pods import StoredPods
from tests.conformance.storage.builders import DATABASES
from tests.conformance.storage.services import a_service
from tests.nightly import nightly

COUNT = 24
STATES = [PodState.RUNNING, PodState.RUNNING, PodState.RUNNING, PodState.STARTING, PodState.KILLED, PodState.KILLING]
GOALS = [PodState.RUNNING, PodState.RUNNING, PodState.RUNNING, PodState.KILLED, PodState.DELETED, PodState.PREEMPTING]
HEALTH = [HealthState.DISABLED, HealthState.HEALTHY, HealthState.UNHEALTHY]


def scramble(conn: sa.Connection, job_id: JobId, drawn: random.Random) -> Pods:
    """Put pods in any condition, and delete some."""
    mine = POD.c.job_id == job_id
    for instance in range(COUNT):
        if drawn.random() < 0.1:
            conn.execute(sa.delete(POD).where(mine, POD.c.instance_id == instance))
            continue
        if drawn.random() < 0.4:  # as it is
            continue
        values = {
            "state": POD_STATE_NUMBERS[drawn.choice(STATES)],
            "goal": POD_STATE_NUMBERS[drawn.choice(GOALS)],
            "desired_run_id": POD.c.run_id + drawn.choice([0, 0, 1]),
            "config_version": drawn.choice([1, 2]),
            "desired_config_version": drawn.choice([1, 2, 2]),
            "health": HEALTH_NUMBERS[drawn.choice(HEALTH)],
            "failure_count": drawn.choice([0, 0, 3]),
            "termination": drawn.choice([0, 0, *(TERMINATION_NUMBERS[reason] for reason in TerminationReason)]),
        }
        conn.execute(sa.update(POD).where(mine, POD.c.instance_id == instance).values(**values))
    return instances.pods_of(conn, job_id)


def an_update(job_id: JobId, drawn: random.Random) -> UpdateRecord:
    """Create an update at any point of its life. Often it touches few instances, or nearly all."""
    sets: dict[str, set[int]] = {name: set() for name in ("added", "updated", "removed", "current", "done", "failed")}
    touched = drawn.choice([0.1, 0.5, 0.9, 1])
    for instance in range(COUNT + 4):
        if drawn.random() < touched:
            sets["added" if instance >= COUNT else drawn.choice(["updated"] * 4 + ["added", "removed"])].add(instance)
    begun = [*sets["added"], *sets["updated"], *sets["removed"]]
    for name in ("current", "done", "failed"):
        taken = drawn.sample(begun, min(len(begun), drawn.choice([0, 1, 4])))
        sets[name] = {i for i in taken if not any(i in sets[other] for other in ("current", "done", "failed"))}
    named: dict[str, Any] = {name: frozenset(own) for name, own in sets.items()}
    spec = UpdateSpec(
        batch_size=drawn.choice([0, 0, 1, 3, 30]),
        max_instance_attempts=drawn.choice([0, 1]),
        in_place=drawn.random() < 0.5,
    )
    type_ = drawn.choice([UpdateType.UPDATE, UpdateType.UPDATE, UpdateType.STOP])
    return UpdateRecord("u", job_id, type_, spec, UpdateState.ROLLING_FORWARD, 2, 1, **named)


@pytest.mark.parametrize(
    ("url", "seed"),
    [("sqlite", 0), ("postgres", 0), *(nightly(url, n) for url in DATABASES for n in range(1, 6))],
    indirect=["url"],
)
def test_a_step_on_what_is_read_is_a_step_on_all_pods(storage: Storage, seed: int) -> None:
    """The step on the pods that it reads equals a step on all pods, for any conditions, gaps and instances of the
    update. The next images are equal, too."""
    job_id, drawn = a_service(storage, COUNT), random.Random(seed)

    def compare(conn: sa.Connection) -> None:
        pods = scramble(conn, job_id, drawn)
        stored, at_hand = StoredPods(conn, job_id), AtHand(pods)
        assert sla.missing_of(pods) == instances.missing_of(conn, job_id)
        for _ in range(12):
            update, maximum = an_update(job_id, drawn), drawn.choice([0, 0, 1, 5])
            rolling = rollout.classify_in_flight(update, pods)
            assert rolling == rollout.classify_in_flight(update, stored.in_flight(update))
            for limit in (0, 1, 5, COUNT * 2):
                expected, found = at_hand.coming(rolling, limit), stored.coming(rolling, limit)
                assert (expected.first, dict(expected.pods)) == (found.first, dict(found.pods))
            assert rollout.next_step(update, pods, maximum) == rollout.next_step(update, stored, maximum)
            assert [*rollout.coming_back(rolling, pods)] == [*rollout.coming_back(rolling, stored)]

    for _ in range(4):
        storage.db.write(compare)


def test_a_step_reads_a_batch_however_large_the_service_is(storage: Storage) -> None:
    """A step reads the pods in flight that have settled, and the next ones."""
    counts = []
    for count in (40, 120):
        job_id = a_service(storage, count)
        update = replace(
            an_update(job_id, random.Random(1)),
            spec=UpdateSpec(batch_size=10),
            added=frozenset(),
            removed=frozenset(),
            updated=frozenset(range(count)),
            current=frozenset(range(10)),
            done=frozenset(),
            failed=frozenset(),
        )
        read: list[int] = []

        def step(
            conn: sa.Connection, job_id: JobId = job_id, update: UpdateRecord = update, read: list[int] = read
        ) -> None:
            stored = StoredPods(conn, job_id)
            read += stored.in_flight(update)
            read += stored.coming(update, 10).pods

        storage.db.read(step)
        counts.append(len(read))

    assert [10, 10] == counts
