"""Recovery of the resource manager's memory from storage: on start, on failover, and after a commit of unknown
outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from peloton.lifecycle.volumes import without_volumes
from peloton.model.admission import AllocatedRange, JobSnapshot, PendingRange
from peloton.model.ids import JobId
from peloton.model.pod import ShapeRange
from services.resmgr.state import ResmgrState
from services.storage.jobs.configs import Configs
from services.storage.storage import Storage


def rebuild(records: Storage) -> ResmgrState:
    """Rebuild queues from PENDING pods by queue_seq, allocation from pods that hold resources, and the log cursor.

    Shapes are read after the snapshot: a version of a configuration never changes.
    """
    found = records.admission.snapshot()
    state = ResmgrState(found.pools)
    state.log_cursor = found.log_cursor
    state.next_seq = found.last_queue_seq + 1
    known = _shapes(records.configs, found.jobs)
    # Read after the snapshot, as the loop reads them after the log.
    retained = records.volumes.list_retained()
    state.accounts.set_volumes(retained)
    by_job: dict[JobId, set[int]] = {}
    for volume in retained:
        if volume.is_wanted:
            by_job.setdefault(volume.job_id, set()).add(volume.instance_id)
    for pods in found.jobs:
        shapes = known[pods.job.job_id]
        if pods.job.job_id in by_job:
            instances = by_job[pods.job.job_id]
            shapes = {version: without_volumes(some, instances) for version, some in shapes.items()}
        for held in pods.allocated:
            state.restore_held(pods.job, shapes[held.config_version], [(held.start, held.count)], held.evicted)
        for queue_seq, ranges in groupby(pods.pending, key=lambda span: span.queue_seq):
            queued = sorted(ranges, key=lambda span: span.start)
            in_backoff = [(span.start, span.count, span.held_until_ns) for span in queued if span.held_until_ns]
            for span in queued:
                state.learn(pods.job, shapes[span.config_version], span.start, span.count)
            state.enqueue(pods.job, (), _join_ranges(queued), queue_seq, in_backoff)
    return state


def _shapes(configs: Configs, jobs: Sequence[JobSnapshot]) -> dict[JobId, dict[int, list[ShapeRange]]]:
    """Return job -> config version -> shapes of the instances between the first and the last that counts."""
    spans = [span for pods in jobs for span in _spans(pods)]
    shapes: dict[JobId, dict[int, list[ShapeRange]]] = {pods.job.job_id: {} for pods in jobs}
    for (job_id, version, *_), found in zip(spans, configs.shapes_of(spans), strict=True):
        shapes[job_id][version] = found
    return shapes


def _spans(pods: JobSnapshot) -> Iterator[tuple[JobId, int, int, int]]:
    ranges: Sequence[PendingRange | AllocatedRange] = [*pods.pending, *pods.allocated]
    if ranges:
        first, end = min(span.start for span in ranges), max(span.start + span.count for span in ranges)
        for version in sorted({span.config_version for span in ranges}):
            yield pods.job.job_id, version, first, end - first


def _join_ranges(spans: Sequence[PendingRange]) -> Iterator[tuple[int, int]]:
    """Yield maximal ``(start, count)``: instances queued together stay together, whatever their configurations."""
    start = end = spans[0].start
    for span in spans:
        if span.start != end:
            yield start, end - start
            start = span.start
        end = span.start + span.count
    yield start, end - start
