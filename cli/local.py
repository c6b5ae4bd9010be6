"""``peloton local``: stops and restores parts of a running ``peloton up``."""

from __future__ import annotations

import json
from copy import copy

import click

from cli.command import Command, Group, verb_commands
from cli.settings import Settings
from cli.terminal import echo


@click.group(cls=Group)
def local() -> None:
    """Show, stop and start the parts of a local Peloton, for failure drills.

    A part is a process (temporal, minicluster, kubernetes, hostmgr, resmgr, api or worker), a host, or `master`: the
    Mesos master alone, without its hosts and their pods. The cluster is the one whose API is at --address.

    \b
    Examples:
      peloton local status
      peloton local stop --now resmgr
      peloton local start resmgr
      peloton local restart peloton-mesos-agent1
      peloton local stop master
      peloton local failover
    """


def _call(settings: Settings, action: str, name: str = "", now: bool = False) -> None:
    from services.lab.local import control

    _, _, port = settings.address.partition(",")[0].rpartition(":")  # of several APIs the first is asked
    if not port.isdigit():
        raise click.UsageError(f"--address {settings.address}: want HOST:PORT")
    lines = control.call(int(port), action, name, now)
    echo(json.dumps({"lines": lines}, indent=2) if settings.json else "\n".join(lines))


@local.command(cls=Command)
@click.pass_obj
def status(settings: Settings) -> None:
    """List parts and hosts, with their states."""
    _call(settings, "status")


STOPPING = {
    "stop": "Stop the part or host NAME; it stays down until started.",
    "restart": "Stop and start the part or host NAME.",
}
ON_HOSTS = {
    "degrade": "Fail every pod that starts on HOST, until `restore`; running pods continue.",
    "restore": "Let pods run on HOST again.",
}
OLD_NAMES = {"sicken": "degrade", "heal": "restore"}


@verb_commands(STOPPING, group=local)
@click.argument("name")
@click.option("--now", is_flag=True, help="Kill it with SIGKILL instead of an orderly stop.")
@click.pass_obj
def stop_part(settings: Settings, verb: str, name: str, now: bool) -> None:
    _call(settings, verb, name, now)


@verb_commands({"start": "Start the part or host NAME again."}, group=local)
@click.argument("name")
@click.pass_obj
def start_part(settings: Settings, verb: str, name: str) -> None:
    _call(settings, verb, name)


@verb_commands(ON_HOSTS, group=local)
@click.argument("host")
@click.pass_obj
def change_host(settings: Settings, verb: str, host: str) -> None:
    _call(settings, verb, host)


for old_name, verb in OLD_NAMES.items():
    alias = copy(change_host[verb])
    alias.hidden = True
    local.add_command(alias, old_name)


@local.command(cls=Command)
@click.option("--empty-registry", is_flag=True, help="Start the new master with an empty registry of hosts.")
@click.pass_obj
def failover(settings: Settings, empty_registry: bool) -> None:
    """Replace the Mesos master; with several clusters, the master of the first.

    The new master knows only the registry of hosts until hosts register again and frameworks subscribe.
    """
    _call(settings, "failover-empty" if empty_registry else "failover")
