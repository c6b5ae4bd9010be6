"""Finds active jobs that have no workflow, as after Temporal's database was lost or restored from a backup.

An idle job is not signalled, so no other check would find it. Two counts show whether any workflow is missing, and cost
milliseconds whatever the number of jobs; the ids are compared only when the counts differ twice in a row. Lists of
Temporal lag behind: a workflow is missing when two comparisons in a row have not found it. A namespace that was made
again has another id, and no workflow at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.ids import JobId, job_workflow_id
from services.temporal.task_queues import RPC_TIMEOUT

log = logging.getLogger(__name__)

RUNNING = "WorkflowType = 'Job' AND ExecutionStatus = 'Running'"
REST_PER_COMPARISON = 20
"""Pause between two comparisons of ids, as a multiple of the time that one takes."""
REST_PER_COUNT, COUNT_REST_MAX_S = 500, 120.0
"""Pause between two counts, as a multiple of the time that they take: both read a row of each active job. The pause has
a bound, because counts are slow on a busy machine.
"""
IDS_MAX = 1_000_000
PAGE_IDS = 1_000


class MissingWorkflows:
    def __init__(
        self,
        client: Client,
        expected_count: Callable[[], int],
        active_ids: Callable[[], Sequence[JobId]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``expected_count``: active jobs whose workflows have seen all that has changed of them."""
        self._client, self._clock = client, clock
        self._expected_count, self._active_ids = expected_count, active_ids
        self._namespace_id = ""
        self._was_short = False
        self._missed: set[JobId] = set()  # by the last comparison
        self._rests_until_s = self._counts_at_s = 0.0

    async def find(self, failed: Collection[str] = ()) -> list[JobId]:
        """Return active jobs without a workflow in two comparisons of ids, or all of them when the namespace was made
        again. Ids are compared when two calls in a row have counted too few workflows. ``failed``: ids of failed
        workflows to leave out, which are started again later. Raises errors of Temporal and of storage.
        """
        if await self._has_new_namespace():
            active = await asyncio.to_thread(self._active_ids)
            log.warning("Temporal has lost its workflows, starting those of all %d active jobs", len(active))
            return [*active]
        if self._clock() < self._counts_at_s:
            return []
        began_s = self._clock()
        expected = await asyncio.to_thread(self._expected_count)
        running = (await self._client.count_workflows(RUNNING, rpc_timeout=RPC_TIMEOUT)).count
        is_enough = running >= expected
        rest_s = min(REST_PER_COUNT * (self._clock() - began_s), COUNT_REST_MAX_S) if is_enough else 0.0
        self._counts_at_s = self._clock() + rest_s
        was_short, self._was_short = self._was_short, not is_enough
        if not (self._was_short and was_short) or self._clock() < self._rests_until_s:
            return []
        began_s = self._clock()
        active = await asyncio.to_thread(self._active_ids)  # before the list: a job that begins meanwhile is in neither
        found = self._client.list_workflows(RUNNING, limit=IDS_MAX, page_size=PAGE_IDS, rpc_timeout=RPC_TIMEOUT)
        there = {one.id async for one in found}
        missed = [job_id for job_id in active if (name := job_workflow_id(job_id)) not in there and name not in failed]
        missing = [job_id for job_id in missed if job_id in self._missed]
        self._missed = set(missed)
        self._rests_until_s = self._clock() + REST_PER_COMPARISON * (self._clock() - began_s)
        if missing:
            log.warning("%d of %d active jobs have no workflow, starting it", len(missing), len(active))
        return missing

    async def _has_new_namespace(self) -> bool:
        """Return whether the namespace has another id than at the last call. Raises RPCError."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        try:
            answer = await self._client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.PERMISSION_DENIED:
                raise
            return False  # the counts have to find it
        before, self._namespace_id = self._namespace_id, answer.namespace_info.id
        return before not in ("", self._namespace_id)
