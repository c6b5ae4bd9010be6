"""Peloton's ScheduleService over real storage, with schedules in memory; and the creation of jobs by workers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from peloton.access.rules import Find
from peloton.api.v0.job import job_pb2
from peloton.api.v0.schedule import schedule_pb2 as pb
from peloton.api.v0.schedule.schedule_pb2_grpc import ScheduleServiceStub
from peloton.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from peloton.lifecycle.schedule import job_id_of
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.model.schedule import (
    CONFIG_BYTES_MAX,
    Counts,
    JobStart,
    Overlap,
    Run,
    RunState,
    Schedule,
    ScheduledJob,
    ScheduledRun,
    ScheduleOptions,
    Times,
)
from services.access.quotas import NO_QUOTAS, Quotas, read_quotas_file
from services.api.backlog import Bounds
from services.api.calls import Calls
from services.api.new_jobs import NewJobs
from services.api.quotas import Creators, PodQuota, Submissions
from services.api.schedule_service import BACKFILL_MAX
from services.api.scheduled_jobs import ScheduledJobs
from services.api.server import make_finder, start
from services.api.v1.lockdown import Locks
from services.api.v1.specs import Specs
from services.storage.storage import Storage
from tests.present import require
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import LEAF, expect_refusal

Status = grpc.StatusCode
NS_PER_S = 10**9
NOON_NS = 1_795_694_400 * NS_PER_S
RUN = Run("scheduled-job/report-x", RunState.FAILED, NOON_NS, NOON_NS, NOON_NS + NS_PER_S, "job", "report-x", "why")
Config = Callable[..., job_pb2.JobConfig]


class KeptSchedules:
    """Implements ``Schedules``."""

    def __init__(self) -> None:
        self.kept: dict[str, Schedule] = {}
        self.jobs: dict[str, ScheduledJob] = {}
        self.calls: list[tuple[object, ...]] = []
        self.time_count = 3
        self.is_silent = False

    async def create(
        self, name: str, times: Times, options: ScheduleOptions, job: ScheduledJob, paused: bool, note: str
    ) -> None:
        if name in self.kept:
            raise AlreadyExists(f"schedule {name} exists")
        self.jobs[name] = job
        self.kept[name] = Schedule(
            name, times, job.name, job.pool_path, job.owner, paused, note, (NOON_NS,), (RUN,), options,
            Counts(3, 2, 1), NOON_NS, job.config, job.pool_id, job.creator,
        )  # fmt: skip

    async def find(self, is_wanted: Callable[[Schedule], bool], limit: int) -> list[Schedule]:
        return [replace(one, options=None) for one in self.kept.values() if is_wanted(one)][:limit]

    async def get(self, name: str, runs_max: int) -> Schedule:
        if self.is_silent:
            raise Unavailable("Temporal does not answer")
        if name not in self.kept:
            raise NotFound(f"schedule {name} not found")
        return self.kept[name]

    async def pause(self, name: str, note: str) -> None:
        self.calls.append(("pause", name, note))

    async def resume(self, name: str, note: str) -> None:
        self.calls.append(("resume", name, note))

    async def trigger(self, name: str, overlap: Overlap | None) -> None:
        self.calls.append(("trigger", name, overlap))

    async def count_times(self, name: str, start_s: int, end_s: int) -> int:
        return self.time_count

    async def backfill(self, name: str, start_s: int, end_s: int, overlap: Overlap) -> None:
        self.calls.append(("backfill", name, start_s, end_s, overlap))

    async def delete(self, name: str) -> None:
        self.calls.append(("delete", name))


@pytest.fixture
def kept() -> KeptSchedules:
    return KeptSchedules()


@pytest.fixture
async def address(storage: Storage, wakes: RecordedWakes, hosts: OneSandbox, kept: KeptSchedules) -> AsyncIterator[str]:
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", hosts, schedules=kept)
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


@pytest.fixture
def schedules(channel: grpc.aio.Channel) -> Any:
    return ScheduleServiceStub(channel)


@pytest.fixture
def wanted(config: Config) -> pb.CreateScheduleRequest:
    job = config(2)
    job.name, job.owningTeam = "report", "maps"
    times = pb.Times(crons=["0 6 * * 1-5"], time_zone="Europe/Berlin", jitter_s=30)
    return pb.CreateScheduleRequest(name="report", times=times, note="every morning", job_config=job)


async def test_a_schedule_is_kept_with_its_job(
    schedules: Any, kept: KeptSchedules, wanted: pb.CreateScheduleRequest
) -> None:
    """Absent options have their defaults, and the schedule is read as it was stored."""
    created = await schedules.CreateSchedule(wanted)
    shown = await schedules.GetSchedule(pb.GetScheduleRequest(name="report"))
    listed = await schedules.ListSchedules(pb.ListSchedulesRequest(pool_path="/eng/maps"))

    assert ["2026-11-26T12:00:00Z"] == created.next_times
    assert ScheduleOptions(Overlap.SKIP, 3_600) == kept.kept["report"].options
    assert ("report", LEAF, "/eng/maps", "maps") == (
        kept.jobs["report"].name, kept.jobs["report"].pool_id, kept.jobs["report"].pool_path, kept.jobs["report"].owner,
    )  # fmt: skip
    assert (wanted.times, wanted.job_config) == (shown.schedule.times, shown.job_config)
    assert (pb.OVERLAP_SKIP, 3, 2, 1) == (
        shown.schedule.overlap, shown.schedule.run_count, shown.schedule.skipped_count, shown.schedule.missed_count,
    )  # fmt: skip
    (run,) = shown.schedule.runs
    assert ("FAILED", "job", "why", "2026-11-26T12:00:01Z") == (run.state, run.job_id, run.reason, run.end_time)
    assert (["report"], False) == ([one.name for one in listed.schedules], listed.has_more)


async def test_a_schedule_that_was_made_is_no_error_though_it_cannot_be_read(
    schedules: Any, kept: KeptSchedules, wanted: pb.CreateScheduleRequest
) -> None:
    """The creation succeeds although the schedule cannot be read, since a repeated call would be refused."""
    kept.is_silent = True

    created = await schedules.CreateSchedule(wanted)

    assert ([], ["report"]) == (list(created.next_times), list(kept.kept))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "a/b"}, "schedule 'a/b': want a name"),
        ({"times": pb.Times()}, "schedule report: a schedule has no times"),
        ({"times": pb.Times(crons=["61 * * * *"])}, "cron expression '61 * * * *': minute '61': want 0 to 59"),
        ({"times": pb.Times(crons=["@daily"], time_zone="Mars/Base")}, "unknown time zone 'Mars/Base'"),
        ({"overlap": 77}, "unknown overlap policy 77, want one of SKIP, BUFFER_ONE"),
        ({"catch_up_s": 1}, "the catch-up window is 1 s"),
        ({"note": "x" * 401}, "the note has 401 characters"),
        ({"note": "\x1b[2J"}, "contains \\x1b"),
    ],
)
async def test_what_cannot_be_is_refused(
    schedules: Any, kept: KeptSchedules, wanted: pb.CreateScheduleRequest, change: dict[str, Any], text: str
) -> None:
    """The error names the object and the rule, and nothing is stored."""
    message: Message = wanted
    for name in change:
        message.ClearField(name)
    wanted.MergeFrom(pb.CreateScheduleRequest(**change))

    status, details = await expect_refusal(schedules.CreateSchedule(wanted))

    assert (Status.INVALID_ARGUMENT, {}) == (status, kept.kept)
    assert text in details


async def test_a_job_is_refused_with_the_words_of_its_creation(
    schedules: Any, jobs: Any, wanted: pb.CreateScheduleRequest
) -> None:
    """The error is the text of JobManager.Create."""
    wanted.job_config.defaultConfig.resource.gpuLimit = -1
    said = (await jobs.Create(job_pb2.CreateRequest(config=wanted.job_config))).error.invalidConfig.message

    assert "gpuLimit -1 is negative" in said
    assert (Status.INVALID_ARGUMENT, said) == await expect_refusal(schedules.CreateSchedule(wanted))


async def test_only_jobs_that_end_and_fit_are_scheduled(schedules: Any, wanted: pb.CreateScheduleRequest) -> None:
    """Services, jobs without a pool, and configurations above the limit of Temporal's histories are refused."""
    heavy, poolless = pb.CreateScheduleRequest(), pb.CreateScheduleRequest()
    heavy.CopyFrom(wanted)
    heavy.job_config.defaultConfig.command.value = "x" * CONFIG_BYTES_MAX
    poolless.CopyFrom(wanted)
    poolless.job_config.ClearField("respoolID")
    wanted.job_config.type = job_pb2.SERVICE

    kinds = await expect_refusal(schedules.CreateSchedule(wanted))
    assert (
        Status.INVALID_ARGUMENT,
        "the job is of the type SERVICE: a schedule creates jobs of the type BATCH, which end",
    ) == kinds
    assert "a schedule takes at most 262,144" in (await expect_refusal(schedules.CreateSchedule(heavy)))[1]
    assert Status.INVALID_ARGUMENT == (await expect_refusal(schedules.CreateSchedule(poolless)))[0]


async def test_a_name_is_taken_once(schedules: Any, wanted: pb.CreateScheduleRequest) -> None:
    """A repeated creation is refused, and an unknown name is not found."""
    await schedules.CreateSchedule(wanted)

    assert (Status.ALREADY_EXISTS, "schedule report exists") == await expect_refusal(schedules.CreateSchedule(wanted))
    unknown = await expect_refusal(schedules.GetSchedule(pb.GetScheduleRequest(name="nope")))
    assert (Status.NOT_FOUND, "schedule nope not found") == unknown


async def test_steering(schedules: Any, kept: KeptSchedules) -> None:
    """A backfill starts its runs one after the other by default."""
    await schedules.PauseSchedule(pb.PauseScheduleRequest(name="report", note="why"))
    await schedules.ResumeSchedule(pb.ResumeScheduleRequest(name="report"))
    await schedules.TriggerSchedule(pb.TriggerScheduleRequest(name="report"))
    await schedules.TriggerSchedule(pb.TriggerScheduleRequest(name="report", overlap=pb.OVERLAP_ALLOW_ALL))
    span: dict[str, Any] = {"start_time": "2026-01-31T00:00:00Z", "end_time": "2026-01-31T01:00:00+01:00"}
    answer = await schedules.BackfillSchedule(pb.BackfillScheduleRequest(name="report", **span))
    await schedules.DeleteSchedule(pb.DeleteScheduleRequest(name="report"))

    midnight_s = 1_769_817_600
    assert 3 == answer.time_count
    assert kept.calls == [
        ("pause", "report", "why"),
        ("resume", "report", ""),
        ("trigger", "report", None),
        ("trigger", "report", Overlap.ALLOW_ALL),
        ("backfill", "report", midnight_s, midnight_s, Overlap.BUFFER_ALL),
        ("delete", "report"),
    ]


@pytest.mark.parametrize(
    ("start_time", "end_time", "text"),
    [
        ("yesterday", "2026-01-31T00:00:00Z", "start_time 'yesterday': want a time in RFC 3339"),
        ("2026-01-31T00:00:00Z", "2026-01-30T00:00:00Z", "want a start before the end"),
        ("2026-01-31T00:00:00Z", "2996-01-31T00:00:00Z", "both past"),
        ("2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "over 2192 days, at most 366 are allowed"),
    ],
)
async def test_ranges_that_cannot_be_made_up_for(schedules: Any, start_time: str, end_time: str, text: str) -> None:
    """The range of a backfill has an end in the past, and at most a year."""
    request = pb.BackfillScheduleRequest(name="report", start_time=start_time, end_time=end_time)

    assert text in (await expect_refusal(schedules.BackfillSchedule(request)))[1]


async def test_a_backfill_is_bounded(schedules: Any, kept: KeptSchedules) -> None:
    """A range with too many times starts no runs."""
    kept.time_count = BACKFILL_MAX + 1
    span: dict[str, Any] = {"start_time": "2026-01-31T00:00:00Z", "end_time": "2026-02-01T00:00:00Z"}

    reported = await expect_refusal(schedules.BackfillSchedule(pb.BackfillScheduleRequest(name="report", **span)))

    assert "schedule report has 1000 or more times in the range, a backfill takes at most 999" in reported[1]
    assert [] == kept.calls


# -- jobs created by workers


Creator = Callable[..., ScheduledJobs]


@pytest.fixture
async def creator(storage: Storage, hosts: OneSandbox, calls: Calls) -> Creator:
    def make_jobs(bounds: Bounds | None = None, quotas: Quotas = NO_QUOTAS) -> ScheduledJobs:
        creators = Creators(quotas, storage.creators, calls)
        quota = PodQuota(quotas, storage.search, storage.jobs, creators, calls)
        new_jobs = NewJobs(storage.jobs, Specs(storage.pools, calls, hosts), calls, quota)
        locks, submissions = Locks(storage.lockdowns, calls), Submissions(quotas)
        return ScheduledJobs(
            storage.jobs,
            new_jobs,
            locks,
            storage.search,
            bounds or Bounds(),
            calls,
            submissions=submissions,
            start_of=start_of,
        )

    return make_jobs


def start_of(job: JobRecord) -> JobStart:
    return JobStart(job.job_id, job.name, "queue", job.respool_id, "", "")


@pytest.fixture
def run(config: Config) -> ScheduledRun:
    job = config(2)
    job.name = "report"
    text = base64.b64encode(job.SerializeToString()).decode()
    return ScheduledRun("report", "5d8a4a1e-6a0e-4d35-9d43-3e4f3a0a9a10", text, NOON_NS)


async def test_a_repeated_run_creates_one_job(creator: Creator, run: ScheduledRun, storage: Storage) -> None:
    """The job's name has the time, and its id follows from the run."""
    jobs = creator()

    first = await asyncio.to_thread(jobs.create, run)
    second = await asyncio.to_thread(jobs.create, run)

    assert first == second == JobStart(job_id_of(run), "report-20261126T120000Z", "queue", LEAF, "", "")
    assert [first.job_id] == list(storage.jobs.active_ids())


async def test_a_job_that_is_refused_later_says_why(creator: Creator, run: ScheduledRun, storage: Storage) -> None:
    """The error is the creation's, even if the pool existed when the schedule was created."""
    storage.pools.delete(LEAF)

    with pytest.raises(InvalidArgument, match="resource pool not found"):
        await asyncio.to_thread(creator().create, run)


async def test_jobs_wait_as_calls_of_the_api_do(creator: Creator, run: ScheduledRun, storage: Storage) -> None:
    """The creation fails while writes are locked down or too many jobs are active; a stored job is found
    nevertheless."""
    storage.lockdowns.set("Write", True)
    with pytest.raises(Unavailable, match="locked down"):
        await asyncio.to_thread(creator().create, run)
    storage.lockdowns.set("Write", False)

    await asyncio.to_thread(creator().create, run)
    full = creator(Bounds(jobs_active=1))
    with pytest.raises(ResourceExhausted, match="the bound is 1"):
        await asyncio.to_thread(full.create, replace(run, scheduled_ns=run.scheduled_ns + NS_PER_S))
    assert job_id_of(run) == (await asyncio.to_thread(full.create, run)).job_id


async def test_jobs_of_a_schedule_belong_to_its_creator(creator: Creator, run: ScheduledRun, storage: Storage) -> None:
    """A run beyond the creator's quota of active pods is refused at once; another creator has pods left."""
    jobs = creator(quotas=Quotas(active_pods=3))
    later = replace(run, scheduled_ns=NOON_NS + NS_PER_S)
    first = await asyncio.to_thread(jobs.create, replace(run, creator="ann"))

    text = "user ann has 2 active pods, and 2 more would exceed the quota of 3"
    with pytest.raises(ResourceExhausted, match=text) as caught:
        await asyncio.to_thread(jobs.create, replace(later, creator="ann"))
    await asyncio.to_thread(jobs.create, replace(later, creator="bob"))

    assert caught.value.retry_after_s is None
    assert "ann" == require(storage.jobs.get(JobId(first.job_id))).creator


async def test_groups_of_the_creator_count_in_runs(
    creator: Creator, run: ScheduledRun, storage: Storage, tmp_path: Path
) -> None:
    """The groups are those that the creator had when it last created a job or a schedule, at any process."""
    storage.creators.put("ann", ["user:ann", "group:maps", "*"])
    (tmp_path / "quotas.toml").write_text('[[quota]]\nsubjects = ["group:maps"]\nactive_pods = 4')
    jobs = creator(quotas=Quotas(active_pods=1, file=read_quotas_file(str(tmp_path / "quotas.toml"))))
    mine = replace(run, creator="ann")
    await asyncio.to_thread(jobs.create, mine)
    await asyncio.to_thread(jobs.create, replace(mine, scheduled_ns=NOON_NS + NS_PER_S))

    with pytest.raises(ResourceExhausted, match="exceed the quota of 4; the rule is group:maps"):
        await asyncio.to_thread(jobs.create, replace(mine, scheduled_ns=NOON_NS + 2 * NS_PER_S))
    with pytest.raises(ResourceExhausted, match="the rule is PELOTON_QUOTA_ACTIVE_PODS"):
        await asyncio.to_thread(jobs.create, replace(run, creator="bob", scheduled_ns=NOON_NS + 3 * NS_PER_S))


async def test_jobs_of_schedules_count_as_submissions(creator: Creator, run: ScheduledRun) -> None:
    """A run beyond the creator's submissions of the minute is tried again later; a repeated run counts once."""
    jobs = creator(quotas=Quotas(submissions_per_minute=1))
    mine = replace(run, creator="ann")
    await asyncio.to_thread(jobs.create, mine)
    await asyncio.to_thread(jobs.create, mine)

    with pytest.raises(ResourceExhausted, match="user ann has created 1 jobs within a minute") as caught:
        await asyncio.to_thread(jobs.create, replace(mine, scheduled_ns=NOON_NS + NS_PER_S))

    assert require(caught.value.retry_after_s) > 0


async def test_a_schedule_follows_its_pool(
    schedules: Any, kept: KeptSchedules, wanted: pb.CreateScheduleRequest, storage: Storage, calls: Calls
) -> None:
    """A renamed pool changes the path by which its schedule is shown, listed and authorized."""
    await schedules.CreateSchedule(wanted)
    config = storage.pools.configs()[LEAF]
    config.name = "atlas"
    storage.pools.put(LEAF, config)

    shown = await schedules.GetSchedule(pb.GetScheduleRequest(name="report"))
    old = await schedules.ListSchedules(pb.ListSchedulesRequest(pool_path="/eng/maps"))
    new = await schedules.ListSchedules(pb.ListSchedulesRequest(pool_path="/eng/atlas"))
    checked = await make_finder(storage, calls, kept).paths_of([(Find.SCHEDULE, "report")])

    assert ("/eng/atlas", ("/eng/atlas",)) == (shown.schedule.pool_path, checked)
    assert ([], ["report"]) == ([one.name for one in old.schedules], [one.name for one in new.schedules])


async def test_a_schedule_without_its_pool_is_the_cluster_s(
    schedules: Any, kept: KeptSchedules, wanted: pb.CreateScheduleRequest, storage: Storage, calls: Calls
) -> None:
    """A role on the cluster may steer it; a schedule without the id of its pool has the path that was stored."""
    await schedules.CreateSchedule(wanted)
    storage.pools.delete(LEAF)
    kept.kept["old"] = replace(kept.kept["report"], name="old", pool_id="")

    finder = make_finder(storage, calls, kept)

    assert ("/",) == await finder.paths_of([(Find.SCHEDULE, "report")])
    assert ("/eng/maps",) == await finder.paths_of([(Find.SCHEDULE, "old")])
