"""Arguments that name a job or an instance, and how the API resolves them to ids. Every command uses these."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cli.errors import Failed
from cli.params import COMPLETION_TIMEOUT_S, ask_to_complete
from cli.settings import Settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0
from peloton.model.ids import JobId, PodName
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.text import shorten

if TYPE_CHECKING:
    from peloton.client import Client

JOB_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
SHOWN_MAX = 10
"""Limit of the jobs listed for an ambiguous word."""
COMPLETIONS_MAX = 50
INSTANCE_MAX = 2**32 - 1
SEPARATOR = "--"
"""The separator between an instance and a command of any words, which follows it."""
WANTED = "its id, the first 4 characters of that or more, its name, or its pool and name (/pool/name)"


class Ambiguous(Failed):
    """An error that lists the jobs to choose from, each on its own line."""

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, file=file or sys.stderr)


def job_id_of(settings: Settings, text: str) -> str:
    """Return the id of a job; a whole id is returned unchanged, anything else costs a call of the API. Raises
    Failed."""
    if JOB_ID.fullmatch(text):
        return text
    request = v0.lookup.FindJobsRequest(text=text, limit=SHOWN_MAX)
    response = settings.client.lookup.FindJobs(request)
    return only_match(text, response).id.value


def only_match(text: str, response: v0.lookup.FindJobsResponse) -> v0.lookup.FoundJob:
    """Return the only job, or the only one with the name that has not ended. Raises Failed."""
    jobs = response.jobs
    if not jobs:
        raise UnknownJob(f"unknown job '{shorten(text)}': want {WANTED}")
    living = [job for job in jobs if state_of(job) not in JOB_TERMINAL]
    if len(jobs) == 1:
        return jobs[0]
    if len(living) == 1 and is_called(living[0], text):
        others = "others" if len(jobs) > 2 or response.hasMore else "the other one"
        echo(f"'{shorten(text)}' is job {living[0].id.value}; {others} of that name ended before", err=True)
        return living[0]
    more = ["  and more"] if response.hasMore else []
    lines = [f"'{shorten(text)}' may be one of several jobs: name it by its id", *map(line_of, jobs), *more]
    raise Ambiguous("\n".join(lines))


def state_of(job: v0.lookup.FoundJob) -> JobState:
    return JobState(v0.job.JobState.Name(job.state))


def is_called(job: v0.lookup.FoundJob, text: str) -> bool:
    return text == job.name or "/" + text.removeprefix("/") == f"{job.poolPath}/{job.name}"


def line_of(job: v0.lookup.FoundJob) -> str:
    return f"  {job.id.value}  {job.poolPath}/{job.name}  {state_of(job)}  created {seconds_text(job.creationTime)}"


class UnknownJob(Failed):
    """No job has the name."""


class JobType(click.ParamType[str]):
    """The type of an argument that names a job; the command receives the job's id. The API completes it."""

    name = "JOB"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        words = ask_to_complete(ctx, lambda client: list_job_words(client, incomplete))
        return [CompletionItem(word, help=about) for word, about in words]

    def resolve(self, settings: Settings, value: Any) -> Any:
        """Return the ids of the jobs that the command line names, by one word or by several."""
        if isinstance(value, tuple):
            return tuple(job_id_of(settings, word) for word in value)
        return value and job_id_of(settings, value)


class InstanceType(JobType):
    """The type of the first word of ``instance_argument``."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        has_job = bool(param.name and ctx.params.get(param.name))
        return [] if has_job else super().shell_complete(ctx, param, incomplete)

    def resolve(self, settings: Settings, value: Any) -> PodName | tuple[PodName, str | tuple[str, ...]]:
        words: InstanceWords = value
        name = PodName(JobId(job_id_of(settings, words.job)), words.instance_id)
        return name if words.rest is None else (name, words.rest)


class InstanceWords(NamedTuple):
    job: str
    instance_id: int
    rest: str | tuple[str, ...] | None  # None: the command takes no more words


def resolve_names(ctx: click.Context) -> None:
    """Replace names by ids after the whole command line has been parsed: wrong usage costs no call."""
    for param in ctx.command.params:
        if isinstance(param.type, JobType) and param.name:
            settings = ctx.find_object(Settings)
            assert settings is not None
            ctx.params[param.name] = param.type.resolve(settings, ctx.params[param.name])


def list_job_words(client: Client, begin: str) -> list[tuple[str, str]]:
    """Return words that begin with ``begin``, each with a help text that names its job."""
    request = v0.lookup.FindJobsRequest(text=begin, begins=True, limit=COMPLETIONS_MAX)
    found: dict[str, str] = {}
    for job in client.lookup.FindJobs(request, timeout=COMPLETION_TIMEOUT_S).jobs:
        for word in (job.name, f"{job.poolPath}/{job.name}", job.id.value):
            if word and word.lower().startswith(begin.lower()) and (begin or word == job.name):
                found.setdefault(word, f"{state_of(job)} {job.poolPath}/{job.name}")
    return list(found.items())


JOB = JobType()
job_argument = click.argument("job_id", metavar="JOB", type=JOB)


def instance_argument(rest: str = "", required: bool = False, many: bool = False) -> Callable[[Any], Any]:
    """Add ``JOB INSTANCE`` or ``JOB-INSTANCE`` as the parameter ``pod``, a PodName.

    ``rest``: another word that may follow, or must if ``required``; with ``many`` any words, which a first ``--`` may
    separate. Then the parameter is the name and that word, or a tuple.
    """

    def convert(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> InstanceWords | Sequence[str]:
        if ctx.resilient_parsing:
            return words
        own, others = split_words(words)
        if many and others and others[0] == SEPARATOR:
            others = others[1:]
        if own is None or (len(others) > bool(rest) and not many) or (required and not others):
            raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{shorten(' '.join(words))}'", ctx)
        return InstanceWords(*own, tuple(others) if many else "".join(others) if rest else None)

    shown = f" {rest}" if required else f" [{rest}]{'...' if many else ''}" if rest else ""
    return click.argument(
        "pod", metavar=f"JOB INSTANCE{shown}", nargs=-1, required=True, type=InstanceType(), callback=convert
    )


def split_words(words: Sequence[str]) -> tuple[tuple[str, int] | None, Sequence[str]]:
    """Return a job's word and an instance number, and the following words; None if they name no instance."""
    first, rest = words[0], words[1:]
    if rest and is_instance(rest[0]):
        return (first, int(rest[0])), rest[1:]
    job, _, number = first.rpartition("-")
    return ((job, int(number)) if job and is_instance(number) else None), rest


def is_instance(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= len(str(INSTANCE_MAX)) and int(word) <= INSTANCE_MAX


def pod_name(settings: Settings, text: str, job_id: str = "") -> str:
    """Return the pod name of ``JOB-INSTANCE``, or of the number of an instance of ``job_id``. Raises Failed."""
    if job_id and is_instance(text):
        return f"{job_id}-{text}"
    own, _ = split_words([text])
    if own is None:
        raise Failed(f"invalid pod name '{shorten(text)}': want JOB-INSTANCE")
    return str(PodName(JobId(job_id_of(settings, own[0])), own[1]))
