"""What the commands that create jobs share.

The id of a new job is drawn here, so that a call whose answer is lost can be asked after, or repeated without a second
job.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from cli.errors import Failed, is_rpc_error
from cli.params import together
from cli.settings import Settings
from cli.watching import AWAY_CODES
from cli.wire import v0, v1
from peloton.api.limits import IS_STORED, LOCKED_DOWN, was_never_sent

WARNING_TIMEOUT_S = 5.0
"""The warning is not worth a longer wait."""
SecretT = TypeVar("SecretT", "v0.peloton.Secret", "v1.peloton.Secret")


def draw_id(context: click.Context, option: click.Parameter, job_id: str) -> str:
    return job_id or str(uuid.uuid4())


job_id_option = click.option(
    "--jobID", "-i", "job_id", default="", callback=draw_id, metavar="UUID", help="The job's id; drawn if absent."
)
secret_options = together(
    click.option("--secret-path", default="", metavar="PATH", help="Where a secret is mounted in the container."),
    click.option("--secret-data", default="", metavar="TEXT", help="The secret itself, as it shall be in the file."),
)


def secrets_of(path: str, text: str, message: type[SecretT]) -> list[SecretT]:
    """At most one, mounted at ``path``; the wire wants its bytes as base64."""
    if bool(path) != bool(text):
        raise click.UsageError("--secret-path and --secret-data belong together")
    return [message(path=path, value=message.Value(data=base64.b64encode(text.encode())))] if path else []


@contextmanager
def report_unknown_outcome(job_id: str, group: str) -> Iterator[None]:
    """Round the call that creates: when it ends without an answer, says how to find out. ``group``: of commands."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if is_rpc_error(error) and IS_STORED in (error.details() or ""):
            raise Failed(f"{error.details()}: see `{group} get {job_id}`") from error
        if isinstance(error, KeyboardInterrupt) or may_have_happened(error):
            click.echo(
                f"Whether job {job_id} was created is not known: see `{group} get {job_id}`, "
                f"or create it again with --jobID {job_id}",
                err=True,
            )
        raise


def may_have_happened(error: Exception) -> bool:
    """Whether the API may have carried out the call that failed."""
    if not is_rpc_error(error):
        return False
    code, details = error.code().name, error.details() or ""
    return code in AWAY_CODES and not was_never_sent(details) and LOCKED_DOWN not in details


def warn_if_unplaceable(settings: Settings, job_id: str) -> None:
    """Names the instances of a new job that fit on no present host. The job is created all the same, because such a
    host may join. Prints nothing when the API cannot be asked."""
    try:
        request = v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=job_id))
        why = settings.client.explain.JobWhy(request, timeout=WARNING_TIMEOUT_S)
    except Exception as error:
        if not is_rpc_error(error):
            raise
        return
    for reason in why.reasons:
        if reason.rule == v0.explain.RULE_FITS_NO_HOST:
            click.echo(f"Warning: {reason.text}", err=True)
