"""A job's live progress: a bar with counts by state on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.errors import Failed
from cli.job.read import get_job_or_summary
from cli.output import STATE_STYLES
from cli.times import seconds_between
from cli.watching import Retrier, WatchPace, display_on, print_line
from cli.wire import v0
from peloton.errors import NotFound
from peloton.model.job import JobState

if TYPE_CHECKING:
    from rich.console import Console

    from peloton.client import Client
    from peloton.client.operations import Progress


def text_of(progress: Progress) -> str:
    counts = "  ".join(f"{state} {count}" for state, count in progress.counts.items())
    return f"{progress.state} {progress.ended_count}/{progress.total_count}" + (f"  {counts}" if counts else "")


def json_of(progress: Progress) -> str:
    counts = {"total": progress.total_count, "ended": progress.ended_count, "tasks": progress.counts}
    return json.dumps({"state": str(progress.state), **counts})


def watch_job(
    client: Client, job_id: str, console: Console, pace: WatchPace | None = None, is_json: bool = False
) -> JobState:
    """Show the job's progress on ``console`` until it has ended, then a summary; return its final state.

    ``is_json``: the progress is lines of JSON on standard output, and ``console`` has the rest.

    Raises Failed when the job is unknown, or when the API stays unavailable for longer than the pace allows.
    """
    pace = pace or WatchPace()
    retrier = Retrier(client, pace, f"job {job_id}", f"peloton job watch {job_id}")
    with display_on(
        console,
        is_json,
        json_of=json_of,
        lines_of=lambda progress: {job_id: [text_of(progress)]},
        live=lambda: progress_bar(console, job_id),
    ) as display:
        while True:
            progress = retrier.ask(display.say, lambda: read_progress(client, job_id))
            display.show(progress)
            if progress.has_ended:
                break
            pace.sleep(pace.interval_s)
        job = retrier.ask(display.say, lambda: read_job_or_summary(client, job_id))
    for line in summary_lines(job, progress):
        print_line(console, line)
    return progress.state


def read_progress(client: Client, job_id: str) -> Progress:
    try:
        return client.progress(job_id)
    except NotFound as error:
        raise Failed(f"Unable to get job {job_id}: {error.metadata['problem']}".rstrip(": ")) from error


def read_job_or_summary(client: Client, job_id: str) -> v0.job.JobInfo:
    response = get_job_or_summary(client, job_id)
    if not response.HasField("jobInfo"):
        problem = response.error.notFound.message or response.error.getRuntimeFail.message
        raise Failed(f"Unable to get job {job_id}: {problem}".rstrip(": "))
    return response.jobInfo


def summary_lines(job: v0.job.JobInfo, progress: Progress) -> list[str]:
    """Return lines on the result of the job, and where to read more when it did not succeed."""
    counts = ", ".join(f"{count} {state}" for state, count in progress.counts.items()) or "no tasks"
    name = f" ({job.config.name})" if job.config.name else ""
    seconds = seconds_between(job.runtime.creationTime, job.runtime.completionTime)
    duration = "" if seconds is None else f", after {seconds:.1f} s"
    lines = [f"Job {job.id.value}{name} {progress.state}: {counts}{duration}"]
    if progress.counts.get("FAILED"):
        lines.append(f"See: peloton task query {job.id.value} -s FAILED")
    return lines


@contextmanager
def progress_bar(console: Console, job_id: str) -> Iterator[Callable[[Progress], None]]:
    """Draw one bar that fills as tasks end, with the job's state before it and the counts after it."""
    from rich import progress as rich_progress

    bar = rich_progress.Progress(
        rich_progress.SpinnerColumn(finished_text=" "),
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[counts]}"),
        rich_progress.TimeElapsedColumn(),
        console=console,
    )
    row = bar.add_task(f"job {job_id[:8]}", total=None, counts="")

    def show(progress: Progress) -> None:
        styled = (f"[{STATE_STYLES.get(state, 'yellow')}]{state} {n}[/]" for state, n in progress.counts.items())
        total, ended = progress.total_count or None, progress.ended_count
        bar.update(row, description=str(progress.state), total=total, completed=ended, counts="  ".join(styled))

    with bar:
        yield show
