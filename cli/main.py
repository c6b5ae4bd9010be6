"""``peloton``: the command line. Each noun has a module or folder of its name, which is loaded when it is used."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import click

from cli.command import Entry, Root, global_options
from cli.output import substitute_unprintable
from cli.settings import Settings
from cli.terminal import echo

ENTRIES = {
    "up": Entry("cli.up", "up", "Start a whole Peloton on this machine."),
    "demo": Entry("cli.demo", "demo", "Start a cluster, create a pool, run a job; then clean up."),
    "local": Entry("cli.local", "local", "Show, stop and start the parts of the local Peloton."),
    "serve": Entry("cli.serve", "serve", "Run one or more roles of Peloton in this process."),
    "settings": Entry("cli.role_settings", "settings", "Print the settings of roles, and check them."),
    "top": Entry("cli.top.command", "top", "Show pools, jobs and hosts live."),
    "why": Entry("cli.why", "why", "Explain why a pod or job of Kubernetes waits."),
    "import": Entry("cli.import_kueue", "import_", "Make pools of the objects of other queues."),
    "overview": Entry("cli.overview", "overview", "Show the present problems, and how full the clusters are."),
    "job": Entry("cli.job.group", "job", "Create, watch, query, update and stop jobs."),
    "task": Entry("cli.task.group", "task", "Show, start and stop the tasks of a job; read their logs."),
    "pod": Entry("cli.pod.group", "pod", "Show, start, stop and restart the pods of services; read their logs."),
    "watch": Entry("cli.watch", "watch", "Print changes of services and their pods as they happen."),
    "update": Entry("cli.update", "update", "Update services by API v0, where an update has an id."),
    "usage": Entry("cli.usage", "usage", "Show core-, GiB- and GPU-hours of pools and owners."),
    "respool": Entry("cli.respool.group", "respool", "Divide the cluster into resource pools."),
    "host": Entry("cli.host.group", "host", "Show the hosts of the cluster, and maintain them."),
    "volume": Entry("cli.volume", "volume", "Show the volumes of services, and delete them."),
    "migrate": Entry("cli.migration", "start"),
    "migration": Entry("cli.migration", "migration", "Move services and pools to other clusters."),
    "admin": Entry(
        "cli.admin",
        "admin",
        "Administer a control plane: locks, schema, secrets, tokens, retention, audit, workers, backups.",
    ),
    "login": Entry("cli.access", "login", "Store a token for the calls of all commands."),
    "logout": Entry("cli.access", "logout", "Delete the stored token."),
    "whoami": Entry("cli.access", "whoami", "Show your identity and roles."),
    "can-i": Entry("cli.access", "can_i", "Show whether you may call a method."),
    "archive": Entry("cli.archive", "archive", "Read the archive of old jobs, pods and events."),
    "schema": Entry("cli.schema", "schema", "Print the JSON schema of job, service or pool files, for editors."),
    "examples": Entry("cli.examples", "examples", "Copy the example files into a folder."),
    "version": Entry("cli.version", "version", "Print the version."),
    "completion": Entry("cli.completion", "completion", "Print the completion script of a shell."),
}


PLUGIN = "kubectl peloton"
"""The name of the command as a plugin of kubectl, which calls the program kubectl-peloton."""


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from cli.version import describe_version

    echo(describe_version())
    ctx.exit()


def start(**options: Any) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or the library reports every lost connection on stderr
    ctx = click.get_current_context()
    is_json, output = options.pop("json"), options.pop("output")
    ctx.obj = Settings(output=output or ("json" if is_json else ""), **options)
    ctx.call_on_close(ctx.obj.close)


HELP = """Run jobs on a cluster that many teams share.

Global options may stand before or after the command's name. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130
interrupted.

\b
Start everything on this machine, then run a first job:
  peloton up
  peloton respool create /tutorial examples/tutorial/pool.yaml
  peloton job create /tutorial examples/tutorial/hello.yaml --watch
"""

peloton = Root(
    name="peloton",
    entries=ENTRIES,
    callback=start,
    help=HELP,
    params=[
        *global_options(defaults=True),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=print_version,
            help="Print the version and exit.",
        ),
    ],
    context_settings={"max_content_width": 110},
)


def main() -> None:
    substitute_unprintable(sys.stdout, sys.stderr)
    try:
        peloton(prog_name=PLUGIN if os.path.basename(sys.argv[0]) == "kubectl-peloton" else "peloton")
    except SystemExit as end:
        if isinstance(end.code, int) and end.code and "temporalio.bridge.runtime" in sys.modules:
            leave(end.code)
        raise


def leave(code: int) -> None:
    """End the process at once: a Temporal client that never connected may crash in the interpreter's orderly end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
