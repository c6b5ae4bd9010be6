"""Updates as Aurora's clients read them: events, messages, instructions, and a manual rollback joined to its update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod.pod_pb2 import InstanceIDRange
from peloton.model.aurora_update import PULSE, START_PULSED
from services.aurorabridge import update_details
from services.aurorabridge.mapping.opaque import ROLLBACK, Opaque
from services.aurorabridge.thrift import api
from services.aurorabridge.update_details import is_wanted, list_details, newest_first

JOB = api.JobKey(role="maps", environment="prod", name="web")
Event = tuple[int, str] | tuple[int, str, list[tuple[int, int]]]
Events = Iterable[Event]
UPDATE = stateless_pb2.WORKFLOW_TYPE_UPDATE


def spans(*pairs: tuple[int, int]) -> list[InstanceIDRange]:
    return [InstanceIDRange(**{"from": first, "to": last}) for first, last in pairs]


def number(state: str) -> stateless_pb2.WorkflowState.ValueType:
    return stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{state}")


def make_update(events: Events, opaque: Opaque | None = None, **fields: Any) -> reads.Update:
    """Return an update with events ``(second, state, instances)``, whose last one of the update is its state."""
    named = [(event[0], number(event[1]), event[2] if len(event) == 3 else []) for event in events]
    wire = [reads.UpdateEvent(time_s=time_s, state=state, instances=spans(*on)) for time_s, state, on in named]
    last = next((state for _, state, on in reversed(named) if not on), number("INITIALIZED"))
    opaque = opaque or Opaque("u1", message="go")
    return reads.Update(type=UPDATE, state=last, opaque_data=opaque.encode(), events=wire, **fields)


def statuses(details: Any) -> list[tuple[int, str, str | None]]:
    return [
        (event.timestampMs, api.JobUpdateStatus._VALUES_TO_NAMES[event.status], event.message)
        for event in details.updateEvents
    ]


def instances(details: Any) -> list[tuple[int, int, str]]:
    return [
        (event.timestampMs, event.instanceId, api.JobUpdateAction._VALUES_TO_NAMES[event.action])
        for event in details.instanceEvents
    ]


DONE = [(1, "INITIALIZED"), (2, "ROLLING_FORWARD"), (9, "SUCCEEDED")]


def test_a_finished_update() -> None:
    """The first event is ROLLING_FORWARD with the start message, the last one ROLLED_FORWARD, in milliseconds."""
    metadata = (("owner", "x"),)
    spec = stateless_pb2.UpdateSpec(batch_size=2, max_instance_retries=4, max_tolerable_instance_failures=1)
    [found] = list_details(JOB, [make_update(DONE, Opaque("u1", (), metadata, "go"), added=spans((0, 4)), spec=spec)])

    assert statuses(found) == [
        (1000, "ROLLING_FORWARD", "go"),
        (2000, "ROLLING_FORWARD", "go"),
        (9000, "ROLLED_FORWARD", None),
    ]
    summary, instructions = found.update.summary, found.update.instructions
    assert api.JobUpdateKey(job=JOB, id="u1") == summary.key
    assert api.JobUpdateState(api.JobUpdateStatus.ROLLED_FORWARD, 1000, 9000) == summary.state
    assert [api.Metadata("owner", "x")] == summary.metadata
    assert [] == instructions.initialState
    assert [] == list(found.instanceEvents)
    assert api.InstanceTaskConfig(instances=[api.Range(0, 4)]) == instructions.desiredState
    assert (2, 3, 0, False) == (
        instructions.settings.updateGroupSize,
        instructions.settings.maxPerInstanceFailures,
        instructions.settings.maxFailedInstances,
        instructions.settings.rollbackOnFailure,
    )


def test_events_of_instances() -> None:
    """Events are sorted by time, do not repeat a state, and are counted without being made."""
    events: list[Event] = [
        (1, "INITIALIZED", [(0, 1)]),
        (1, "INITIALIZED"),
        (2, "ROLLING_FORWARD", [(0, 0)]),
        (4, "SUCCEEDED", [(0, 0)]),
        (3, "ROLLING_FORWARD", [(1, 1)]),  # by a clock that is slow
        (5, "ROLLING_FORWARD", [(1, 1)]),
        (6, "FAILED", [(1, 1)]),
    ]
    [found] = list_details(JOB, [make_update(events)])
    assert instances(found) == [
        (1000, 0, "INSTANCE_UPDATING"),
        (1000, 1, "INSTANCE_UPDATING"),
        (2000, 0, "INSTANCE_UPDATING"),
        (4000, 0, "INSTANCE_UPDATED"),
        (4000, 1, "INSTANCE_UPDATING"),
        (6000, 1, "INSTANCE_UPDATE_FAILED"),
    ]
    assert 6 == len(found.instanceEvents)
    assert found.instanceEvents[-1].instanceId == 1
    [backward] = list_details(JOB, [make_update(events[:1], Opaque("u1", (ROLLBACK,)))])
    assert ["INSTANCE_ROLLING_BACK"] * 2 == [action for _, _, action in instances(backward)]


def test_the_newest_events_of_an_instance_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance with too many events loses the oldest, and other instances lose none."""
    monkeypatch.setattr(update_details, "EVENTS_PER_INSTANCE_MAX", 2)
    states = ("INITIALIZED", "ROLLING_FORWARD", "FAILED", "ROLLING_BACKWARD")
    events: Events = [(at, state, [(0, 1)] if at < 2 else [(0, 0)]) for at, state in enumerate(states)]
    [found] = list_details(JOB, [make_update(events)])
    assert [(0, 1), (1000, 1), (2000, 0), (3000, 0)] == [(time_ms, i) for time_ms, i, _ in instances(found)]


PULSED = [(1, "PAUSED"), (3, "ROLLING_FORWARD"), (4, "SUCCEEDED")]


@pytest.mark.parametrize(
    ("events", "actions", "expected"),
    [
        (PULSED[:1], (START_PULSED,), ["ROLL_FORWARD_AWAITING_PULSE:go"]),
        (PULSED[:2], (START_PULSED, PULSE), ["ROLL_FORWARD_PAUSED:None", "ROLLING_FORWARD:go"]),
        ([(1, "ROLLING_FORWARD"), (2, "PAUSED")], (), ["ROLLING_FORWARD:go", "ROLL_FORWARD_PAUSED:None"]),
        ([(1, "ROLLING_FORWARD"), (2, "ABORTED")], (), ["ROLLING_FORWARD:go", "ABORTED:None"]),
        ([(1, "ROLLING_FORWARD"), (2, "FAILED")], (), ["ROLLING_FORWARD:go", "FAILED:None"]),
        (
            [(1, "ROLLING_FORWARD"), (2, "ROLLING_BACKWARD"), (3, "ROLLED_BACK")],
            (),
            ["ROLLING_FORWARD:go", "ROLLING_BACK:None", "ROLLED_BACK:None"],
        ),
        (PULSED[:1], (START_PULSED, ROLLBACK), ["ROLL_BACK_AWAITING_PULSE:None"]),
    ],
)
def test_statuses_and_messages(events: Events, actions: tuple[str, ...], expected: list[str]) -> None:
    """Past events have the status of the present actions; only two statuses carry the start message."""
    [found] = list_details(JOB, [make_update(events, Opaque("u1", actions, message="go"))])
    assert expected == [f"{status}:{message}" for _, status, message in statuses(found)]
    last = api.JobUpdateStatus._VALUES_TO_NAMES[found.update.summary.state.status]
    assert expected[-1].partition(":")[0] == last


def test_initial_state_has_the_metadata_before() -> None:
    """Instances of an update had the metadata of the update before, also when a restart came between."""
    older = make_update([(1, "SUCCEEDED")], Opaque("u1", metadata=(("v", "1"),)), added=spans((0, 5)))
    restart = reads.Update(type=stateless_pb2.WORKFLOW_TYPE_RESTART, state=number("SUCCEEDED"))
    changes = {"updated": spans((0, 1), (3, 3)), "removed": spans((4, 5)), "added": spans((6, 6))}
    newer = make_update([(9, "SUCCEEDED")], Opaque("u2", metadata=(("v", "2"),)), **changes)
    found = list_details(JOB, [newer, restart, older])

    assert ["u2", "u1"] == [one.update.summary.key.id for one in found]
    [initial] = found[0].update.instructions.initialState
    assert [api.Metadata("v", "1")] == initial.task.metadata
    assert [api.Range(0, 1), api.Range(3, 3), api.Range(4, 5)] == initial.instances
    desired = found[0].update.instructions.desiredState
    assert (None, [api.Range(0, 1), api.Range(3, 3), api.Range(6, 6)]) == (desired.task, desired.instances)


def test_a_manual_rollback_is_joined_to_its_update() -> None:
    """One entry remains: the rollback's status, the start of the update, and the events of both but the abortion."""
    forward: list[Event] = [(1, "ROLLING_FORWARD"), (1, "ROLLING_FORWARD", [(0, 0)]), (5, "ABORTED")]
    back: list[Event] = [
        (5, "ROLLING_FORWARD"),
        (6, "ROLLING_FORWARD", [(0, 0)]),
        (7, "SUCCEEDED", [(0, 0)]),
        (8, "SUCCEEDED"),
    ]
    update = make_update(forward, Opaque("u1", (), (("v", "2"),), "go"), updated=spans((0, 3)))
    rollback = make_update(back, Opaque("u1", (ROLLBACK,), (("v", "2"),), "go"), updated=spans((0, 0)))
    [found] = list_details(JOB, [rollback, update])

    assert statuses(found) == [
        (1000, "ROLLING_FORWARD", "go"),
        (5000, "ROLLING_BACK", None),
        (8000, "ROLLED_BACK", None),
    ]
    assert api.JobUpdateState(api.JobUpdateStatus.ROLLED_BACK, 1000, 8000) == found.update.summary.state
    assert [api.Range(0, 3)] == found.update.instructions.desiredState.instances
    assert ["INSTANCE_UPDATING", "INSTANCE_ROLLING_BACK", "INSTANCE_ROLLED_BACK"] == [
        action for _, _, action in instances(found)
    ]


def test_more_than_two_workflows_of_an_update_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """An update id of three workflows is left out with a warning."""
    assert [] == list_details(JOB, [make_update(DONE)] * 3)
    assert "update u1 has 3 workflows" in caplog.text


def test_an_overwritten_update_is_aborted() -> None:
    """The last event of an update that another one has overwritten is ABORTED."""
    newer = make_update([(5, "ROLLING_FORWARD")], Opaque("u2"))
    older = make_update([(1, "ROLLING_FORWARD"), (5, "ABORTED")])
    found = list_details(JOB, [newer, older])
    assert [("u2", "ROLLING_FORWARD"), ("u1", "ABORTED")] == [
        (one.update.summary.key.id, statuses(one)[-1][1]) for one in found
    ]


def test_updates_of_other_clients_are_not_shown() -> None:
    """An update without an id in its opaque data is left out."""
    assert [] == list_details(JOB, [make_update(DONE, Opaque()), reads.Update(type=UPDATE, opaque_data="not json")])


def test_filter_and_order() -> None:
    """Every update is wanted unless an id or a status is named; the one that changed last comes first."""
    old, new = (list_details(JOB, [make_update([(at, "SUCCEEDED")], Opaque(f"u{at}"))])[0] for at in (1, 2))
    assert [new, old] == newest_first([old, new])
    forward, back = api.JobUpdateStatus.ROLLED_FORWARD, api.JobUpdateStatus.ROLLED_BACK
    assert is_wanted(old, None, None)
    assert is_wanted(old, "", [])
    assert is_wanted(old, "u1", [back, forward])
    assert not is_wanted(old, "u2", None)
    assert not is_wanted(old, None, [back])
