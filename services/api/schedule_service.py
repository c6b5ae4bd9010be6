"""Peloton's ScheduleService: schedules that create jobs, stored in Temporal."""

from __future__ import annotations

import time
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

from peloton.access.caller import CLUSTER
from peloton.api.convert_time import rfc3339_seconds, unix_seconds
from peloton.api.v0.job import job_pb2
from peloton.api.v0.schedule import schedule_pb2 as pb
from peloton.errors import InvalidArgument, PelotonError, Unavailable
from peloton.lifecycle.schedule import job_name_of, name_fault, note_fault, options_fault, times_fault
from peloton.model.ids import RespoolId
from peloton.model.respool import pool_paths
from peloton.model.schedule import (
    CATCH_UP_DEFAULT_S,
    CONFIG_BYTES_MAX,
    Overlap,
    Run,
    Schedule,
    ScheduledJob,
    ScheduleOptions,
    Times,
)
from peloton.model.text import control_character_fault, quote
from peloton.ports import PERSON
from services.access.caller import CALLER, name_creator
from services.access.visible import is_in, readable_paths
from services.api.calls import Calls, check_wanted
from services.api.new_jobs import NewJobs
from services.api.servicer import by_caller, write
from services.storage.pools import Pools

LIST_DEFAULT, LIST_MAX = 100, 1_000
RUNS_DEFAULT, RUNS_MAX = 10, 100
BACKFILL_MAX = 999
"""Maximum number of times per backfill. Temporal lists at most 1,000 times of a range, so 1,000 may mean more."""
BACKFILL_DAYS_MAX = 366
OVERLAP_NUMBERS = {overlap: pb.Overlap.Value(f"OVERLAP_{overlap}") for overlap in Overlap}
OVERLAPS: dict[int, Overlap] = {number: overlap for overlap, number in OVERLAP_NUMBERS.items()}


class Schedules(Protocol):
    """Schedules in Temporal. All methods raise Unavailable and, where they name a schedule, NotFound."""

    async def create(
        self, name: str, times: Times, options: ScheduleOptions, job: ScheduledJob, paused: bool, note: str
    ) -> None:
        """Create a schedule. Raises AlreadyExists, InvalidArgument."""
        ...

    async def find(self, is_wanted: Callable[[Schedule], bool], limit: int) -> list[Schedule]: ...
    async def get(self, name: str, runs_max: int) -> Schedule: ...
    async def pause(self, name: str, note: str) -> None: ...
    async def resume(self, name: str, note: str) -> None: ...
    async def trigger(self, name: str, overlap: Overlap | None) -> None: ...
    async def count_times(self, name: str, start_s: int, end_s: int) -> int: ...
    async def backfill(self, name: str, start_s: int, end_s: int, overlap: Overlap) -> None: ...
    async def delete(self, name: str) -> None: ...


class ScheduleService:
    def __init__(self, schedules: Schedules | None, new_jobs: NewJobs, pools: Pools, calls: Calls) -> None:
        """Create the service; all calls return UNAVAILABLE without ``schedules``."""
        self._kept, self._new_jobs, self._pools, self._calls = schedules, new_jobs, pools, calls

    @property
    def _schedules(self) -> Schedules:
        if self._kept is None:
            raise Unavailable("this api has no connection to Temporal, which stores schedules")
        return self._kept

    @write
    async def CreateSchedule(self, request: pb.CreateScheduleRequest, context: Any) -> pb.CreateScheduleResponse:
        name, times, options = _name(request.name), _times(request.times), _options(request)
        fault = times_fault(times) or _zone_fault(times.time_zone) or options_fault(options, request.note)
        if fault or (fault := control_character_fault("note", request.note)):
            raise InvalidArgument(f"schedule {name}: {fault}")
        job = await self._check_job(request.job_config)
        check_wanted(context)
        await self._new_jobs.creators.note_caller()
        await self._schedules.create(name, times, options, job, request.paused, request.note)
        next_ns: Sequence[int] = ()
        with suppress(PelotonError):  # the schedule exists, and a repeated call would be refused
            next_ns = (await self._schedules.get(name, 1)).next_ns
        return pb.CreateScheduleResponse(next_times=map(rfc3339_seconds, next_ns))

    async def _check_job(self, config: job_pb2.JobConfig) -> ScheduledJob:
        """Validate the job like JobManager.Create, and against the limits of schedules. Raises InvalidArgument."""
        if config.type != job_pb2.BATCH:
            kind = job_pb2.JobType.Name(config.type) if config.type in job_pb2.JobType.values() else config.type
            raise InvalidArgument(
                f"the job is of the type {kind}: a schedule creates jobs of the type BATCH, which end"
            )
        if (size := config.ByteSize()) > CONFIG_BYTES_MAX:
            raise InvalidArgument(f"the job config has {size:,} bytes, a schedule takes at most {CONFIG_BYTES_MAX:,}")
        named = job_pb2.JobConfig()
        named.CopyFrom(config)
        named.name = job_name_of(config.name, time.time_ns())
        refusal = await self._new_jobs.config_refusal(named) or await self._new_jobs.secret_refusal(named)
        if refusal:
            raise InvalidArgument(refusal)
        pool_id = config.respoolID.value
        path = (await self._read_paths()).get(RespoolId(pool_id), pool_id)
        text = config.SerializeToString()
        return ScheduledJob(text, config.name, pool_id, path, config.owningTeam, creator=name_creator())

    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Any) -> pb.ListSchedulesResponse:
        limit = min(request.limit or LIST_DEFAULT, LIST_MAX)
        readable, paths = readable_paths(CALLER.get()), await self._read_paths()

        def is_wanted(one: Schedule) -> bool:
            path = find_pool_path(one, paths)
            return request.pool_path in ("", path) and is_in(path or CLUSTER, readable)

        found = await self._schedules.find(is_wanted, limit + 1)
        shown = [_wire(one, paths) for one in found[:limit]]
        return pb.ListSchedulesResponse(schedules=shown, has_more=len(found) > limit)

    async def _read_paths(self) -> Mapping[RespoolId, str]:
        return pool_paths(await self._calls.run(self._pools.specs))

    async def GetSchedule(self, request: pb.GetScheduleRequest, context: Any) -> pb.GetScheduleResponse:
        runs_max = min(request.runs_limit or RUNS_DEFAULT, RUNS_MAX)
        found = await self._schedules.get(_name(request.name), runs_max)
        config = job_pb2.JobConfig.FromString(found.config)
        return pb.GetScheduleResponse(schedule=_wire(found, await self._read_paths()), job_config=config)

    @write
    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Any) -> pb.PauseScheduleResponse:
        await self._schedules.pause(_name(request.name), _note(request.note) or _note_of_caller("paused"))
        return pb.PauseScheduleResponse()

    @write
    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, context: Any) -> pb.ResumeScheduleResponse:
        await self._schedules.resume(_name(request.name), _note(request.note) or _note_of_caller("resumed"))
        return pb.ResumeScheduleResponse()

    @write
    async def TriggerSchedule(self, request: pb.TriggerScheduleRequest, context: Any) -> pb.TriggerScheduleResponse:
        await self._schedules.trigger(_name(request.name), _overlap(request.overlap))
        return pb.TriggerScheduleResponse()

    @write
    async def BackfillSchedule(self, request: pb.BackfillScheduleRequest, context: Any) -> pb.BackfillScheduleResponse:
        name, overlap = _name(request.name), _overlap(request.overlap) or Overlap.BUFFER_ALL
        start_s, end_s = _second("start_time", request.start_time), _second("end_time", request.end_time)
        if start_s > end_s or end_s > time.time():
            given = f"{quote(request.start_time)} to {quote(request.end_time)}"
            raise InvalidArgument(
                f"backfill of schedule {name} from {given}: want a start before the end, and both past"
            )
        if end_s - start_s > BACKFILL_DAYS_MAX * 86_400:
            raise InvalidArgument(
                f"backfill of schedule {name} over {(end_s - start_s) // 86_400} days, at most {BACKFILL_DAYS_MAX} are "
                f"allowed: call it for parts"
            )
        count = await self._schedules.count_times(name, start_s, end_s)
        if count > BACKFILL_MAX:
            raise InvalidArgument(
                f"schedule {name} has {count} or more times in the range, a backfill takes at most {BACKFILL_MAX}: "
                f"call it for parts"
            )
        check_wanted(context)
        await self._schedules.backfill(name, start_s, end_s, overlap)
        return pb.BackfillScheduleResponse(time_count=count)

    @write
    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, context: Any) -> pb.DeleteScheduleResponse:
        await self._schedules.delete(_name(request.name))
        return pb.DeleteScheduleResponse()


def _name(name: str) -> str:
    if fault := name_fault(name):
        raise InvalidArgument(fault)
    return name


def _note(note: str) -> str:
    if fault := note_fault(note) or control_character_fault("note", note):
        raise InvalidArgument(fault)
    return note


def _note_of_caller(done: str) -> str:
    """Return a note with the name of the caller; empty if it is not known."""
    return by_caller(done) if PERSON.get() else ""


def _times(wire: pb.Times) -> Times:
    return Times(tuple(wire.crons), wire.interval_s, wire.offset_s, wire.time_zone, wire.jitter_s)


def _options(request: pb.CreateScheduleRequest) -> ScheduleOptions:
    catch_up_s = request.catch_up_s or CATCH_UP_DEFAULT_S
    return ScheduleOptions(_overlap(request.overlap) or Overlap.SKIP, catch_up_s, request.pauses_on_failure)


def _overlap(number: int) -> Overlap | None:
    if number and number not in OVERLAPS:
        raise InvalidArgument(f"unknown overlap policy {number}, want one of {', '.join(Overlap)}")
    return OVERLAPS.get(number)


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _zone_fault(zone: str) -> str:
    """Return the fault of a time zone; without a zone database on this machine, Temporal checks it."""
    if not zone or not _zones() or zone in _zones():
        return ""
    return f"unknown time zone {quote(zone)}: want a name of the IANA database, such as Europe/Berlin"


def _second(field: str, text: str) -> int:
    try:
        return unix_seconds(text)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{field} {quote(text)}: want a time in RFC 3339, such as 2026-01-31T08:00:00Z") from None


def find_pool_path(one: Schedule, paths: Mapping[RespoolId, str]) -> str:
    """Return the path that the schedule's pool has now; the stored one if the pool is gone, or its id is not known."""
    return paths.get(RespoolId(one.pool_id), one.pool_path)


# -- to the wire -----------------------------------------------------------------------------------------------------


def _wire(one: Schedule, paths: Mapping[RespoolId, str]) -> pb.Schedule:
    times, counts, options = one.times, one.counts, one.options or ScheduleOptions(catch_up_s=0)
    return pb.Schedule(
        name=one.name,
        times=pb.Times(
            crons=times.crons,
            interval_s=times.interval_s,
            offset_s=times.offset_s,
            time_zone=times.time_zone,
            jitter_s=times.jitter_s,
        ),
        pool_path=find_pool_path(one, paths),
        job_name=one.job_name,
        owner=one.owner,
        paused=one.paused,
        note=one.note,
        next_times=map(rfc3339_seconds, one.next_ns),
        runs=map(_run, one.runs),
        overlap=OVERLAP_NUMBERS[options.overlap] if one.options else pb.OVERLAP_DEFAULT,
        catch_up_s=options.catch_up_s,
        pauses_on_failure=options.pauses_on_failure,
        run_count=counts.runs,
        skipped_count=counts.skipped,
        missed_count=counts.missed,
        creation_time=rfc3339_seconds(one.created_ns),
        creator=one.creator,
    )


def _run(run: Run) -> pb.Run:
    return pb.Run(
        scheduled_time=rfc3339_seconds(run.scheduled_ns),
        start_time=rfc3339_seconds(run.started_ns),
        end_time=rfc3339_seconds(run.ended_ns),
        state=run.state,
        job_id=run.job_id,
        job_name=run.job_name,
        reason=run.reason,
        workflow_id=run.workflow_id,
    )
