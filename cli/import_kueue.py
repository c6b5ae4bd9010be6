"""``peloton import``: pools from the objects of other queues."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import yaml

from cli.command import Command, Group
from cli.config_file import STANDARD_INPUT
from cli.errors import Failed
from cli.kueue import Json, NotKueue, Translation, documents, translate
from cli.params import CONFIG_FILE
from cli.pools import pool_id_at
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.files import read_file, read_stream

BYTES_MAX = 1 << 26
"""Limit of one file."""


@click.group("import", cls=Group)
def import_() -> None:
    """Make pools of the objects of other queues."""


@import_.command(cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=CONFIG_FILE)
@click.option("--create", is_flag=True, help="Create the pools by the API, instead of printing objects.")
@pass_settings
def kueue(settings: Settings, files: tuple[Path, ...], create: bool) -> None:
    """Translate ClusterQueues, Cohorts and LocalQueues of Kueue in FILEs to pools. - is the standard input.

    Prints objects of kind ResourcePool for `kubectl apply`, and on standard error what has no counterpart. Nothing is
    changed without --create.

    \b
    Examples:
      kubectl get cohorts,clusterqueues,localqueues -A -o yaml | peloton import kueue - > pools.yaml
      kubectl get clusterqueues -o yaml | peloton import kueue - --create
    """
    found = _read(files)
    for note in found.notes:
        echo(f"Note: {note}", err=True)
    if not found.objects:
        raise Failed("there is no Cohort and no ClusterQueue of Kueue in the input")
    if not create:
        echo(yaml.safe_dump_all(found.objects, sort_keys=False).rstrip())
        return
    for item in found.objects:
        _create(settings, item)


def _read(files: tuple[Path, ...]) -> Translation:
    items: list[Json] = []
    for file in files:
        name = "standard input" if file == STANDARD_INPUT else str(file)
        read = (
            read_stream(sys.stdin.buffer, name, BYTES_MAX)
            if file == STANDARD_INPUT
            else read_file(file, "file", BYTES_MAX)
        )
        try:
            items += [one for tree in yaml.safe_load_all(read) for one in documents(tree)]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise Failed(f"{name}: not YAML: {' '.join(str(error).split())}") from None
    try:
        return translate(items)
    except NotKueue as error:
        raise Failed(str(error)) from None


def _create(settings: Settings, item: Json) -> None:
    path = item["spec"]["path"]
    parent, _, name = path.rpartition("/")
    config = v0.respool.ResourcePoolConfig(name=name)
    for each in item["spec"]["resources"]:
        amounts = {key: each[key] for key in ("kind", "reservation", "limit")}
        config.resources.add(share=each.get("share", 1), type=each.get("type", "ELASTIC"), **amounts)
    config.parent.value = pool_id_at(settings.client, parent or "/", what="parent")
    response = settings.client.respools.CreateResourcePool(v0.respool.CreateRequest(config=config))
    texts = {
        "alreadyExists": "Resource Pool at {path} already exists: {message}",
        "invalidResourcePoolConfig": "Invalid resource pool config of {path}: {message}",
    }
    raise_if_refused(settings, response, texts, path=path)
    namespaces = item["spec"].get("namespaces", [])
    advice = "".join(f"\n  kubectl annotate namespace {one} peloton.io/pool={path}" for one in namespaces)
    echo(f"Resource Pool {response.result.value} created at {path}{advice}")
