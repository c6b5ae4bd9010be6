"""The statements of storage agree with the pure pod machine in every condition of a pod."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peloton.lifecycle.pod_machine import TABLE, Event, next_pod, no_pod
from peloton.model.pod import PodRecord, PodState
from services.storage.codec import PODS, pod_record
from services.storage.engine import Database
from services.storage.pods.scope import Chosen, Scope, Span
from services.storage.pods.writes import fire, fire_each, insert_pods
from services.storage.tables import POD, POD_EVENT
from tests.conformance.storage.builders import postgres_nightly
from tests.unit.lifecycle.every_pod import JOB, NOW, parameters_for, pods_for


def rows(conn: sa.Connection) -> dict[int, PodRecord]:
    return {row.instance_id: pod_record(row) for row in conn.execute(sa.select(POD))}


def events(conn: sa.Connection) -> dict[int, int]:
    return {row.instance_id: row.revision for row in conn.execute(sa.select(POD_EVENT))}


@postgres_nightly
def test_every_event_in_every_condition(url: str) -> None:
    """The UPDATE leaves the pod that ``next_pod`` returns, for each event with its parameters in each combination of
    the columns that it reads. It adds an event for the change, and touches no other pod."""
    database = Database(url)
    try:
        for event in Event:
            if event is Event.CREATE:
                continue
            with database.engine.connect() as conn, conn.begin() as transaction:
                before = pods_for(event)
                conn.execute(POD.insert(), [PODS.values(pod) for pod in before])
                for given in parameters_for(event):
                    savepoint = conn.begin_nested()
                    check(conn, event, before, given)
                    savepoint.rollback()
                transaction.rollback()
    finally:
        database.close()


def check(conn: sa.Connection, event: Event, before: list[PodRecord], given: dict[str, Any]) -> None:
    after = {pod.instance_id: next_pod(pod, event, NOW, **given) for pod in before}
    changed = {instance: pod for instance, pod in after.items() if pod is not None}
    left = {pod.instance_id: after[pod.instance_id] or pod for pod in before}

    assert len(changed) == fire(conn, Span(JOB, 0, len(before)), event, NOW, **given), (event, given)

    gone = {instance for instance, pod in changed.items() if pod.state is PodState.UNKNOWN}
    assert {i: pod for i, pod in left.items() if i not in gone} == rows(conn), (event, given)
    assert ({} if TABLE[event].is_quiet else {i: pod.revision for i, pod in changed.items()}) == events(conn)


def test_every_kind_of_scope(url: str) -> None:
    """A range, a list and a statement per pod select the same pods, and leave others alone."""
    database = Database(url)
    before = pods_for(Event.ENQUEUE)
    chosen = [pod.instance_id for pod in before if 20 <= pod.instance_id < 60]
    scopes: list[Scope | None] = [Span(JOB, 20, 40), Chosen(JOB, chosen), None]
    found = []
    for scope in scopes:
        with database.engine.connect() as conn, conn.begin() as transaction:
            conn.execute(POD.insert(), [PODS.values(pod) for pod in before])
            if scope is None:
                fire_each(conn, JOB, Event.ENQUEUE, NOW, {instance: {"queue_seq": 9} for instance in chosen})
            else:
                fire(conn, scope, Event.ENQUEUE, NOW, queue_seq=9)
            found.append((rows(conn), events(conn)))
            transaction.rollback()
    database.close()

    expected = {
        pod.instance_id: (pod.instance_id in chosen and next_pod(pod, Event.ENQUEUE, NOW, queue_seq=9)) or pod
        for pod in before
    }
    assert [expected] * 3 == [pods for pods, _ in found]
    assert found[0][1] == found[1][1] == found[2][1]


def test_creation(url: str) -> None:
    """The inserted pod is the one that the machine creates."""
    database = Database(url)
    for given in parameters_for(Event.CREATE):
        pod = next_pod(no_pod(JOB, 3), Event.CREATE, NOW, **given)
        assert pod is not None
        with database.engine.connect() as conn, conn.begin() as transaction:
            insert_pods(conn, Span(JOB, 3, 2), pod)

            assert [pod, next_pod(no_pod(JOB, 4), Event.CREATE, NOW, **given)] == [*rows(conn).values()]
            transaction.rollback()
    database.close()
