"""Peloton's GangService: members of gangs, for their pods."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from peloton.api import convert
from peloton.api.v0.gang import gang_pb2 as pb
from peloton.errors import InvalidArgument, NotFound, Reason
from peloton.lifecycle.discovery import GangPod, GangView
from peloton.model.ids import JobId
from services.api.calls import Calls, make_overloaded
from services.api.ids import parse_known_id
from services.storage.jobs.jobs import Jobs
from services.storage.pods.pods import Pods

MEMBERS_MAX = 10_000
WAIT_DEFAULT_S, WAIT_MAX_S = 10, 60
WAITING_MAX = 1_000
"""Maximum number of calls that wait for a change."""
POLL_S = 1.0
"""Seconds between reads of a gang for which calls wait; they share each read."""


class GangService:
    def __init__(self, jobs: Jobs, pods: Pods, calls: Calls) -> None:
        self._jobs, self._pods, self._calls = jobs, pods, calls
        self._waiting_count = 0
        self._latest: dict[JobId, tuple[float, asyncio.Task[GangView]]] = {}

    async def GetGang(self, request: pb.GetGangRequest, context: Any) -> pb.GetGangResponse:
        if request.waitSeconds > WAIT_MAX_S:
            raise InvalidArgument(f"waitSeconds is {request.waitSeconds}, at most {WAIT_MAX_S} are allowed")
        job_id = parse_known_id(request.jobId)
        if job_id is None:
            raise NotFound(f"job {request.jobId.value} not found").because(
                Reason.JOB_NOT_FOUND, job=request.jobId.value
            )
        if not request.afterRevision:
            return _wire(await self._calls.run(self._read, job_id))
        if self._waiting_count >= WAITING_MAX:
            raise make_overloaded("gangs", f"{WAITING_MAX} calls wait for changes of gangs", WAIT_DEFAULT_S)
        self._waiting_count += 1
        try:
            return _wire(await self._wait(job_id, request.afterRevision, request.waitSeconds or WAIT_DEFAULT_S))
        finally:
            self._waiting_count -= 1

    async def _wait(self, job_id: JobId, revision: str, wait_s: float) -> GangView:
        """Return the gang when its revision is another one, or after ``wait_s``."""
        began_s = time.monotonic()
        until_s = began_s + wait_s
        while True:
            await self._wait_for_turn(job_id, began_s, until_s)
            view = await self._read_shared(job_id, began_s)
            left_s = until_s - time.monotonic()
            if view.revision != revision or left_s <= 0:
                return view
            await asyncio.sleep(min(POLL_S, left_s))

    async def _wait_for_turn(self, job_id: JobId, began_s: float, until_s: float) -> None:
        """Wait for the next shared read if the latest one began before the call: it may be older than the answer that
        the caller has."""
        now_s, read_s = time.monotonic(), self._latest[job_id][0] if job_id in self._latest else began_s
        if read_s < began_s:
            await asyncio.sleep(max(min(read_s + POLL_S, until_s) - now_s, 0))

    async def _read_shared(self, job_id: JobId, since_s: float) -> GangView:
        """Read the gang, or return what another call has read within POLL_S and since ``since_s``."""
        now_s = time.monotonic()
        self._latest = {one: read for one, read in self._latest.items() if now_s - read[0] < POLL_S}
        if job_id not in self._latest or self._latest[job_id][0] < since_s:
            self._latest[job_id] = now_s, asyncio.create_task(self._calls.run(self._read, job_id))
        return await asyncio.shield(self._latest[job_id][1])

    def _read(self, job_id: JobId) -> GangView:
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        if not job.type.runs_to_end:
            raise InvalidArgument(
                f"job {job_id} has no gang: it is a {job.type.value} job, which does not run to an end"
            )
        return self._pods.gang_view(job, MEMBERS_MAX)


def _wire(view: GangView) -> pb.GetGangResponse:
    return pb.GetGangResponse(
        generation=view.generation,
        revision=view.revision,
        minimum=view.bounds.minimum,
        maximum=view.bounds.maximum,
        coordinator=view.coordinator.endpoint,
        members=map(_member, view.pods),
        isPartial=view.is_partial,
    )


def _member(pod: GangPod) -> pb.Member:
    return pb.Member(
        instanceId=pod.instance_id,
        runId=pod.run_id,
        isLive=pod.is_live,
        rank=pod.rank,
        localRank=pod.local_rank,
        state=convert.POD_STATE_NUMBERS[pod.state.public],  # type: ignore[arg-type]
        hostname=pod.hostname,
        address=pod.peer.address,
        port=pod.port,
        ports=pod.ports,
    )
