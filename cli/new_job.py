"""Shared parts of the commands that create jobs.

The client draws the id of a new job, so that it can look up a call whose answer was lost, or repeat it without a second
job.
"""

from __future__ import annotations

import base64
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from cli.errors import Failed, is_rpc_error
from cli.output import print_outcome
from cli.params import together
from cli.refusals import raise_if_refused
from cli.settings import Settings
from cli.terminal import echo
from cli.wire import v0, v1
from peloton.api.error_details import reason_of
from peloton.api.limits import was_never_sent
from peloton.errors import InvalidArgument, Reason
from peloton.files import read_file, read_stream
from peloton.model.secret import SECRETS_BYTES_MAX

WARNING_TIMEOUT_S = 20.0
"""Timeout of the warning: the job is created already, and a busy resource manager takes seconds to answer."""
SecretT = TypeVar("SecretT", "v0.peloton.Secret", "v1.peloton.Secret")


def draw_id(context: click.Context, option: click.Parameter, job_id: str) -> str:
    return job_id or str(uuid.uuid4())


job_id_option = click.option(
    "--jobID",
    "-i",
    "job_id",
    default="",
    callback=draw_id,
    metavar="UUID",
    help="The job's id; a random one if absent.",
)


class FileSecret(NamedTuple):
    path: str  # in the container
    data: bytes


class SecretFileType(click.ParamType[FileSecret]):
    """The type of an option ``PATH=FILE``."""

    name = "PATH=FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FileSecret:
        path, _, file = value.partition("=")
        if not path or not file:
            self.fail(f"want {self.name}, not '{value}'", param, ctx)
        try:
            if file == "-":
                data = read_stream(sys.stdin.buffer, "standard input", SECRETS_BYTES_MAX)
            else:
                data = read_file(file, "secret", SECRETS_BYTES_MAX)
        except OSError as error:
            self.fail(f"'{file}': {error.strerror}", param, ctx)
        except InvalidArgument as error:
            self.fail(error.message, param, ctx)
        if not data:
            self.fail(f"'{file}' is empty", param, ctx)
        return FileSecret(path, data)


def secret_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of secrets, which the command receives as ``secrets``."""

    @wraps(function)
    def command(
        *args: Any, secret_file: tuple[FileSecret, ...], secret_path: str, secret_data: str, **rest: Any
    ) -> Any:
        if bool(secret_path) != bool(secret_data):
            raise click.UsageError("--secret-path and --secret-data belong together")
        own = [FileSecret(secret_path, secret_data.encode())] if secret_path else []
        return function(*args, secrets=[*secret_file, *own], **rest)

    return together(
        click.option(
            "--secret-file",
            type=SecretFileType(),
            multiple=True,
            help="A secret: the bytes of FILE (-: standard input), mounted at PATH in the container. May be repeated.",
        ),
        click.option(
            "--secret-path",
            default="",
            metavar="PATH",
            help="The mount path of --secret-data in the container.",
        ),
        click.option(
            "--secret-data",
            default="",
            metavar="TEXT",
            help="The secret; it is visible in the history of the shell and in lists of processes.",
        ),
    )(command)


def secrets_of(secrets: Iterable[FileSecret], message: type[SecretT]) -> list[SecretT]:
    """Return the secrets as messages, which carry their bytes as base64."""
    return [message(path=one.path, value=message.Value(data=base64.b64encode(one.data))) for one in secrets]


@contextmanager
def report_unknown_outcome(job_id: str, group: str) -> Iterator[None]:
    """Explain, when the call that creates ends without an answer, how to look up the job. ``group``: of commands."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if is_rpc_error(error) and reason_of(error) == Reason.JOB_NOT_STARTED:
            raise Failed(f"{error.details()}: see `{group} get {job_id}`") from error
        if isinstance(error, KeyboardInterrupt) or may_have_happened(error):
            echo(
                f"Whether job {job_id} was created is not known: see `{group} get {job_id}`, "
                f"or create it again with --jobID {job_id}",
                err=True,
            )
        raise


def may_have_happened(error: Exception) -> bool:
    """Return whether the API may have carried out the call that failed."""
    if not is_rpc_error(error):
        return False
    from peloton.client import is_away

    is_refused = reason_of(error) == Reason.LOCKED_DOWN
    return is_away(error) and not was_never_sent(error) and not is_refused


def print_created(
    settings: Settings, response: v0.job.CreateResponse, job_id: str, noun: str = "Job", lines: bool = False
) -> None:
    """Print the id of a new job, and warn of instances that fit on no host. Raises Failed for a refusal."""
    texts = {
        "alreadyExists": "Job {id} already exists: {message}",
        "invalidConfig": "Invalid job config: {message}",
        "invalidJobId": "Invalid job ID: {id}, message: {message}",
    }
    raise_if_refused(settings, response, texts, id=job_id)
    print_outcome(settings, response, f"{noun} {response.jobId.value} created", [response.jobId.value], lines=lines)
    warn_if_unplaceable(settings, response.jobId.value)


def warn_if_unplaceable(settings: Settings, job_id: str) -> None:
    """Name the instances of a new job that fit on no present host, and a daemon that matches no host.

    The job is created anyway, because such a host may join. Nothing is printed when the API does not answer.
    """
    try:
        request = v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=job_id))
        why = settings.client.explain.JobWhy(request, timeout=WARNING_TIMEOUT_S)
    except Exception as error:
        if not is_rpc_error(error):
            raise
        return
    for reason in why.reasons:
        is_nowhere = reason.rule == v0.explain.RULE_HOSTS_DO_NOT_MATCH and not reason.available
        if reason.rule == v0.explain.RULE_FITS_NO_HOST or is_nowhere:
            echo(f"Warning: {reason.text}", err=True)
