"""``peloton job schedule``: times at which jobs are created."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.command import Group, verb_commands
from cli.config_file import load_config
from cli.output import Table, print_for_programs, print_list, print_outcome, print_table, rows_wanted, say_more
from cli.params import CONFIG_FILE, COUNT_FROM_1, DURATION, POOL_PATH, SINCE, limit_option
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0

LIST_MAX = 1_000
NEXT_SHOWN = 3
TABLE: Table[v0.schedule.Schedule] = Table(
    ("Name", lambda one: one.name),
    ("Pool", lambda one: one.pool_path),
    ("Times", lambda one: times_text(one.times)),
    ("State", lambda one: state_of(one)),
    ("Next", lambda one: "" if one.paused or not one.next_times else seconds_text(one.next_times[0])),
    ("Last run", lambda one: last_run_of(one).state),
    ("Last job", lambda one: last_run_of(one).job_id),
    ("Note", lambda one: one.note),
    whole=["Name", "State", "Last run"],
    spare=["Note", "Last job", "Pool"],
    nothing="No schedules",
    name=lambda one: one.name,
)
RUNS: Table[v0.schedule.Run] = Table(
    ("Time", lambda run: seconds_text(run.scheduled_time)),
    ("State", lambda run: run.state),
    ("Job", lambda run: run.job_id),
    ("Ended", lambda run: seconds_text(run.end_time)),
    ("Why", lambda run: run.reason),
    whole=["Time", "State", "Job"],
    spare=["Ended"],
    nothing="No runs, or none that Temporal still keeps",
)
OVERLAPS = ("skip", "buffer-one", "buffer-all", "cancel-other", "allow-all")

NAME = click.argument("name", metavar="SCHEDULE")
NOTE = click.option("--note", default="", metavar="TEXT", help="A reason, shown with the schedule.")


def overlap_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--overlap",
        type=click.Choice(OVERLAPS),
        help=f"The policy while the job of an earlier run has not ended; if absent {default}.",
    )


@click.group(cls=Group)
def schedule() -> None:
    """Create jobs on a schedule: by cron expressions, or at intervals.

    Each run of a schedule creates one job, whose name ends with the time of the run. The run ends when the job has
    ended. Temporal stores the schedules.
    """


@schedule.command()
@NAME
@click.argument("respool", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@click.option(
    "--cron",
    "crons",
    multiple=True,
    metavar="CRON",
    help='An expression such as "0 6 * * 1-5" or @daily. Repeatable.',
)
@click.option(
    "--time-zone",
    default="",
    metavar="ZONE",
    help="The time zone of --cron, such as Europe/Berlin; UTC if absent.",
)
@click.option("--every", type=DURATION, help="An interval, counted from the beginning of 1970.")
@click.option("--offset", type=DURATION, help="The delay of runs after the beginning of each interval.")
@click.option("--jitter", type=DURATION, help="Delay each run by a random time up to this.")
@overlap_option("skip: its time is left out")
@click.option("--catch-up", type=DURATION, help="Run missed times that are at most this long ago; 1h if absent.")
@click.option("--pause-on-failure", is_flag=True, help="Pause the schedule when a job fails or cannot be created.")
@click.option("--paused", is_flag=True, help="Create the schedule paused.")
@NOTE
@pass_settings
def create(settings: Settings, /, name: str, respool: str, config: Path, **options: Any) -> None:
    """Create the schedule SCHEDULE of jobs in the pool RESPOOL from the YAML file CONFIG.

    \b
    Examples:
      peloton job schedule create report /tutorial examples/tutorial/hello.yaml --cron "0 6 * * 1-5"
      peloton job schedule create zoned /tutorial examples/tutorial/hello.yaml --cron @daily --time-zone Europe/Berlin
      peloton job schedule create sweep /tutorial examples/tutorial/hello.yaml --every 6h --overlap buffer-one

    A day must match both the day of the month and the day of the week of a cron expression: "0 9 1 * 5" is each first
    that is a Friday. Repeat --cron to have either.

    The file is checked as `peloton job create` does, now and again at each run. It is a batch job without secrets.
    """
    job_config = load_config(config, v0.job.JobConfig)
    job_config.respoolID.value = pool_id_at(settings.client, respool)
    times = v0.schedule.Times(
        crons=options["crons"],
        interval_s=seconds_of(options, "every"),
        offset_s=seconds_of(options, "offset"),
        time_zone=options["time_zone"],
        jitter_s=seconds_of(options, "jitter"),
    )
    request = v0.schedule.CreateScheduleRequest(
        name=name,
        times=times,
        overlap=overlap_number(options["overlap"]),
        catch_up_s=seconds_of(options, "catch_up"),
        pauses_on_failure=options["pause_on_failure"],
        paused=options["paused"],
        note=options["note"],
        job_config=job_config,
    )
    answer = settings.client.schedules.CreateSchedule(request)
    following = f"next at {seconds_text(answer.next_times[0])}" if answer.next_times else "no next time is known"
    state = "it is paused" if options["paused"] else following
    print_outcome(settings, answer, f"Schedule {name} created: {state}", [name])


def seconds_of(options: dict[str, Any], name: str) -> int:
    """Return whole seconds, 0 for an option that was not given. Raises UsageError."""
    seconds = options[name]
    if seconds and seconds != int(seconds):
        raise click.UsageError(f"--{name.replace('_', '-')}: want whole seconds, got {seconds:g}")
    return int(seconds or 0)


def overlap_number(word: str | None) -> v0.schedule.Overlap.ValueType:
    return v0.schedule.Overlap.Value(f"OVERLAP_{(word or 'default').replace('-', '_').upper()}")


@schedule.command("ls")
@click.option("--respool", "-r", type=POOL_PATH, help="Schedules of jobs in this pool.")
@limit_option
@pass_settings
def list_schedules(settings: Settings, respool: str | None, limit: int | None) -> None:
    """List schedules: their times, the next one, and the result of the last run. Also `schedule list`.

    \b
    Examples:
      peloton job schedule ls
      peloton job schedule ls -r /tutorial -o wide
    """
    wanted = min(rows_wanted(settings, limit) or LIST_MAX, LIST_MAX)
    request = v0.schedule.ListSchedulesRequest(pool_path=respool or "", limit=wanted)
    answer = settings.client.schedules.ListSchedules(request)
    print_list(settings, answer, TABLE, answer.schedules)
    if answer.has_more:
        say_more(len(answer.schedules), None, "-r POOL shows those of a pool")


def state_of(one: v0.schedule.Schedule) -> str:
    return "PAUSED" if one.paused else "ACTIVE"


def last_run_of(one: v0.schedule.Schedule) -> v0.schedule.Run:
    return one.runs[0] if one.runs else v0.schedule.Run()


def times_text(times: v0.schedule.Times) -> str:
    """Return when runs start, on one line."""
    zone = f" ({times.time_zone})" if times.time_zone else ""
    parts = [f"{', '.join(times.crons)}{zone}"] if times.crons else []
    if times.interval_s:
        offset = f" + {duration_text(times.offset_s)}" if times.offset_s else ""
        parts.append(f"every {duration_text(times.interval_s)}{offset}")
    jitter = f", up to {duration_text(times.jitter_s)} later" if times.jitter_s else ""
    return f"{' and '.join(parts)}{jitter}"


def duration_text(seconds: int) -> str:
    """Return a duration as options take it: 1h30m."""
    units = (("h", 3600), ("m", 60), ("s", 1))
    found = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count}{unit}")
    return "".join(found) or "0s"


@schedule.command()
@NAME
@click.option("--runs", type=COUNT_FROM_1, help="How many of the last runs; 10 if absent, at most 100.")
@pass_settings
def show(settings: Settings, name: str, runs: int | None) -> None:
    """Show a schedule: its options, its next times, and its last runs with their jobs.

    \b
    Examples:
      peloton job schedule show report
      peloton --json job schedule show report
    """
    request = v0.schedule.GetScheduleRequest(name=name, runs_limit=runs or 0)
    answer = settings.client.schedules.GetSchedule(request)
    if print_for_programs(settings, answer, [name]):
        return
    for label, text in facts_of(answer.schedule):
        if text:
            echo(f"{label + ':':<12}{text}")
    echo("")
    print_table(RUNS, answer.schedule.runs)


def facts_of(one: v0.schedule.Schedule) -> list[tuple[str, str]]:
    overlap = v0.schedule.Overlap.Name(one.overlap).removeprefix("OVERLAP_").lower().replace("_", "-")
    stops = ", paused when a run fails" if one.pauses_on_failure else ""
    return [
        ("Schedule", one.name),
        ("Jobs", f"{one.job_name}-TIME in {one.pool_path}"),
        ("Times", times_text(one.times)),
        ("Overlap", f"{overlap}, catch-up within {duration_text(one.catch_up_s)}{stops}"),
        ("State", state_of(one)),
        ("Creator", one.creator),
        ("Note", one.note),
        ("Next", ", ".join(map(seconds_text, one.next_times[:NEXT_SHOWN]))),
        ("Runs", f"{one.run_count} started, {one.skipped_count} times skipped, {one.missed_count} missed"),
    ]


STEERING = {
    "pause": "Pause a schedule: no run starts by itself. A job under way continues; `schedule trigger` still works.",
    "resume": "Resume a schedule. Times that passed meanwhile are left out; `schedule backfill` makes up for them.",
}


@verb_commands(STEERING, 'job schedule {verb} report --note "the source moves"', schedule)
@NAME
@NOTE
@pass_settings
def steer(settings: Settings, verb: str, name: str, note: str) -> None:
    method = f"{verb.capitalize()}Schedule"
    answer = getattr(settings.client.schedules, method)(getattr(v0.schedule, f"{method}Request")(name=name, note=note))
    print_outcome(settings, answer, f"Schedule {name} is {'paused' if verb == 'pause' else 'active'}", [name])


@schedule.command()
@NAME
@overlap_option("as the schedule has it")
@pass_settings
def trigger(settings: Settings, name: str, overlap: str | None) -> None:
    """Start a run now, also of a schedule that is paused.

    \b
    Examples:
      peloton job schedule trigger report
      peloton job schedule trigger report --overlap allow-all
    """
    request = v0.schedule.TriggerScheduleRequest(name=name, overlap=overlap_number(overlap))
    answer = settings.client.schedules.TriggerSchedule(request)
    print_outcome(settings, answer, f"Schedule {name} triggered: peloton job schedule show {name}", [name])


@schedule.command()
@NAME
@click.option(
    "--from",
    "start",
    type=SINCE,
    required=True,
    help="The first time, or a duration before now such as 168h.",
)
@click.option("--to", "end", type=SINCE, help="The last time, or a duration before now; now if absent.")
@overlap_option("buffer-all: one after the other")
@pass_settings
def backfill(settings: Settings, name: str, start: datetime, end: datetime | None, overlap: str | None) -> None:
    """Start the runs of times that have passed, 1,000 at most. A time whose job was created already is skipped.

    \b
    Examples:
      peloton job schedule backfill report --from 48h
      peloton job schedule backfill report --from 2026-01-31 --to 2026-02-02T12:00:00Z --overlap allow-all
    """
    last = end or datetime.now(UTC)
    request = v0.schedule.BackfillScheduleRequest(
        name=name,
        start_time=start.isoformat(timespec="seconds"),
        end_time=last.isoformat(timespec="seconds"),
        overlap=overlap_number(overlap),
    )
    answer = settings.client.schedules.BackfillSchedule(request)
    count = f"{answer.time_count} time{'' if answer.time_count == 1 else 's'}"
    print_outcome(settings, answer, f"Schedule {name}: {count} to make up for", [name])


@schedule.command()
@NAME
@pass_settings
def delete(settings: Settings, name: str) -> None:
    """Delete a schedule. Its jobs stay, and running ones continue.

    \b
    Example:
      peloton job schedule delete report
    """
    answer = settings.client.schedules.DeleteSchedule(v0.schedule.DeleteScheduleRequest(name=name))
    print_outcome(settings, answer, f"Schedule {name} deleted; its jobs continue", [name])


schedule.add_command(list_schedules, "list")
