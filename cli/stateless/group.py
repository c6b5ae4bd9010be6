"""``peloton job stateless``: services, by the v1alpha API."""

from __future__ import annotations

import click

from cli import explain
from cli.command import Group
from cli.job import logs
from cli.stateless import control, create, pulse, query, read, replace, updates


@click.group(cls=Group)
def stateless() -> None:
    """Create, roll out, watch and stop services.

    A service is a job whose instances always run. A change is an update: it is rolled out batch by batch, and may be
    paused, resumed, aborted or rolled back. ENTITY-VERSION, such as 1-1-1, is the version that a change is based on;
    the change is refused when the job has another version. Without it the current one is read first.
    """


for command in (
    logs.logs,
    create.create,
    explain.plan_service,
    replace.replace,
    replace.replace_diff,
    replace.rollback,
    read.get,
    read.cache,
    read.refresh,
    read.list_pods,
    query.query,
    query.list_jobs,
    *control.goals.values(),
    control.restart,
    control.delete,
    *updates.steering.values(),
    pulse.pulse,
    updates.watch,
    updates.list_updates,
    updates.workflow,
):
    stateless.add_command(command)
