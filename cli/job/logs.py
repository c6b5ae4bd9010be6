"""``peloton job logs``: the output of the instances of a job, each line marked with its instance."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import click

from cli.command import Command
from cli.errors import Failed
from cli.names import job_argument
from cli.params import COUNT, RANGE, SINCE, InstanceRange
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.task.control import range_message
from cli.task.logs import CHUNK_BYTES, FOLLOW_INTERVAL_S, Sandbox, find_path, raw_option
from cli.terminal import echo, echo_output
from cli.wire import v0
from peloton.model.job import JOB_TERMINAL
from peloton.model.pod import TERMINAL

STREAMS = {"stdout": "out", "stderr": "err"}
INSTANCES_MAX = 100
"""Limit of the instances of one command: each read of one costs calls to its agent."""
TAIL_BYTES_MAX = 1024 * 1024
"""Bytes of each file, from its end, in which ``--tail`` searches the beginning of its lines."""
FOLLOW_BYTES_MAX = 4 * CHUNK_BYTES
"""Bytes of one file that are printed before the next file's turn, when following."""
FAILURES_NAMED = 3
"""Failed reads in a row before a message, when following."""
COLOURS = ("cyan", "green", "yellow", "magenta", "blue")


@click.command(cls=Command)
@job_argument
@click.option("--range", "-r", "instances", type=RANGE, default=":", help="Instances; the first 100 if absent.")
@click.option("--follow", "-f", "-F", is_flag=True, help="Print until the job has ended and all is printed.")
@click.option("--tail", "-n", type=COUNT, metavar="N", help="Only the last N lines of each file.")
@click.option("--since", type=SINCE, help="Only files written since: a duration such as 10m, or a time.")
@click.option("--stream", type=click.Choice([*STREAMS, "both"]), default="both", show_default=True,
              help="The output to print.")  # fmt: skip
@click.option("--no-prefix", is_flag=True, help="Print lines without their instance.")
@raw_option
@pass_settings
def logs(
    settings: Settings,
    job_id: str,
    instances: InstanceRange,
    follow: bool,
    tail: int | None,
    since: datetime | None,
    stream: str,
    no_prefix: bool,
    raw: bool,
) -> None:
    """Print the output of all instances of a job: stdout and stderr, each line marked with its instance.

    Without --follow the current run of each instance is printed, one after the other. With it, lines of all instances
    are printed as they are written, including those of runs that start meanwhile. Lines have no times: --since selects
    whole files by the time of their last change.

    \b
    Examples:
      peloton job logs JOB
      peloton job logs JOB -f --tail 10
      peloton job logs JOB -r 0:5 --stream stderr --since 10m
    """
    names = tuple(STREAMS) if stream == "both" else (stream,)
    width = len(str(min(instances[1], instances[0] + INSTANCES_MAX) - 1))
    mark = None if no_prefix else partial(mark_line, names=names, width=width)
    output = JobOutput(
        settings=settings, job_id=job_id, instances=instances, names=names, start=Start(tail, since), mark=mark, raw=raw
    )
    unread = output.follow() if follow else output.print_once()
    if unread:
        raise Failed(f"the output of {unread} of the instances could not be read")


def mark_line(instance: int, name: str, names: Sequence[str], width: int) -> str:
    label = f"{instance:>{width}} {STREAMS[name]} | " if len(names) > 1 else f"{instance:>{width}} | "
    if sys.stdout.isatty():
        label = click.style(label, fg=COLOURS[instance % len(COLOURS)])
    return label


@dataclass(frozen=True)
class Start:
    """The position from which the reading of a file begins."""

    tail: int | None = None
    """The number of lines; None is the whole file."""
    since: datetime | None = None

    def offset(self, source: Sandbox, listing: v0.task.BrowseSandboxResponse, path: str) -> int | None:
        """Return the offset in bytes; None: nothing of the file is printed."""
        if self.since is not None and source.written_at(listing, path) < self.since.timestamp():
            return None
        if self.tail is None:
            return 0
        size = source.size(listing, path)
        begin, end, line_count = size, size, 0
        while begin > max(0, size - TAIL_BYTES_MAX):
            end, begin = begin, max(0, begin - CHUNK_BYTES)
            piece = source.read(listing, path, begin)[: end - begin]
            # The newline at the end of the file ends its last line, and begins none.
            ends = [begin + at for at, byte in enumerate(piece) if byte == 0x0A and begin + at < size - 1]
            if line_count + len(ends) >= self.tail:
                return size if self.tail == 0 else ends[len(ends) - (self.tail - line_count)] + 1
            line_count += len(ends)
        return begin


@dataclass
class LogFile:
    """One file of one run, read from the end of the last read."""

    source: Sandbox
    listing: v0.task.BrowseSandboxResponse
    name: str
    path: str
    offset: int
    rest: bytes = b""  # of a line without an end so far

    def lines(self, limit_bytes: int | None = None) -> Iterator[bytes]:
        """Yield whole lines to the end of the file, or until ``limit_bytes`` are read; too long a line comes in
        pieces."""
        begin = self.offset
        while chunk := self.source.read(self.listing, self.path, self.offset):
            self.offset += len(chunk)
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            yield from whole
            if len(self.rest) > CHUNK_BYTES:
                yield from self.last_line()
            if limit_bytes is not None and self.offset - begin >= limit_bytes:
                return

    def last_line(self) -> Iterator[bytes]:
        """Yield the text without a newline at its end."""
        line, self.rest = self.rest, b""
        if line:
            yield line


@dataclass
class Run:
    """The output of one run of an instance; its files exist once it has started."""

    task_id: str
    source: Sandbox
    files: list[LogFile] = field(default_factory=list)
    is_open: bool = False
    failures: int = 0  # of reading it, in a row

    def open(self, names: Sequence[str], start: Start) -> None:
        listing = self.source.browse()
        for name in names:
            path = find_path(listing, name)
            if path is not None and (offset := start.offset(self.source, listing, path)) is not None:
                self.files.append(LogFile(self.source, listing, name, path, offset))
        self.is_open = True


@dataclass(kw_only=True)
class JobOutput:
    """A printer of the files of the chosen instances. Its methods return the number of instances that could not be
    read."""

    settings: Settings
    job_id: str
    instances: InstanceRange
    names: Sequence[str]
    start: Start
    mark: Callable[[int, str], str] | None
    raw: bool = False
    sleep: Callable[[float], None] = time.sleep
    runs: dict[int, Run] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    """The instances for which a message on a failed read was printed."""

    def print_once(self) -> int:
        waiting, tasks = 0, self.tasks()
        if not tasks:
            echo("the instances are being created", err=True)
        for instance, info in tasks:
            run = self.run_of(instance, info)
            if not info.runtime.host:
                waiting += 1
                continue
            self.print_run(instance, run, self.start, is_last=True)
        if waiting:
            echo(f"{waiting} {'instance has' if waiting == 1 else 'instances have'} not started", err=True)
        return len(self.unread)

    def follow(self) -> int:
        """Print until the job has ended and all its output is read."""
        start = self.start
        while True:
            tasks = self.tasks()
            # Read the state before the files: later output is read in the next round.
            has_ended = all(is_terminal(info) for _, info in tasks) and self.job_has_ended()
            read_bytes = 0
            for instance, info in tasks:
                run = self.runs.get(instance)
                if run is not None and run.task_id != info.runtime.mesosTaskId.value:
                    self.print_run(instance, run, start, is_last=True)
                run = self.run_of(instance, info)
                if info.runtime.host:
                    read_bytes += self.print_run(instance, run, start, FOLLOW_BYTES_MAX)
            if has_ended and not read_bytes:
                for instance, run in self.runs.items():
                    self.print_run(instance, run, start, is_last=True)
                return len(self.unread)
            start = Start()  # a run that begins from now on is printed whole
            if not read_bytes:
                self.sleep(FOLLOW_INTERVAL_S)

    def run_of(self, instance: int, info: v0.task.TaskInfo) -> Run:
        """Return the run of an instance, cached until the instance has another run."""
        task_id = info.runtime.mesosTaskId.value
        run = self.runs.get(instance)
        if run is None or run.task_id != task_id:
            run = self.runs[instance] = Run(task_id, Sandbox(self.settings, self.job_id, instance, task_id))
        return run

    def print_run(
        self, instance: int, run: Run, start: Start, limit_bytes: int | None = None, is_last: bool = False
    ) -> int:
        """Print new output; return its size in bytes.

        A failed read is reported once, and not the first one: a run has no files for a moment after it came to its
        host.
        """
        before = sum(file.offset for file in run.files)
        run.source.is_live = limit_bytes is not None
        try:
            if not run.is_open:
                run.open(self.names, start)
                before = sum(file.offset for file in run.files)
            for file in run.files:
                self.print_lines(instance, file.name, file.lines(limit_bytes))
                if is_last:
                    self.print_lines(instance, file.name, file.last_line())
            run.failures = 0
        except Failed as failed:
            run.failures += 1
            if is_last:
                self.unread.add(instance)
            if (is_last or run.failures == FAILURES_NAMED) and instance not in self.named:
                self.named.add(instance)
                echo(f"instance {instance}: {failed.message}", err=True)
        return sum(file.offset for file in run.files) - before

    def print_lines(self, instance: int, name: str, lines: Iterator[bytes]) -> None:
        for line in lines:
            label = "" if self.mark is None else self.mark(instance, name)
            echo_output([line + b"\n"], self.raw, prefix=label)

    def tasks(self) -> list[tuple[int, v0.task.TaskInfo]]:
        """Return the chosen instances in their order, at most INSTANCES_MAX."""
        begin, end = self.instances
        # One more than is printed shows whether there are more.
        chosen = range_message((begin, min(end, begin + INSTANCES_MAX + 1)))
        request = v0.task.ListRequest(jobId=v0.peloton.JobID(value=self.job_id), range=chosen)
        response = self.settings.client.tasks.List(request)
        if response.HasField("notFound") and self.has_no_pods_yet(begin):
            return []
        raise_if_refused(self.settings, response, {"notFound": "Job {id} was not found: {message}"}, id=self.job_id)
        found = sorted(response.result.value.items())
        if len(found) > INSTANCES_MAX and not self.runs:
            last = begin + INSTANCES_MAX
            text = (
                f"Only instances {begin} to {last - 1} are printed; --range {last}:{last + INSTANCES_MAX} has the next"
            )
            echo(text, err=True)
        return found[:INSTANCES_MAX]

    def has_no_pods_yet(self, begin: int) -> bool:
        """Return whether the job was created just now, with instances from ``begin`` on: its workflow adds the pods."""
        job = self.job().jobInfo
        return begin < job.config.instanceCount and v0.job.JobState.Name(job.runtime.state) not in JOB_TERMINAL

    def job_has_ended(self) -> bool:
        response = self.job()
        raise_if_refused(self.settings, response, {}, id=self.job_id)
        return v0.job.JobState.Name(response.jobInfo.runtime.state) in JOB_TERMINAL

    def job(self) -> v0.job.GetResponse:
        return self.settings.client.jobs.Get(v0.job.GetRequest(id=v0.peloton.JobID(value=self.job_id)))


def is_terminal(info: v0.task.TaskInfo) -> bool:
    return v0.task.TaskState.Name(info.runtime.state) in TERMINAL
