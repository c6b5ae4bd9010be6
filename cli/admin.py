"""``peloton admin``: locks of the API during an operation on the cluster, the database, versions of the workers, the
audit log.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.admin_audit import audit
from cli.admin_deploy import deploy
from cli.admin_retention import retention
from cli.admin_secrets import keyring, rotate_secrets
from cli.admin_token import token
from cli.admin_workers import worker
from cli.backup import backup, restore
from cli.check_store import check_store
from cli.command import Group, verb_commands
from cli.doctor import doctor
from cli.errors import Failed
from cli.gate import gate
from cli.output import Table, print_for_programs, print_list
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.upgrade_schema import upgrade_schema
from cli.wire import v1

COMPONENTS = click.Choice(["GoalStateEngine", "Read", "Write", "Kill", "Launch"], case_sensitive=False)
components_argument = click.argument("components", metavar="COMPONENT...", nargs=-1, required=True, type=COMPONENTS)


@click.group(cls=Group)
def admin() -> None:
    """Administer a control plane: locks, schema, secrets, tokens, retention, audit, workers, backups.

    COMPONENT is one or more of GoalStateEngine, Read, Write, Kill, Launch.
    """


admin.add_command(check_store)
admin.add_command(doctor)
admin.add_command(worker)
admin.add_command(token)
admin.add_command(audit)
admin.add_command(retention)
admin.add_command(deploy)
admin.add_command(upgrade_schema)
admin.add_command(gate)
admin.add_command(keyring)
admin.add_command(rotate_secrets)
admin.add_command(backup)
admin.add_command(restore)


TEXTS = {
    "lock": "Lock components: their calls are refused until they are unlocked.",
    "unlock": "Unlock components.",
}


@verb_commands(TEXTS, "admin {verb} Write Kill", admin)
@components_argument
@pass_settings
def change_locks(settings: Settings, verb: str, components: Sequence[str]) -> None:
    name = "Lockdown" if verb == "lock" else "RemoveLockdown"
    request = getattr(v1.admin_svc, f"{name}Request")(components=map(v1.admin_svc.Component.Value, components))
    response = getattr(settings.client.admin, name)(request)
    if not print_for_programs(settings, response):
        for component in response.successes:
            echo(f"{verb} on {v1.admin_svc.Component.Name(component)} succeeded")
    failures = [
        f"{verb} on {v1.admin_svc.Component.Name(failure.component)} failed due to: {failure.FailureMessage}"
        for failure in response.failures
    ]
    if failures:
        raise Failed("; ".join(failures))


EFFECTS = {
    "Read": "calls that read jobs and pods are refused: All read APIs are locked down",
    "Write": "calls that change jobs and pods are refused: All write APIs are locked down",
    "Kill": "no pod is killed until it is unlocked: kill op is locked",
    "Launch": "no pod is launched until it is unlocked: launch op is locked",
    "GoalStateEngine": "recorded, without effect",
}
TABLE: Table[str] = Table(
    ("Locked", lambda name: name), ("Effect", lambda name: EFFECTS[name]), nothing="Nothing is locked", name=str
)


@admin.command()
@pass_settings
def status(settings: Settings) -> None:
    """Show which components are locked, and the effects."""
    answer = settings.client.admin.GetLockdown(v1.admin_svc.GetLockdownRequest())
    names = [v1.admin_svc.Component.Name(component) for component in answer.components]
    print_list(settings, answer, TABLE, names)
