"""Command of the emulated Kubernetes: makes settings of options, and runs the server until it receives a signal."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from pathlib import Path
from typing import Any

import click

from services.lab.kubernetes.kubeconfig import read_or_make_token
from services.lab.kubernetes.nodes.options import node_options, nodes_from
from services.lab.kubernetes.server import EmulatedKubernetes
from services.lab.kubernetes.settings import EmulatedKubernetesSettings
from services.lab.kubernetes.store import EVENTS_MAX
from services.lab.shared.commands import FILE, FOLDER, stop_event, tune_garbage_collector
from services.lab.shared.http.tls import tls_context
from services.lab.shared.yaml_rows import PORT_MAX

HELP = """Run an emulated Kubernetes: an apiserver with its store and its nodes, in one process.

It writes a kubeconfig with a token into its data folder. What is in the store outlives the process; after a restart
watches from an earlier version have to list again, as with a real apiserver.
"""


@click.command("emulated-kubernetes", help=HELP, context_settings={"show_default": True, "max_content_width": 110})
@click.option(
    "--port", default=0, type=click.IntRange(0, PORT_MAX), metavar="PORT", help="Port to listen on, 0 for any."
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A further name, besides localhost, by which clients may call it.",
)
@click.option("--data", default="kubernetes-data", type=FOLDER, help="Folder of the kubeconfig and the store.")
@click.option(
    "--events", default=EVENTS_MAX, type=click.IntRange(1), metavar="N", help="Events of a resource that are kept."
)
@click.option("--tls-cert", type=FILE, help="Speak TLS with this certificate; its key is in the same file.")
@click.option("--tls-ca", type=FILE, help="Authority of the certificate, for the kubeconfig.")
@node_options
def run_emulated_kubernetes(**options: Any) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(_serve(settings_from(options)))
    except OSError as error:
        raise click.ClickException(str(error)) from error


def settings_from(options: dict[str, Any]) -> EmulatedKubernetesSettings:
    data_dir: Path = options["data"]
    return EmulatedKubernetesSettings(
        data_dir=data_dir,
        port=options["port"],
        host=options["host"],
        token=read_or_make_token(data_dir / "kubeconfig"),
        allowed_hosts=options["allow_host"],
        events_max=options["events"],
        nodes=nodes_from(options),
        tls=_tls_of(options),
        ca_file=options["tls_ca"].resolve() if options["tls_ca"] else None,
    )


def _tls_of(options: dict[str, Any]) -> ssl.SSLContext | None:
    if bool(options["tls_cert"]) != bool(options["tls_ca"]):
        raise click.UsageError("--tls-cert and --tls-ca go together")
    try:
        return tls_context(options["tls_cert"]) if options["tls_cert"] else None
    except ValueError as error:
        raise click.UsageError(str(error)) from error


async def _serve(settings: EmulatedKubernetesSettings) -> None:
    tune_garbage_collector()
    stop = stop_event()
    cluster = EmulatedKubernetes(settings)
    try:
        await cluster.start()
        click.echo(f"emulated Kubernetes: apiserver at {settings.host}:{cluster.port}, {cluster.kubeconfig}")
        await stop.wait()
    finally:
        await cluster.stop()
