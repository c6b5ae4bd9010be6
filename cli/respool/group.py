"""``peloton respool``: the tree of resource pools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from cli import explain
from cli.command import Group
from cli.config_file import load_config
from cli.errors import Failed
from cli.output import Row, Table, as_json, as_yaml, print_list, print_message, print_outcome
from cli.params import CONFIG_FILE, POOL_PATH
from cli.pools import ROOT_ID, UNITS, number, pool_id_at
from cli.refusals import raise_if_refused
from cli.respool import history, tree
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.text import shorten

TABLE: Table[Row] = Table(
    "Path", "Kind", "Reservation", "Limit", "Share", "Allocation", "Slack",
    whole=["Path", "Kind"],
    spare=["Slack", "Share", "Limit"],
)  # fmt: skip
UNLIMITED = 1e15  # limits from here on stand for "no limit"


@click.group(cls=Group)
def respool() -> None:
    """Divide the cluster into resource pools.

    Pools form a tree; jobs run in its leaves. POOL is a path such as /eng/maps, and / is the whole cluster.
    """


def read_config(settings: Settings, path: str, config: Path) -> v0.respool.ResourcePoolConfig:
    """Return the file's content with the name and parent of the path. The file may repeat the name, or the path."""
    if path == "/":
        raise Failed("/ is the root pool: it is the whole cluster and has no configuration file")
    pool_config = load_config(config, v0.respool.ResourcePoolConfig)
    parent_path, _, name = path.rpartition("/")
    pool_config.name = {"": name, path: name}.get(pool_config.name, pool_config.name)
    if name != pool_config.name:
        raise Failed(f"resource pool name in path:{shorten(name)} and config:{shorten(pool_config.name)} don't match")
    if pool_config.HasField("parent"):
        raise Failed("parent should not be supplied in the config")
    pool_config.parent.value = pool_id_at(settings.client, parent_path or "/", what="parent")
    return pool_config


@respool.command()
@click.argument("path", metavar="POOL", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@pass_settings
def create(settings: Settings, path: str, config: Path) -> None:
    """Create the pool POOL from the YAML file CONFIG, which may repeat the name, the last part of the path.

    \b
    Examples:
      peloton respool create /tutorial examples/tutorial/pool.yaml
      peloton respool create /tutorial/maps examples/maps.yaml
    """
    request = v0.respool.CreateRequest(config=read_config(settings, path, config))
    response = settings.client.respools.CreateResourcePool(request)
    texts = {
        "alreadyExists": "Resource Pool at {path} already exists: {message}",
        "invalidResourcePoolConfig": "Invalid resource pool config: {message}",
    }
    raise_if_refused(settings, response, texts, path=path)
    print_outcome(settings, response, f"Resource Pool {response.result.value} created at {path}")
    warn(settings, response.warnings)


@respool.command()
@click.argument("path", metavar="POOL", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@click.option("--force", "-f", is_flag=True, help="Skip the API's validation; asks whether you are sure.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@pass_settings
def update(settings: Settings, path: str, config: Path, force: bool, yes: bool) -> None:
    """Replace the configuration of POOL by the YAML file CONFIG.

    \b
    Example:
      peloton respool update /tutorial examples/tutorial/pool.yaml
    """
    question = f"Are you sure that {path} shall be updated without validation?"
    if force and not yes and not click.confirm(question, default=False, prompt_suffix=" (y/N): ", show_default=False):
        raise Failed("nothing updated")
    pool_id = pool_id_at(settings.client, path)
    request = v0.respool.UpdateRequest(
        id=v0.peloton.ResourcePoolID(value=pool_id), config=read_config(settings, path, config), Force=force
    )
    response = settings.client.respools.UpdateResourcePool(request)
    texts = {
        "notFound": "Resource Pool {id} not found: {message}",
        "invalidResourcePoolConfig": "Invalid resource pool config: {message}",
    }
    raise_if_refused(settings, response, texts, id=pool_id)
    print_outcome(settings, response, f"Resource Pool {pool_id} updated")
    warn(settings, response.warnings)


def warn(settings: Settings, warnings: Iterable[str]) -> None:
    """Print warnings; with ``--json`` they are a part of the response."""
    for text in () if settings.is_for_programs else warnings:
        echo(f"Warning: {text}", err=True)


@respool.command()
@click.argument("path", metavar="POOL", type=POOL_PATH)
@pass_settings
def delete(settings: Settings, path: str) -> None:
    """Delete a pool that has no children and that no job uses."""
    request = v0.respool.DeleteRequest(path=v0.respool.ResourcePoolPath(value=path))
    response = settings.client.respools.DeleteResourcePool(request)
    texts = {
        "notFound": "Resource Pool {path} not found: {message}",
        "isBusy": "Resource Pool {path} is busy: {message}",
        "isNotLeaf": "Resource Pool {path} is not a leaf: {message}",
        "notDeleted": "Resource Pool {path} was not deleted: {message}",
    }
    raise_if_refused(settings, response, texts, path=path)
    print_outcome(settings, response, f"Resource Pool {path} is deleted")


@respool.command()
@click.argument("path", metavar="POOL", type=POOL_PATH, default="/")
@pass_settings
def get(settings: Settings, path: str) -> None:
    """Print one pool: configuration, usage and children. Without POOL the root."""
    pool_id = ROOT_ID if path == "/" else pool_id_at(settings.client, path)
    request = v0.respool.GetRequest(id=v0.peloton.ResourcePoolID(value=pool_id))
    response = settings.client.respools.GetResourcePool(request)
    raise_if_refused(settings, response, {"notFound": "Resource Pool {path} not found: {message}"}, path=path)
    print_message(settings, response.poolinfo, [path])


@respool.command()
@click.option("--format", "form", type=click.Choice(["yaml", "yml", "json"]), default="yaml", show_default=True,
              help="How to print.")  # fmt: skip
@pass_settings
def dump(settings: Settings, form: str) -> None:
    """Print the whole tree: every pool with its configuration and usage, parents before children.

    \b
    Example:
      peloton respool dump --format json
    """
    pools = pools_by_path(settings)
    if settings.output == "name":
        echo("\n".join(pool.path.value or "/" for pool in pools))
    elif settings.json or (form == "json" and not settings.output):
        echo(json.dumps([json.loads(as_json(pool)) for pool in pools], indent=2))
    else:
        echo("\n".join("- " + as_yaml(pool).replace("\n", "\n  ") for pool in pools) or "[]")


@respool.command("list")
@pass_settings
def list_pools(settings: Settings) -> None:
    """List all pools with reservation, limit, share and what is in use, a line for each kind of resource."""
    pools = pools_by_path(settings)
    response = v0.respool.QueryResponse(resourcePools=pools)
    rows = (row for pool in pools for row in pool_rows(pool))
    print_list(settings, response, TABLE, rows, (pool.path.value or "/" for pool in pools))


def pools_by_path(settings: Settings) -> list[v0.respool.ResourcePoolInfo]:
    response = settings.client.respools.Query(v0.respool.QueryRequest())
    raise_if_refused(settings, response, {})
    return sorted(response.resourcePools, key=lambda pool: pool.path.value.split("/"))


def pool_rows(pool: v0.respool.ResourcePoolInfo) -> Iterator[tuple[object, ...]]:
    usage = {each.kind: each for each in pool.usage}
    path = pool.path.value or "/"
    if not pool.config.resources:
        yield (path, *[""] * (len(TABLE.header) - 1))
    for resource in pool.config.resources:
        used = usage.get(resource.kind)
        yield (
            path,
            UNITS.get(resource.kind, resource.kind),
            number(resource.reservation),
            "unlimited" if resource.limit >= UNLIMITED else number(resource.limit),
            number(resource.share),
            number(used.allocation if used else 0),
            number(used.slack if used else 0),
        )


for command in (tree.tree, history.history, explain.why_pool, explain.plan_pool):
    respool.add_command(command)
