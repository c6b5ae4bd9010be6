"""A job's live progress: a bar with counts by state on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from cli.errors import Failed
from cli.output import STATE_STYLES
from cli.times import seconds_between
from cli.wire import v0
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.pod import TERMINAL, PodState

if TYPE_CHECKING:
    import grpc
    from rich.console import Console

    from peloton.api.client import Client

AWAY_CODES = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})


@dataclass(frozen=True, slots=True)
class WatchPace:
    """How often to ask, and for how long to go on asking an API that is away."""

    interval_s: float = 0.5
    retry_s_max: float = 5.0  # the wait doubles from interval_s up to this
    away_s_max: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Progress:
    """A job as last seen. ``counts`` are tasks by state, without zeros, in the order of a task's life."""

    state: JobState = JobState.UNKNOWN
    total_count: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def ended_count(self) -> int:
        return sum(count for state, count in self.counts.items() if state in TERMINAL)

    @property
    def text(self) -> str:
        counts = "  ".join(f"{state} {count}" for state, count in self.counts.items())
        return f"{self.state} {self.ended_count}/{self.total_count}" + (f"  {counts}" if counts else "")


class Display(Protocol):
    def say(self, text: str) -> None: ...


class ProgressDisplay(Display, Protocol):
    def show(self, progress: Progress) -> None: ...


def watch_job(
    client: Client, job_id: str, console: Console, pace: WatchPace | None = None, is_json: bool = False
) -> JobState:
    """Shows the job's progress on ``console`` until it has ended, then a summary; returns the state that it ended in.
    ``is_json``: the progress is lines of JSON on standard output, and ``console`` has the rest.

    Raises Failed when the job is unknown, or when the API stays away for longer than the pace allows.
    """
    pace = pace or WatchPace()
    watcher = Watcher(client, job_id, pace)
    with display_on(console, job_id, is_json) as display:
        while True:
            progress = watcher.ask(display, watcher.read_progress)
            display.show(progress)
            if progress.state in JOB_TERMINAL:
                break
            pace.sleep(pace.interval_s)
        job = watcher.ask(display, watcher.read_job)
    for line in summary_lines(job, progress):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return progress.state


Answer = TypeVar("Answer")


@dataclass
class Patience:
    """Asks, and asks again while the API is away. ``subject`` and ``later`` are for those who read what it says."""

    client: Client
    pace: WatchPace
    subject: str
    later: str  # the command that watches again

    def ask(self, display: Display, call: Callable[[], Answer]) -> Answer:
        import grpc

        wait_s = self.pace.interval_s
        away_since: float | None = None
        while True:
            try:
                answer = call()
            except grpc.RpcError as error:
                now = self.pace.clock()
                away_since = now if away_since is None else away_since
                self.refuse_to_wait(error, now - away_since)  # type: ignore[arg-type]
                if now == away_since:
                    kind = self.subject.partition(" ")[0]
                    display.say(f"{self.client.last_address} does not answer; the {kind} goes on, asking again ...")
            else:
                if away_since is not None:
                    display.say(f"{self.client.last_address} answers again")
                return answer
            self.pace.sleep(wait_s)
            wait_s = min(2 * wait_s, self.pace.retry_s_max)

    def refuse_to_wait(self, error: grpc.Call, away_s: float) -> None:
        code = error.code().name
        if code not in AWAY_CODES:
            raise Failed(f"cannot watch {self.subject}: {error.details()} ({code})")
        if away_s > self.pace.away_s_max:
            raise Failed(
                f"{self.client.last_address} has not answered for {away_s:.0f} s ({code}): gave up watching; "
                f"the {self.subject.partition(' ')[0]} is not affected, see `{self.later}` later"
            )


class Watcher(Patience):
    """Asks for one job."""

    def __init__(self, client: Client, job_id: str, pace: WatchPace, command: str = "peloton job watch") -> None:
        super().__init__(client, pace, f"job {job_id}", f"{command} {job_id}")
        self.job_id = job_id

    def read_progress(self) -> Progress:
        """The short form if the API has it, else the long one."""
        import grpc

        try:
            cache = self.client.jobs.GetCache(v0.job.GetCacheRequest(id=v0.peloton.JobID(value=self.job_id)))
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
                raise
            job = self.read_job()
            return progress_of(job.config, job.runtime)
        return progress_of(cache.config, cache.runtime)

    def read_job(self) -> v0.job.JobInfo:
        response = get_job(self.client, self.job_id)
        if not response.HasField("jobInfo"):
            problem = response.error.notFound.message or response.error.getRuntimeFail.message
            raise Failed(f"Unable to get job {self.job_id}: {problem}".rstrip(": "))
        return response.jobInfo


def get_job(client: Client, job_id: str) -> v0.job.GetResponse:
    """Of a job that is too large for an answer, the short form of its configuration."""
    import grpc

    wire = v0.peloton.JobID(value=job_id)
    try:
        return client.jobs.Get(v0.job.GetRequest(id=wire))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
    cache = client.jobs.GetCache(v0.job.GetCacheRequest(id=wire))
    return v0.job.GetResponse(jobInfo=v0.job.JobInfo(id=wire, config=cache.config, runtime=cache.runtime))


def progress_of(config: v0.job.JobConfig, runtime: v0.job.RuntimeInfo) -> Progress:
    stats = runtime.taskStats
    known = {str(state): stats[state] for state in PodState if stats.get(state)}
    return Progress(JobState(v0.job.JobState.Name(runtime.state)), config.instanceCount, known)


def summary_lines(job: v0.job.JobInfo, progress: Progress) -> list[str]:
    """What became of the job, and where to look when it did not succeed."""
    counts = ", ".join(f"{count} {state}" for state, count in progress.counts.items()) or "no tasks"
    name = f" ({job.config.name})" if job.config.name else ""
    lines = [f"Job {job.id.value}{name} {progress.state}: {counts}{duration_text(job.runtime)}"]
    if progress.counts.get("FAILED"):
        lines.append(f"See: peloton task query {job.id.value} -s FAILED")
    return lines


def duration_text(runtime: v0.job.RuntimeInfo) -> str:
    seconds = seconds_between(runtime.creationTime, runtime.completionTime)
    return "" if seconds is None else f", after {seconds:.1f} s"


@contextmanager
def display_on(console: Console, job_id: str, is_json: bool = False) -> Iterator[ProgressDisplay]:
    if is_json:
        yield JsonDisplay(console)
        return
    if not console.is_terminal:
        yield LineDisplay(console)
        return
    display = BarDisplay(console, job_id)
    with display.bar:
        yield display


class LineDisplay:
    """A line whenever something changed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown: Progress | None = None

    def show(self, progress: Progress) -> None:
        if progress != self.shown:
            self.shown = progress
            self.say(progress.text)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class JsonDisplay(LineDisplay):
    """An object whenever something changed; everything else is for people."""

    def show(self, progress: Progress) -> None:
        if progress != self.shown:
            self.shown = progress
            counts = {"total": progress.total_count, "ended": progress.ended_count, "tasks": progress.counts}
            click.echo(json.dumps({"state": str(progress.state), **counts}))


class BarDisplay:
    """One bar that fills as tasks end, with the job's state before it and the counts behind."""

    def __init__(self, console: Console, job_id: str) -> None:
        from rich import progress

        self.console = console
        self.bar = progress.Progress(
            progress.SpinnerColumn(finished_text=" "),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[counts]}"),
            progress.TimeElapsedColumn(),
            console=console,
        )
        self.row = self.bar.add_task(f"job {job_id[:8]}", total=None, counts="")

    def show(self, progress: Progress) -> None:
        counts = "  ".join(
            f"[{STATE_STYLES.get(state, 'yellow')}]{state} {count}[/]" for state, count in progress.counts.items()
        )
        self.bar.update(
            self.row,
            description=str(progress.state),
            total=progress.total_count or None,
            completed=progress.ended_count,
            counts=counts,
        )

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def progress_console(is_json: bool) -> Console:
    """Standard output, or standard error when that belongs to JSON."""
    from rich.console import Console

    return Console(stderr=is_json, highlight=False)
