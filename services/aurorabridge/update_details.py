"""Updates of a job as Aurora shows them, from the updates that role api lists.

A manual rollback is an update of its own with the same id in its opaque data: both are shown as one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod.pod_pb2 import InstanceIDRange
from services.aurorabridge.mapping.opaque import Opaque, decode
from services.aurorabridge.mapping.update_spec import job_update_settings
from services.aurorabridge.splice import Spliced, encode, encode_number
from services.aurorabridge.states import update_action, update_status
from services.aurorabridge.thrift import api

log = logging.getLogger(__name__)

UPDATES_MAX = 10
"""Number of updates of a job that are read, restarts included."""
EVENTS_PER_INSTANCE_MAX = 100
"""Number of events of one instance in an update, the newest ones."""

_INSTANCE = Struct(">i")
_Status = api.JobUpdateStatus
_HAS_START_MESSAGE = frozenset({_Status.ROLLING_FORWARD, _Status.ROLL_FORWARD_AWAITING_PULSE})
_NOT_BEFORE_ROLLBACK = frozenset(
    {
        _Status.ROLLING_BACK,
        _Status.ROLL_BACK_PAUSED,
        _Status.ROLL_BACK_AWAITING_PULSE,
        _Status.ROLLED_BACK,
        _Status.ABORTED,
        _Status.ERROR,
        _Status.FAILED,
    }
)
"""Statuses of an update that its manual rollback hides."""


class InstanceEvents(Spliced):
    """Events of instances, made while they are read: an update of 10,000 instances has 30,000."""

    def __init__(self, groups: Iterable[tuple[int, int, Sequence[int]]]) -> None:
        self._groups = sorted(groups, key=lambda group: group[0])  # (milliseconds, action, instances)

    def __len__(self) -> int:
        return sum(len(instances) for _, _, instances in self._groups)

    def __iter__(self) -> Iterator[Any]:
        for time_ms, action, instances in self._groups:
            for instance in instances:
                yield api.JobInstanceUpdateEvent(instance, time_ms, action)

    def members(self) -> Iterator[bytes]:
        field = encode_number(1, 0)[: -_INSTANCE.size]
        for time_ms, action, instances in self._groups:
            rest = encode(api.JobInstanceUpdateEvent(timestampMs=time_ms, action=action))
            write = Struct(f">{len(field)}si{len(rest)}s").pack
            yield b"".join([write(field, instance, rest) for instance in instances])

    def __add__(self, later: InstanceEvents) -> InstanceEvents:
        return InstanceEvents([*self._groups, *later._groups])


def list_details(job: Any, updates: Iterable[reads.Update]) -> list[Any]:
    """Return the details of a job's updates, newest first; ``job`` is its key, and ``updates`` begin with the newest.

    Restarts are left out, and so are updates by other clients, which have no id. Times rise with the order of events,
    also where the clocks of their writers differ. Raises Refusal.
    """
    mine = [update for update in updates if update.type == stateless_pb2.WORKFLOW_TYPE_UPDATE]
    opaques = [decode(update.opaque_data) for update in mine]
    workflows: dict[str, list[Any]] = {}
    for at, (update, opaque) in enumerate(zip(mine, opaques, strict=True)):
        if opaque.update_id:
            details = _details(job, update, opaque, opaques[at + 1] if at + 1 < len(mine) else None)
            workflows.setdefault(opaque.update_id, []).append(details)
    found = []
    for update_id, several in workflows.items():
        if len(several) > 2:
            log.warning("update %s has %d workflows, at most 2 are expected: it is not shown", update_id, len(several))
        else:
            found.append(several[0] if len(several) == 1 else _join(earlier=several[1], later=several[0]))
    return newest_first(found)


def newest_first(details: Iterable[Any]) -> list[Any]:
    return sorted(details, key=lambda one: -(one.update.summary.state.lastModifiedTimestampMs or 0))


def is_wanted(details: Any, update_id: str | None, statuses: Collection[int] | None) -> bool:
    """Return whether an update has this id and one of these statuses; None and no statuses stand for any."""
    summary = details.update.summary
    return (not update_id or summary.key.id == update_id) and (not statuses or summary.state.status in statuses)


def _details(job: Any, update: reads.Update, opaque: Opaque, before: Opaque | None) -> Any:
    timed = list(zip(update.events, accumulate((event.time_s * 1_000 for event in update.events), max), strict=True))
    events = [_event(event.state, time_ms, opaque) for event, time_ms in timed if not event.instances]
    state = api.JobUpdateState(
        status=update_status(update.state, opaque),
        createdTimestampMs=events[0].timestampMs if events else None,
        lastModifiedTimestampMs=events[-1].timestampMs if events else None,
    )
    summary = api.JobUpdateSummary(
        state=state, key=api.JobUpdateKey(job=job, id=opaque.update_id), metadata=opaque.aurora_metadata()
    )
    initial = []
    if before is not None:
        replaced = api.InstanceTaskConfig(
            task=api.TaskConfig(metadata=before.aurora_metadata()),
            instances=ranges_of([*update.updated, *update.removed]),
        )
        initial.append(replaced)
    instructions = api.JobUpdateInstructions(
        initialState=initial,
        desiredState=api.InstanceTaskConfig(instances=ranges_of([*update.updated, *update.added])),
        settings=job_update_settings(update.spec),
    )
    return api.JobUpdateDetails(
        update=api.JobUpdate(summary=summary, instructions=instructions),
        updateEvents=events,
        instanceEvents=_instance_events(timed, opaque),
    )


def _join(earlier: Any, later: Any) -> Any:
    """Return an update together with its manual rollback."""
    first, second = earlier.update, later.update
    summary = first.summary
    state = api.JobUpdateState(
        status=second.summary.state.status,
        createdTimestampMs=summary.state.createdTimestampMs,
        lastModifiedTimestampMs=second.summary.state.lastModifiedTimestampMs,
    )
    joined = api.JobUpdateSummary(state=state, key=summary.key, metadata=summary.metadata)
    kept = [event for event in earlier.updateEvents if event.status not in _NOT_BEFORE_ROLLBACK]
    return api.JobUpdateDetails(
        update=api.JobUpdate(summary=joined, instructions=first.instructions),
        updateEvents=[*kept, *later.updateEvents],
        instanceEvents=earlier.instanceEvents + later.instanceEvents,
    )


def _event(state: int, time_ms: int, opaque: Opaque) -> Any:
    status = update_status(state, opaque)
    message = (opaque.message or None) if status in _HAS_START_MESSAGE else None
    return api.JobUpdateEvent(status=status, timestampMs=time_ms, message=message)


def _instance_events(events: Iterable[tuple[reads.UpdateEvent, int]], opaque: Opaque) -> InstanceEvents:
    """Return the events of instances, without repeated states."""
    last: dict[int, int] = {}
    counts: Counter[int] = Counter()
    groups: list[tuple[int, int, list[int]]] = []
    for event, time_ms in events:
        state = event.state
        named = (i for span in event.instances for i in range(getattr(span, "from"), span.to + 1))
        changed = [i for i in named if last.get(i) != state]
        if changed:
            last.update(dict.fromkeys(changed, state))
            counts.update(changed)
            groups.append((time_ms, update_action(state, opaque), changed))
    excess = {i: count - EVENTS_PER_INSTANCE_MAX for i, count in counts.items() if count > EVENTS_PER_INSTANCE_MAX}
    return InstanceEvents(_drop_oldest(groups, excess) if excess else groups)


def _drop_oldest(groups: Iterable[tuple[int, int, list[int]]], excess: dict[int, int]) -> Iterator[Any]:
    for time_ms, action, instances in groups:
        kept = []
        for instance in instances:
            if excess.get(instance, 0) > 0:
                excess[instance] -= 1
            else:
                kept.append(instance)
        yield time_ms, action, kept


def ranges_of(spans: Iterable[InstanceIDRange]) -> list[Any]:
    """Convert ranges whose end is included, as in all answers of the api."""
    return [api.Range(first=getattr(span, "from"), last=span.to) for span in spans]
