"""``peloton task logs`` and ``pod logs``: a file of a task's sandbox, whole or as it grows."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from cli import agents
from cli.command import Command
from cli.errors import Failed
from cli.names import instance_argument
from cli.params import together
from cli.refusals import NO_INSTANCE, raise_if_refused
from cli.settings import Settings, pass_settings
from cli.terminal import echo, echo_output
from cli.wire import v0, v1
from peloton.model.ids import PodName
from peloton.model.pod import TERMINAL

MAIN_CONTAINER = "main"
"""The container of a pod that names none."""
CHUNK_BYTES = 64 * 1024
FOLLOW_INTERVAL_S = 0.5
ERROR_BYTES_MAX = 500
"""Limit of the text of an agent's error that is shown."""
REPLACED = "\N{REPLACEMENT CHARACTER}"
UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# Words that cannot be the name of a log file, and so are not the value of the original's ``-f FILE``.
POSITIONAL = re.compile(rf"{UUID}(-\d+)*|\d+|-.*")

GET_TEXTS = {
    "notFound": "Job {id} was not found: {message}",
    "outOfRange": NO_INSTANCE,
}
container_option = click.option(
    "--container", "-c", default="", metavar="NAME", help="A container of the pod, if it has several."
)


raw_option = click.option(
    "--raw", is_flag=True, help="Print control characters unescaped, even on a terminal, which they can control."
)
logs_options = together(
    click.option("--follow", "-F", is_flag=True, help="Print until the run has ended and all is printed. Also -f."),
    click.option("--filename", metavar="FILE", default="stdout", show_default=True,
                 help="The file in the sandbox. Also -f FILE."),
    container_option,
    raw_option,
)  # fmt: skip


class LogsCommand(Command):
    """A command that takes ``-f`` in both meanings: ``-f`` follows, ``-f FILE`` is the original's spelling of
    --filename."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_long_options(args))


def with_long_options(args: list[str]) -> list[str]:
    """Return the arguments with ``-f`` written out.

    A job's id, a number or an option after it is not a file's name, nor is the only word that can name a job: then it
    is ``--follow``.
    """
    result: list[str] = []
    rest = iter(range(len(args)))
    for index in rest:
        word = args[index]
        if word == "--":
            return [*result, *args[index:]]
        is_file = index + 1 < len(args) and not POSITIONAL.fullmatch(args[index + 1])
        if word == "-f" and is_file and has_job(args[:index] + args[index + 2 :]):
            result += ["--filename", args[index + 1]]
            next(rest)
        elif word == "-f":
            result.append("--follow")
        elif word.startswith("-f") and not word.startswith("--"):
            result.append(f"--filename={word[2:]}")
        else:
            result.append(word)
    return result


def has_job(words: Sequence[str]) -> bool:
    """Return whether there is a word other than options and numbers."""
    return any(not word.startswith("-") and not word.isdigit() for word in words)


@click.command(cls=LogsCommand)
@instance_argument("TASK-ID")
@logs_options
@pass_settings
def logs(settings: Settings, pod: tuple[PodName, str], follow: bool, filename: str, container: str, raw: bool) -> None:
    """Print the output of a task, or another file of its sandbox.

    TASK-ID is an earlier run, as JOB-INSTANCE-RUN; the current run if absent. `-f` alone, or before a job's id,
    follows; `-f FILE` names the file, as in the original.

    \b
    Examples:
      peloton task logs JOB 0
      peloton task logs JOB 0 -f
      peloton task logs JOB 0 --filename stderr --follow
      peloton task logs JOB 0 JOB-0-1
      peloton task logs JOB 0 --container proxy
    """
    name, task_id = pod
    print_logs(settings, name, task_id, container_file(settings, name, container, filename), follow, raw)


def container_file(settings: Settings, pod: PodName, container: str, filename: str) -> str:
    """Return the file of a container of the pod: files of containers other than the main one are in folders of their
    names."""
    if not container:
        return filename
    request = v0.task.GetRequest(jobId=v0.peloton.JobID(value=pod.job_id), instanceId=pod.instance_id)
    response = settings.client.tasks.Get(request)
    raise_if_refused(settings, response, GET_TEXTS, id=pod.job_id)
    config = response.result.config
    main = config.containerName or MAIN_CONTAINER
    others = [other.name for other in (*config.otherContainers, *config.initContainers)]
    if container not in (main, *others):
        names = ", ".join((main, *others))
        raise Failed(f"pod {pod} has no container {container}: want {names}")
    return filename if container == main else f"{container}/{filename}"


def print_logs(settings: Settings, pod: PodName, task_id: str, filename: str, follow: bool, raw: bool) -> None:
    source = Sandbox(settings, pod.job_id, pod.instance_id, task_id)
    echo_output(source.follow(filename) if follow else source.download(filename), raw)


@dataclass
class Sandbox:
    """The files of one run of a task: on the agent that ran it, or read by the api on Kubernetes."""

    settings: Settings
    job_id: str
    instance: int
    task_id: str = ""  # empty: the current run
    sleep: Callable[[float], None] = time.sleep
    is_live: bool = False
    """True while the host manager keeps the file open between two reads, as it grows."""

    def download(self, filename: str) -> Iterator[bytes]:
        listing = self.browse()
        path = self.path_in(listing, filename)
        if is_served(listing):
            yield from self.get(listing, download_url(path))
        else:
            yield from self.pieces(path)

    def follow(self, filename: str) -> Iterator[bytes]:
        """Yield the content of the file and what is added to it, until its run has ended and all of it is read."""
        listing, path = self.wait_for_file(filename)
        self.is_live = not is_served(listing)
        offset = 0
        while True:
            has_ended = self.has_ended()  # asked before reading: later output is read in the next round
            chunk = self.read(listing, path, offset)
            if chunk:
                offset += len(chunk)
                yield chunk
            elif has_ended and self.is_live:
                self.is_live = False  # the rest is read from the file, and not through the reader that keeps it open
            elif has_ended:
                return
            else:
                self.sleep(FOLLOW_INTERVAL_S)

    def browse(self) -> v0.task.BrowseSandboxResponse:
        response = self.ask_for_listing()
        texts = {
            "notFound": "Job {id} was not found: {message}",
            "outOfRange": NO_INSTANCE,
            "notRunning": "Task {name} has not been started: {message}",
            "failure": "Unable to list the sandbox of task {name}: {message}",
        }
        raise_if_refused(self.settings, response, texts, id=self.job_id, name=self.name)
        return response

    def wait_for_file(self, filename: str) -> tuple[v0.task.BrowseSandboxResponse, str]:
        """Return the listing and the file's path in it, once the task has started and made the file."""
        is_announced = False
        while True:
            has_ended = self.has_ended()
            listing = self.ask_for_listing()
            is_waiting = listing.error.HasField("notRunning") or listing.error.HasField("failure")
            path = find_path(listing, filename)
            if path is not None or has_ended or (listing.HasField("error") and not is_waiting):
                listing = self.browse() if path is None else listing
                return listing, path or self.path_in(listing, filename)
            if not is_announced:
                echo(f"Waiting for task {self.name} to write {filename} ...", err=True)
                is_announced = True
            self.sleep(FOLLOW_INTERVAL_S)

    def ask_for_listing(self) -> v0.task.BrowseSandboxResponse:
        request = v0.task.BrowseSandboxRequest(
            jobId=v0.peloton.JobID(value=self.job_id), instanceId=self.instance, taskId=self.task_id
        )
        return self.settings.client.tasks.BrowseSandbox(request)

    def has_ended(self) -> bool:
        """Return whether the run is over; the first call for the current run fixes its id."""
        request = v0.task.GetRequest(jobId=v0.peloton.JobID(value=self.job_id), instanceId=self.instance)
        response = self.settings.client.tasks.Get(request)
        raise_if_refused(self.settings, response, GET_TEXTS, id=self.job_id)
        runtime = response.result.runtime
        self.task_id = self.task_id or runtime.mesosTaskId.value
        is_older = bool(runtime.mesosTaskId.value) and runtime.mesosTaskId.value != self.task_id
        return is_older or v0.task.TaskState.Name(runtime.state) in TERMINAL

    def read(self, listing: v0.task.BrowseSandboxResponse, path: str, offset: int) -> bytes:
        """Return some bytes from ``offset``; empty at the end of the file."""
        if not is_served(listing):
            return self.piece(path, offset).data
        url = f"/files/read?path={quote(path, safe='')}&offset={offset}&length={CHUNK_BYTES}"
        body = b"".join(self.get(listing, url))
        try:
            # A file need not be text; surrogates carry bytes that are not.
            text = json.loads(body.decode("utf-8", "surrogateescape"))["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"the agent at {listing.hostname}:{listing.port} sent no file content: {error}") from error
        if REPLACED in text:
            # An agent that writes this for bytes that are not text does not report how many there were.
            return b"".join(self.get(listing, download_url(path)))[offset:]
        return str(text).encode("utf-8", "surrogateescape")

    def size(self, listing: v0.task.BrowseSandboxResponse, path: str) -> int:
        """Return the size of a file in bytes."""
        if not is_served(listing):
            return sum(map(len, self.pieces(path)))
        answer = self.get_json(listing, f"/files/read?path={quote(path, safe='')}&offset=-1")
        return int(answer["offset"])

    def written_at(self, listing: v0.task.BrowseSandboxResponse, path: str) -> float:
        """Return when a file was last written, in seconds since the epoch; infinity when that is unknown."""
        if not is_served(listing):
            return float("inf")
        folder = path.rpartition("/")[0]
        rows = self.get_json(listing, f"/files/browse?path={quote(folder, safe='')}")
        return next((float(row["mtime"]) for row in rows if row["path"] == path), 0.0)

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file that no agent serves, to its present end."""
        offset, is_end = 0, False
        while not is_end:
            piece = self.piece(path, offset)
            offset, is_end = offset + len(piece.data), piece.is_end
            yield piece.data

    def piece(self, path: str, offset: int) -> v1.pod_svc.GetPodFileResponse:
        request = v1.pod_svc.GetPodFileRequest(
            pod_name=v1.peloton.PodName(value=f"{self.job_id}-{self.instance}"),
            pod_id=v1.peloton.PodID(value=self.task_id),
            path=path,
            offset=offset,
            follow=self.is_live,
        )
        return self.settings.client.pods.GetPodFile(request)

    def get_json(self, listing: v0.task.BrowseSandboxResponse, url: str) -> Any:
        try:
            return json.loads(b"".join(self.get(listing, url)))
        except ValueError as error:
            raise Failed(f"the agent at {listing.hostname}:{listing.port} sent no JSON: {error}") from error

    def get(self, listing: v0.task.BrowseSandboxResponse, url: str) -> Iterator[bytes]:
        connection = agents.connect(listing.hostname, listing.port)
        try:
            connection.request("GET", url, headers=agents.access().headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                reason = response.read(ERROR_BYTES_MAX).decode("utf-8", "replace")
                raise Failed(f"http://{listing.hostname}:{listing.port}{url}: {response.status} {reason}")
            while chunk := response.read(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"cannot read from the agent at {listing.hostname}:{listing.port}: {error}") from error
        finally:
            connection.close()

    def path_in(self, listing: v0.task.BrowseSandboxResponse, filename: str) -> str:
        path = find_path(listing, filename)
        if path is None:
            raise Failed(f"filename:{filename} not found in sandbox files: [{' '.join(listing.paths)}]")
        return path

    @property
    def name(self) -> str:
        return self.task_id or f"{self.job_id}-{self.instance}"


def is_served(listing: v0.task.BrowseSandboxResponse) -> bool:
    """Return whether an agent of Mesos serves the files; otherwise the api reads them."""
    return bool(listing.hostname)


def download_url(path: str) -> str:
    return f"/files/download?path={quote(path, safe='')}"


def find_path(listing: v0.task.BrowseSandboxResponse, filename: str) -> str | None:
    """Return the path whose last parts are ``filename``.

    Files that the api reads have one name, since a pod has a log for each container.
    """
    if not is_served(listing):
        return filename if filename in listing.paths else None
    wanted = "/" + filename.lstrip("/")
    return next((path for path in listing.paths if f"/{path}".endswith(wanted)), None)
