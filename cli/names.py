"""What people call a job or an instance of it, and the ids that are meant. Every command takes them from here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cli.errors import Failed
from cli.params import COMPLETION_TIMEOUT_S, settings_given
from cli.settings import Settings
from cli.wire import v0
from peloton.model.ids import JobId, PodName
from peloton.model.job import JOB_TERMINAL, JobState

JOB_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
SHOWN_MAX = 10
"""Of the jobs that an ambiguous word may mean."""
COMPLETIONS_MAX = 50
INSTANCE_MAX = 2**32 - 1
WANTED = "its id, the first 4 characters of that or more, its name, or its pool and name (/pool/name)"


class Ambiguous(Failed):
    """Tells of each job on a line of its own, for one of them is to be picked."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file or sys.stderr)


def job_id_of(settings: Settings, text: str) -> str:
    """An id is not looked up: who names a job by it needs no more than the call itself. Raises Failed."""
    if JOB_ID.fullmatch(text):
        return text
    request = v0.lookup.FindJobsRequest(text=text, limit=SHOWN_MAX)
    response = settings.client.lookup.FindJobs(request)
    return meant(text, response).id.value


def meant(text: str, response: v0.lookup.FindJobsResponse) -> v0.lookup.FoundJob:
    """The only job, or of those with the name the only one that has not ended. Raises Failed."""
    jobs = response.jobs
    if not jobs:
        raise Failed(f"no job is called '{text}': want {WANTED}")
    living = [job for job in jobs if state_of(job) not in JOB_TERMINAL]
    if len(jobs) == 1:
        return jobs[0]
    if len(living) == 1 and is_called(living[0], text):
        others = "others" if len(jobs) > 2 or response.hasMore else "the other one"
        click.echo(f"'{text}' is job {living[0].id.value}; {others} of that name ended before", err=True)
        return living[0]
    more = ["  and more"] if response.hasMore else []
    lines = [f"'{text}' may be one of several jobs: name it by its id", *map(line_of, jobs), *more]
    raise Ambiguous("\n".join(lines))


def state_of(job: v0.lookup.FoundJob) -> JobState:
    return JobState(v0.job.JobState.Name(job.state))


def is_called(job: v0.lookup.FoundJob, text: str) -> bool:
    return text == job.name or "/" + text.removeprefix("/") == f"{job.poolPath}/{job.name}"


def line_of(job: v0.lookup.FoundJob) -> str:
    created = job.creationTime.partition(".")[0].removesuffix("Z")
    return f"  {job.id.value}  {job.poolPath}/{job.name}  {state_of(job)}  created {created}Z"


class JobType(click.ParamType[str]):
    """A word that names a job; its value in commands is the job's id. Completed by asking the API."""

    name = "JOB"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word, help=about) for word, about in known_jobs(ctx, incomplete).items()]

    def looked_up(self, settings: Settings, value: Any) -> Any:
        """Of what the command line says, one word or several, the ids."""
        if isinstance(value, tuple):
            return tuple(job_id_of(settings, word) for word in value)
        return value and job_id_of(settings, value)


class InstanceType(JobType):
    """The first of the words of ``instance_argument``."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        has_job = bool(param.name and ctx.params.get(param.name))
        return [] if has_job else super().shell_complete(ctx, param, incomplete)

    def looked_up(self, settings: Settings, value: Any) -> PodName | tuple[PodName, str | tuple[str, ...]]:
        words: InstanceWords = value
        name = PodName(JobId(job_id_of(settings, words.job)), words.instance_id)
        return name if words.rest is None else (name, words.rest)


class InstanceWords(NamedTuple):
    job: str
    instance_id: int
    rest: str | tuple[str, ...] | None  # None: of a command that takes no more words


def look_up(ctx: click.Context) -> None:
    """Before a command runs, and after its whole line was found right: nothing is asked for wrong usage."""
    for param in ctx.command.params:
        if isinstance(param.type, JobType) and param.name:
            settings = ctx.find_object(Settings)
            assert settings is not None
            ctx.params[param.name] = param.type.looked_up(settings, ctx.params[param.name])


def known_jobs(ctx: click.Context, begin: str) -> dict[str, str]:
    """Words that begin so -> what they name; none when the API is slow or down: a completion prints no errors."""
    settings = ctx.find_object(Settings) or settings_given(ctx.find_root())
    request = v0.lookup.FindJobsRequest(text=begin, begins=True, limit=COMPLETIONS_MAX)
    try:
        jobs = settings.client.lookup.FindJobs(request, timeout=COMPLETION_TIMEOUT_S).jobs
    except Exception:
        return {}
    finally:
        settings.close()
    found: dict[str, str] = {}
    for job in jobs:
        for word in (job.name, f"{job.poolPath}/{job.name}", job.id.value):
            if word and word.lower().startswith(begin.lower()) and (begin or word == job.name):
                found.setdefault(word, f"{state_of(job)} {job.poolPath}/{job.name}")
    return found


JOB = JobType()
job_argument = click.argument("job_id", metavar="JOB", type=JOB)


def instance_argument(rest: str = "", required: bool = False) -> Callable[[Any], Any]:
    """``JOB INSTANCE`` or ``JOB-INSTANCE``: the parameter ``pod``, a PodName. ``rest``: one more word that may follow,
    or that has to if ``required``; then the parameter is the name and that word."""

    def convert(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> InstanceWords | Sequence[str]:
        if ctx.resilient_parsing:
            return words
        own, others = split_words(words)
        if own is None or len(others) > bool(rest) or (required and not others):
            raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{' '.join(words)}'", ctx)
        return InstanceWords(*own, "".join(others) if rest else None)

    shown = f" {rest if required else f'[{rest}]'}" if rest else ""
    metavar = f"JOB INSTANCE{shown}"
    return click.argument("pod", metavar=metavar, nargs=-1, required=True, type=InstanceType(), callback=convert)


def instance_and_words_argument(metavar: str) -> Callable[[Any], Any]:
    """As ``instance_argument``, and any words that follow: the parameter ``pod`` is the name and a tuple of these."""

    def convert(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> InstanceWords | Sequence[str]:
        if ctx.resilient_parsing:
            return words
        own, others = split_words(words)
        if own is None:
            raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{' '.join(words)}'", ctx)
        return InstanceWords(*own, tuple(others))

    return click.argument(
        "pod", metavar=f"JOB INSTANCE {metavar}", nargs=-1, required=True, type=InstanceType(), callback=convert
    )


def split_words(words: Sequence[str]) -> tuple[tuple[str, int] | None, Sequence[str]]:
    """A job's word and the number of an instance, and the words that follow; None for what is no such thing."""
    first, rest = words[0], words[1:]
    if rest and is_instance(rest[0]):
        return (first, int(rest[0])), rest[1:]
    job, _, number = first.rpartition("-")
    return ((job, int(number)) if job and is_instance(number) else None), rest


def is_instance(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= len(str(INSTANCE_MAX)) and int(word) <= INSTANCE_MAX


def pod_name(settings: Settings, text: str, job_id: str = "") -> str:
    """Of ``JOB-INSTANCE``, or of the number of an instance of ``job_id``. Raises Failed."""
    if job_id and is_instance(text):
        return f"{job_id}-{text}"
    own, _ = split_words([text])
    if own is None:
        raise Failed(f"invalid pod name '{text}': want JOB-INSTANCE")
    return str(PodName(JobId(job_id_of(settings, own[0])), own[1]))
