"""Versions of workers in Temporal: which one is current, and which workflows have a version without workers.

Each worker records its start, and makes its version the current one when no other version could run workflows. The
leading resource manager ramps a new version, and moves workflows that are pinned to a version without workers.
Decisions are in ``lifecycle.worker_ramp`` and ``lifecycle.worker_versions``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from contextlib import suppress

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.liveness import ENGINE_BOUND_S
from peloton.lifecycle.worker_ramp import STEPS, Act, Decision, Fleet, Promotion, Step, decide
from peloton.lifecycle.worker_versions import UNVERSIONED, WorkerVersions
from services.recheck import Recheck
from services.temporal.task_queues import RPC_TIMEOUT
from services.temporal.worker_fleet import (
    DEPLOYMENT,
    apply,
    forget_start,
    note_start,
    read_fleet,
    read_versions,
    set_current,
    verdicts_of,
)
from services.ticks import ticking

log = logging.getLogger(__name__)

RETRY_S, PERIOD_S = 0.5, 10.0
"""Seconds between polls: while work remains, and afterwards. After failures in a row the pause doubles from the first
to the second.
"""
FAILURES_SHOWN = 6
"""Failures in a row after which the log reports them, once."""
CONFIRM_S = 10.0
"""Seconds for which all polls must agree before a version takes over from one without workers, or is rejected. A
restarted server lists no worker until its next heartbeat, and a restarting worker is missing for a moment.
"""
GIVEN_UP_CONFIRM_S = 60.0
"""Seconds for which all polls must agree before a rejected version takes over: it runs workflows only when no other
version has workers again.
"""
FAREWELL_S = 2.0
"""Seconds for which a worker that stops waits for Temporal to take its note back."""
MOVES_IN_FLIGHT_MAX = 50
MOVED_MAX = 100_000
"""Workflows moved by one poll, as many as there may be jobs."""


class _Watch(ABC):
    """Polls the versions until it is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._agreement: tuple[object, float] | None = None
        self._task = asyncio.create_task(self._run(), name=type(self).__name__)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        with ticking("versions of the workers", bound_s=ENGINE_BOUND_S) as loop:
            while True:
                loop.tick()
                is_settled = False
                try:
                    is_settled, failures = await self._act(), 0
                except Exception as error:  # of a new worker that has not polled all task queues yet, of a client that
                    # has not connected yet, or of metadata that a user edited
                    failures += 1
                    self.forget_agreement()
                    if failures == FAILURES_SHOWN:
                        log.warning("versions of workers not read from Temporal: %s", error)
                await asyncio.sleep(PERIOD_S if is_settled else Backoff(RETRY_S, PERIOD_S).delay_s(max(failures, 1)))

    @abstractmethod
    async def _act(self) -> bool:
        """Read the versions and act; return whether no work remains. Raises RPCError."""

    def have_agreed(self, conclusion: object, *, is_given_up: bool) -> bool:
        """Return whether all polls of a sufficient time have led to this conclusion; ``is_given_up``: the version that
        would take over was rejected.
        """
        now_s = time.monotonic()
        if self._agreement is None or self._agreement[0] != conclusion:
            self._agreement = conclusion, now_s
        return now_s - self._agreement[1] >= (GIVEN_UP_CONFIRM_S if is_given_up else CONFIRM_S)

    def forget_agreement(self) -> None:
        self._agreement = None


class VersionClaim(_Watch):
    """Records the start of a worker, and makes its version the current one when no other version could run workflows;
    with manual promotion only when no version is current.
    """

    def __init__(self, client: Client, version: str, promotion: Promotion = Promotion.AUTO) -> None:
        self._version, self._promotion = version, promotion
        self._started_s, self._is_noted = time.time(), False
        super().__init__(client)

    async def note_start(self) -> None:
        """Record the start before the first task, which may crash the worker. A version that the server does not list
        yet receives no task, and its start is recorded later.
        """
        try:
            self._is_noted = await note_start(self._client, self._version, self._started_s)
        except RPCError as error:
            log.info("start of this worker not recorded, retrying: %s", error)

    async def close_in_order(self) -> None:
        """Close, and remove the record of the start: the worker did not crash."""
        await self.close()
        with suppress(RPCError, TimeoutError):  # the note counts for an hour as one crash
            async with asyncio.timeout(FAREWELL_S):
                await forget_start(self._client, self._version, self._started_s)

    async def _act(self) -> bool:
        seen = await read_versions(self._client)
        is_open = self._promotion is Promotion.AUTO or seen.current == UNVERSIONED
        if is_open and seen.is_claimed_by(self._version):
            return await self._claim(seen)
        self.forget_agreement()
        if not self._is_noted:
            self._is_noted = await note_start(self._client, self._version, self._started_s)
        return self._is_noted

    async def _claim(self, seen: WorkerVersions) -> bool:
        given_up = await verdicts_of(self._client, {self._version, *seen.at_work} - {UNVERSIONED})
        is_given_up = self._version in given_up
        if seen.current != UNVERSIONED and not self.have_agreed(seen.current, is_given_up=is_given_up):
            return False
        if seen.is_claimed_by(self._version, given_up):
            await set_current(self._client, self._version)
        return self._is_noted


class VersionController(_Watch):
    """Ramps a new version, and moves workflows to the current one when their own has no workers. One instance runs in
    the leading resource manager.
    """

    current = ""
    """Name of the current version, as the search attribute of runs has it; empty while workers have none, and while
    another version ramps.
    """

    def __init__(self, client: Client, promotion: Promotion = Promotion.AUTO, steps: Sequence[Step] = STEPS) -> None:
        self._promotion, self._steps = promotion, steps
        self._moves = Recheck()  # versions lose their workers when those that serve change
        self._serving: Set[str] = frozenset()  # at the previous poll
        super().__init__(client)

    async def _act(self) -> bool:
        fleet = await read_fleet(self._client)
        seen = WorkerVersions(fleet.current, fleet.at_work)
        is_one = seen.current != UNVERSIONED and not fleet.ramping
        self.current = f"{DEPLOYMENT}:{seen.current}" if is_one else ""
        serving = (fleet.at_work - fleet.given_up) | {fleet.current}
        is_due = self._moves.is_due(serving) and serving == self._serving
        self._serving = serving
        if seen.is_rolled_back:
            await set_current(self._client, UNVERSIONED, fleet.token)
            return False
        decision = decide(fleet, time.time(), self._promotion, self._steps)
        if decision.act is not Act.HOLD:
            if self.is_sure_of(decision, fleet):
                await apply(self._client, fleet, decision)
            return False
        self.forget_agreement()
        if seen.can_take_over and is_due:
            count = await self._move_all(serving)
            self._moves.record_check(has_found=bool(count))
        return True

    def is_sure_of(self, decision: Decision, fleet: Fleet) -> bool:
        """Return whether the decision may be applied: one that follows from missing workers has to last."""
        if decision.act is Act.GIVE_UP or (decision.act is Act.MAKE_CURRENT and not fleet.is_served):
            is_given_up = decision.build in fleet.given_up
            agreed = (decision.act, decision.build)
            return fleet.current == UNVERSIONED or self.have_agreed(agreed, is_given_up=is_given_up)
        self.forget_agreement()
        return True

    async def _move_all(self, at_work: Set[str]) -> int:
        """Move workflows off versions without workers; return how many were found."""
        served = ", ".join(f"'{DEPLOYMENT}:{version}'" for version in sorted(at_work))
        query = (
            f"ExecutionStatus = 'Running' AND TemporalWorkerDeployment = '{DEPLOYMENT}' "
            f"AND TemporalWorkflowVersioningBehavior = 'Pinned' AND TemporalWorkerDeploymentVersion NOT IN ({served})"
        )
        found = [one.id async for one in self._client.list_workflows(query, limit=MOVED_MAX, rpc_timeout=RPC_TIMEOUT)]
        if found:
            log.info("moved %d workflows pinned to versions without workers to the current version", len(found))
        slots = asyncio.Semaphore(MOVES_IN_FLIGHT_MAX)
        calls = await asyncio.gather(*(self._unpin(one, slots) for one in found), return_exceptions=True)
        if errors := [call for call in calls if isinstance(call, BaseException)]:
            raise errors[0]
        return len(found)

    async def _unpin(self, workflow_id: str, slots: asyncio.Semaphore) -> None:
        """Unpin a workflow from its version, until the end of its run."""
        request = UpdateWorkflowExecutionOptionsRequest(
            namespace=self._client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            workflow_execution_options=WorkflowExecutionOptions(
                versioning_override=VersioningOverride(auto_upgrade=True)
            ),
            update_mask=FieldMask(paths=["versioning_override"]),
            identity=self._client.identity,
        )
        async with slots:
            try:
                await self._client.workflow_service.update_workflow_execution_options(request, timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    raise
