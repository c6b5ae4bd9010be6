"""``peloton admin gate``: the admission policies that make pods of a Kubernetes cluster wait for their pools."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.command import Command, Group
from cli.errors import Failed
from cli.terminal import echo

if TYPE_CHECKING:
    from services.hostmgr.kubernetes.apiserver.wire import ApiServer
    from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the cluster."""
    default = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    command = click.option("--context", metavar="NAME", default="", help="Context of the kubeconfig.")(command)
    return click.option(
        "--kubeconfig", metavar="FILE", default=default, show_default="that of kubectl",
        help="Kubeconfig of an administrator of the cluster.",
    )(command)  # fmt: skip


kinds_option = click.option(
    "--owner-kinds", metavar="FILE", default="",
    help="YAML file with further kinds of owners, that of PELOTON_KUBERNETES_OWNER_KINDS of the host manager.",
)  # fmt: skip


nodes_option = click.option(
    "--node-selector", metavar="LABELS", default="",
    help="KEY=VALUE,... of nodes for pods, that of PELOTON_KUBERNETES_NODE_SELECTOR of the host manager.",
)  # fmt: skip


@click.group(cls=Group)
def gate() -> None:
    """Install, check and uninstall the gate of a Kubernetes cluster.

    With it pods of namespaces with the label peloton.io/pool wait until their pool admits them.
    docs/kubernetes/gate.md has its rules.
    """


@gate.command(cls=Command)
@cluster_options
@click.option(
    "--failure-policy", type=click.Choice(["Fail", "Ignore"]), default="Fail", show_default=True,
    help="What happens to pods that a policy cannot evaluate: they are rejected, or pass without the gate.",
)  # fmt: skip
@click.option(
    "--owners", type=click.Choice(["suspend", "gate"]), default="suspend", show_default=True,
    help="How Jobs and other owners that can be suspended wait: suspended, without pods, or with gated pods.",
)  # fmt: skip
@kinds_option
@nodes_option
def install(
    kubeconfig: str, context: str, failure_policy: str, owners: str, owner_kinds: str, node_selector: str
) -> None:
    """Install or update the policies, after a proof by dry runs in a namespace of its own.

    \b
    Examples:
      peloton admin gate install
      peloton admin gate install --kubeconfig admin.conf --failure-policy Ignore
      peloton admin gate install --owner-kinds kinds.yaml
      peloton admin gate install --node-selector peloton.io/nodes=batch
    """
    from services.hostmgr.kubernetes.gates import installation

    with _apiserver(kubeconfig, context) as api:
        kinds, nodes = _read_kinds(owner_kinds), _read_nodes(node_selector)
        suspends = owners == "suspend"
        installation.install(api, failure_policy, echo, suspends_owners=suspends, kinds=kinds, nodes=nodes)
    echo("label a namespace to gate its pods: kubectl label namespace NAME peloton.io/pool=POOL")


@gate.command(cls=Command)
@cluster_options
@kinds_option
@nodes_option
def check(kubeconfig: str, context: str, owner_kinds: str, node_selector: str) -> None:
    """Check that the policies are those of this release; ends with status 1 if not.

    \b
    Example:
      peloton admin gate check
    """
    from services.hostmgr.kubernetes.gates import installation

    with _apiserver(kubeconfig, context) as api:
        faults, count = installation.check(api, _read_kinds(owner_kinds), _read_nodes(node_selector))
    for fault in faults:
        echo(fault)
    echo(f"{count} pods wait with the gate")
    if faults:
        raise Failed("the gate is not installed as this release has it: peloton admin gate install")


@gate.command(cls=Command)
@cluster_options
@kinds_option
def uninstall(kubeconfig: str, context: str, owner_kinds: str) -> None:
    """Remove the policies, then the gates of all waiting pods, and resume owners that wait.

    It may be repeated, and works without Peloton.

    \b
    Example:
      peloton admin gate uninstall
    """
    from services.hostmgr.kubernetes.gates import installation

    with _apiserver(kubeconfig, context) as api:
        count = installation.uninstall(api, echo, _read_kinds(owner_kinds))
    echo(f"removed the gate of {count} pods, or the suspension of their owners")


def _read_kinds(path: str) -> tuple[OwnerKind, ...]:
    from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds

    return read_kinds(path)


def _read_nodes(text: str) -> tuple[tuple[str, str], ...]:
    from services.hostmgr.kubernetes.settings import read_node_selector

    return read_node_selector(text)


@contextmanager
def _apiserver(kubeconfig: str, context: str) -> Iterator[ApiServer]:
    """Connect to the cluster; turn its errors into those of a command."""
    from peloton.errors import InvalidArgument
    from services.hostmgr.kubernetes.apiserver.access import read_access
    from services.hostmgr.kubernetes.apiserver.wire import ApiServer
    from services.hostmgr.kubernetes.gates.installation import NotProved

    try:
        api = ApiServer(read_access(kubeconfig, context))
        try:
            yield api
        finally:
            api.close()
    except NotProved as error:
        raise Failed(f"the policies do not work in this cluster: {error}") from error
    except (InvalidArgument, OSError) as error:
        raise Failed(str(error)) from error
