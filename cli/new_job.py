"""The id of a job that is to be created: drawn here, so that a call whose answer is lost can be asked after or repeated
without a second job."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import click

from cli.errors import Failed, is_rpc_error
from cli.job.watch import AWAY_CODES
from cli.settings import Settings
from cli.wire import v0
from peloton.api.limits import IS_STORED, was_never_sent

WARNING_TIMEOUT_S = 5.0
"""Good to know, but nobody waits longer for it."""


def drawn(context: click.Context, option: click.Parameter, job_id: str) -> str:
    return job_id or str(uuid.uuid4())


job_id_option = click.option(
    "--jobID", "-i", "job_id", default="", callback=drawn, metavar="UUID", help="The job's id; drawn if absent."
)


@contextmanager
def telling_of(job_id: str, group: str) -> Iterator[None]:
    """Round the call that creates: when it ends without an answer, says how to find out. ``group``: of commands."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if is_stored(error):
            raise Failed(f"{error.details()}: see `{group} get {job_id}`") from error  # type: ignore[union-attr]
        if isinstance(error, KeyboardInterrupt) or leaves_open(error):
            click.echo(
                f"Whether job {job_id} was created is not known: see `{group} get {job_id}`, "
                f"or create it again with --jobID {job_id}",
                err=True,
            )
        raise


def is_stored(error: BaseException) -> bool:
    """Whether the job is there, although the call failed."""
    return isinstance(error, Exception) and is_rpc_error(error) and IS_STORED in (error.details() or "")  # type: ignore[attr-defined]


def leaves_open(error: Exception) -> bool:
    """Whether the call may have been carried out."""
    if not is_rpc_error(error):
        return False
    code, details = error.code().name, error.details() or ""  # type: ignore[attr-defined]
    return code in AWAY_CODES and not was_never_sent(details)


def warn_of_hosts(settings: Settings, job_id: str) -> None:
    """Say which instances of a job just created no host that is there could take. It is created all the same: such a
    host may join. Who cannot be asked has nothing to say."""
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
