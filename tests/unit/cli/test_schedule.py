"""``peloton job schedule``: requests, printed texts and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import Result

from cli.job.schedule import duration_text, times_text
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.schedule import schedule_pb2 as pb
from tests.unit.cli.fake_api import FakeApi

Run = Callable[..., Result]
JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
POOL = "11111111-1111-1111-1111-111111111111"
RUN = pb.Run(
    scheduled_time="2026-11-26T05:00:00Z",
    start_time="2026-11-26T05:00:01Z",
    end_time="2026-11-26T05:10:00Z",
    state="FAILED",
    job_id=JOB,
    job_name="report-20261126T050000Z",
    reason="its job has FAILED",
)
REPORT = pb.Schedule(
    name="report",
    times=pb.Times(crons=["0 6 * * 1-5"], time_zone="Europe/Berlin", jitter_s=30),
    pool_path="/eng",
    job_name="report",
    next_times=["2026-11-27T05:00:00Z", "2026-11-30T05:00:00Z"],
    runs=[RUN],
    overlap=pb.OVERLAP_BUFFER_ONE,
    catch_up_s=5_400,
    pauses_on_failure=True,
    run_count=7,
    skipped_count=2,
)
SWEEP = pb.Schedule(
    name="sweep", times=pb.Times(interval_s=21_600, offset_s=60), pool_path="/eng", paused=True, note="why"
)


def words_of(line: str) -> str:
    return " ".join(line.split())


@pytest.fixture
def file(tmp_path: Path, api: FakeApi) -> Path:
    api.answers["respools.LookupResourcePoolID"] = [
        respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value=POOL))
    ]
    path = tmp_path / "job.yaml"
    path.write_text("name: report\ninstanceCount: 2\n")
    return path


def test_create_sends_all_options(api: FakeApi, run: Run, file: Path) -> None:
    """The request has durations in seconds, and the overlap policy as its number."""
    api.answers["schedules.CreateSchedule"] = [pb.CreateScheduleResponse(next_times=["2026-11-27T05:00:00Z"])]

    words = ["job", "schedule", "create", "report", "/eng", file, "--cron", "0 6 * * 1-5", "--cron", "@daily"]
    words += ["--time-zone", "Europe/Berlin", "--every", "6h", "--offset", "1m", "--jitter", "30s"]
    words += ["--overlap", "buffer-one", "--catch-up", "1h30m", "--pause-on-failure", "--note", "why"]
    result = run(*words)

    assert (0, "Schedule report created: next at 2026-11-27T05:00:00Z\n") == (result.exit_code, result.stdout)
    config = job_pb2.JobConfig(name="report", instanceCount=2, respoolID=peloton_pb2.ResourcePoolID(value=POOL))
    times = pb.Times(
        crons=["0 6 * * 1-5", "@daily"], time_zone="Europe/Berlin", interval_s=21_600, offset_s=60, jitter_s=30
    )
    wanted = pb.CreateScheduleRequest(
        name="report", times=times, overlap=pb.OVERLAP_BUFFER_ONE, catch_up_s=5_400, pauses_on_failure=True,
        note="why", job_config=config,
    )  # fmt: skip
    assert [wanted] == api.requests("schedules.CreateSchedule")


def test_a_schedule_may_begin_paused(api: FakeApi, run: Run, file: Path) -> None:
    """The output says that it is paused instead of a next time."""
    api.answers["schedules.CreateSchedule"] = [pb.CreateScheduleResponse(next_times=["2026-11-27T05:00:00Z"])]

    result = run("job", "schedule", "create", "report", "/eng", file, "--every", "1h", "--paused")

    assert "Schedule report created: it is paused\n" == result.stdout


@pytest.mark.parametrize("option", ["--overlap never", "--jitter 500ms", "--every soon"])
def test_options_that_cannot_be_send_nothing(api: FakeApi, run: Run, file: Path, option: str) -> None:
    """Unknown policies, fractions of seconds and malformed durations are wrong usage."""
    result = run(f"job schedule create report /eng {file} {option}")

    assert (2, []) == (result.exit_code, api.requests("schedules.CreateSchedule"))


def test_a_refusal_is_printed(api: FakeApi, run: Run, file: Path) -> None:
    """The error is the API's text."""
    text = "schedule report exists: choose another name, or delete it first"
    api.answers["schedules.CreateSchedule"] = [(grpc.StatusCode.ALREADY_EXISTS, text)]

    result = run(f"job schedule create report /eng {file} --every 1h")

    assert 1 == result.exit_code
    assert text in result.stderr


@pytest.mark.parametrize("verb", ["ls", "list"])
def test_list_shows_times_and_the_last_run(api: FakeApi, run: Run, verb: str) -> None:
    """A paused schedule has no next time."""
    api.answers["schedules.ListSchedules"] = [pb.ListSchedulesResponse(schedules=[REPORT, SWEEP])]

    header, report, sweep = map(words_of, run(f"job schedule {verb} -r /eng -n 20").stdout.splitlines())

    assert "Name Pool Times State Next Last run Last job Note" == header
    times = "0 6 * * 1-5 (Europe/Berlin), up to 30s later"
    assert f"report /eng {times} ACTIVE 2026-11-27T05:00:00Z FAILED {JOB}" == report
    assert "sweep /eng every 6h + 1m PAUSED why" == sweep
    assert [pb.ListSchedulesRequest(pool_path="/eng", limit=20)] == api.requests("schedules.ListSchedules")
    assert ["report", "sweep"] == run(f"-o name job schedule {verb}").stdout.split()


def test_show_has_runs_with_their_jobs(api: FakeApi, run: Run) -> None:
    """Options, next times and counts precede the runs."""
    api.answers["schedules.GetSchedule"] = [pb.GetScheduleResponse(schedule=REPORT)]

    text = run("job schedule show report --runs 5").stdout

    assert "Jobs:       report-TIME in /eng" in text
    assert "Overlap:    buffer-one, catch-up within 1h30m, paused when a run fails" in text
    assert "Next:       2026-11-27T05:00:00Z, 2026-11-30T05:00:00Z" in text
    assert "Runs:       7 started, 2 times skipped, 0 missed" in text
    last = words_of(text.splitlines()[-1])
    assert f"2026-11-26T05:00:00Z FAILED {JOB} 2026-11-26T05:10:00Z its job has FAILED" == last
    assert [pb.GetScheduleRequest(name="report", runs_limit=5)] == api.requests("schedules.GetSchedule")
    assert "report" == json.loads(run("--json job schedule show report").stdout)["schedule"]["name"]


@pytest.mark.parametrize(
    ("line", "method", "wanted", "said"),
    [
        ("pause report --note why", "Pause", pb.PauseScheduleRequest(name="report", note="why"), "report is paused"),
        ("resume report", "Resume", pb.ResumeScheduleRequest(name="report"), "report is active"),
        (
            "trigger report --overlap allow-all",
            "Trigger",
            pb.TriggerScheduleRequest(name="report", overlap=pb.OVERLAP_ALLOW_ALL),
            "report triggered",
        ),
        ("delete report", "Delete", pb.DeleteScheduleRequest(name="report"), "report deleted; its jobs continue"),
    ],
)
def test_steering(api: FakeApi, run: Run, line: str, method: str, wanted: Any, said: str) -> None:
    """Each command sends its request and prints the result."""
    api.answers[f"schedules.{method}Schedule"] = [getattr(pb, f"{method}ScheduleResponse")()]

    result = run(f"job schedule {line}")

    assert (0, [wanted]) == (result.exit_code, api.requests(f"schedules.{method}Schedule"))
    assert said in result.stdout


def test_backfill_sends_times(api: FakeApi, run: Run) -> None:
    """A time without a zone is in UTC; `--to` defaults to now."""
    api.answers["schedules.BackfillSchedule"] = [pb.BackfillScheduleResponse(time_count=3)]

    text = run("job schedule backfill report --from 2026-01-31 --to 2026-02-02T12:00:00+01:00 --overlap skip").stdout
    run("job schedule backfill report --from 24h")

    assert "Schedule report: 3 times to make up for\n" == text
    first, second = api.requests("schedules.BackfillSchedule")
    assert ("2026-01-31T00:00:00+00:00", "2026-02-02T12:00:00+01:00") == (first.start_time, first.end_time)
    assert (pb.OVERLAP_SKIP, pb.OVERLAP_DEFAULT) == (first.overlap, second.overlap)
    assert second.start_time < second.end_time
    assert 2 == run("job schedule backfill report").exit_code


def test_texts_of_times() -> None:
    """Durations are printed in the syntax of options."""
    assert "1h30m" == duration_text(5_400)
    assert ("0s", "48h", "45s") == (duration_text(0), duration_text(172_800), duration_text(45))
    both = pb.Times(crons=["@daily", "0 6 * * *"], interval_s=60)
    assert "@daily, 0 6 * * * and every 1m" == times_text(both)
