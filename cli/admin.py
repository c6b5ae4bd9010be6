"""``peloton admin``: lock parts of the API, for the time of an operation on the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cli.command import Group
from cli.errors import Failed
from cli.output import Table, print_for_programs, print_list
from cli.settings import Settings, pass_settings

if TYPE_CHECKING:
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc

COMPONENTS = click.Choice(["GoalStateEngine", "Read", "Write", "Kill", "Launch"], case_sensitive=False)
components_argument = click.argument("components", metavar="COMPONENT...", nargs=-1, required=True, type=COMPONENTS)


@click.group(cls=Group)
def admin() -> None:
    """Lock parts of Peloton and unlock them.

    COMPONENT is one or more of GoalStateEngine, Read, Write, Kill, Launch.
    """


@admin.command()
@components_argument
@pass_settings
def lock(settings: Settings, components: Sequence[str]) -> None:
    """Lock components: their calls are refused until they are unlocked.

    \b
    Example:
      peloton admin lock Write Kill
    """
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc

    request = svc.LockdownRequest(components=map(svc.Component.Value, components))
    print_result(settings, settings.client.admin.Lockdown(request), "lock")


@admin.command()
@components_argument
@pass_settings
def unlock(settings: Settings, components: Sequence[str]) -> None:
    """Unlock components.

    \b
    Example:
      peloton admin unlock Write Kill
    """
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc

    request = svc.RemoveLockdownRequest(components=map(svc.Component.Value, components))
    print_result(settings, settings.client.admin.RemoveLockdown(request), "unlock")


TABLE = Table(("Locked", "Effect"), nothing="Nothing is locked")
EFFECTS = {
    "Read": "calls that read jobs and pods are refused: All read APIs are locked down",
    "Write": "calls that change jobs and pods are refused: All write APIs are locked down",
    "Kill": "no pod is ended; it is tried again until it is unlocked: kill op is locked",
    "Launch": "no pod is started; it is tried again until it is unlocked: launch op is locked",
    "GoalStateEngine": "noted, and without effect",
}


@admin.command()
@pass_settings
def status(settings: Settings) -> None:
    """Show what is locked, and what that means."""
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc

    answer = settings.client.admin.GetLockdown(svc.GetLockdownRequest())
    names = [svc.Component.Name(component) for component in answer.components]
    print_list(settings, answer, TABLE, [(name, EFFECTS[name]) for name in names], names)


def print_result(settings: Settings, response: svc.LockdownResponse | svc.RemoveLockdownResponse, act: str) -> None:
    from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc

    if not print_for_programs(settings, response):
        for component in response.successes:
            click.echo(f"{act} on {svc.Component.Name(component)} succeeded")
    failures = [
        f"{act} on {svc.Component.Name(failure.component)} failed due to: {failure.FailureMessage}"
        for failure in response.failures
    ]
    if failures:
        raise Failed("; ".join(failures))
