"""``peloton job stateless``: services, by the v1alpha API."""

from __future__ import annotations

import click

from cli import (
    job_logs,
    stateless_control,
    stateless_create,
    stateless_pulse,
    stateless_query,
    stateless_read,
    stateless_replace,
    stateless_updates,
)
from cli.command import Group


@click.group(cls=Group)
def stateless() -> None:
    """Create, roll out, watch and stop services.

    A service is a job whose instances always run. A change of it is an update: rolled out batch by batch, paused,
    resumed, aborted or rolled back. ENTITY-VERSION is what a change was decided on, such as 1-1-1; it is refused when
    the job has another one by now. Without it the current one is read first.
    """


for command in (
    job_logs.logs,
    stateless_create.create,
    stateless_replace.replace,
    stateless_replace.replace_diff,
    stateless_replace.rollback,
    stateless_read.get,
    stateless_read.cache,
    stateless_read.refresh,
    stateless_read.list_pods,
    stateless_query.query,
    stateless_query.list_jobs,
    stateless_control.start,
    stateless_control.stop,
    stateless_control.restart,
    stateless_control.delete,
    stateless_updates.pause,
    stateless_updates.resume,
    stateless_pulse.pulse,
    stateless_updates.abort,
    stateless_updates.watch,
    stateless_updates.list_updates,
    stateless_updates.workflow,
):
    stateless.add_command(command)
