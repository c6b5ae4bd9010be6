"""The emulated Kubernetes of `peloton up`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.errors import InvalidArgument, NotFound, Unavailable
from services.lab.kubernetes.command import run_emulated_kubernetes, settings_from
from services.lab.kubernetes.kubeconfig import write_kubeconfig
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.local.cluster import LocalCluster, LocalSettings
from services.lab.local.kubernetes import LocalKubernetes
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import Cluster


def parts_of(settings: LocalSettings) -> LocalCluster:
    """Return a cluster with its parts described, and not started."""
    cluster = LocalCluster(settings, lambda part, line: None)
    cluster._host_count()
    cluster._describe_parts()
    return cluster


def nodes_of(cluster: LocalCluster) -> NodeSettings:
    arguments = list(cluster.parts["kubernetes"].argv[3:])
    found = settings_from(run_emulated_kubernetes.make_context("x", arguments).params).nodes
    assert found is not None
    return found


def test_kubernetes_is_one_more_cluster(tmp_path: Path) -> None:
    """Kubernetes is a second cluster besides Mesos, with a host manager of its own and a share of the ports of pods."""
    cluster = parts_of(LocalSettings(port=0, data_dir=tmp_path, kubernetes=0))

    roles = ["temporal", "minicluster", "hostmgr", "resmgr", "api", "worker", "kubernetes", "hostmgr-kubernetes"]
    assert roles == list(cluster.parts)
    environment = cluster.parts["hostmgr-kubernetes"].environment
    assert "kubernetes" == environment["PELOTON_CLUSTER"]
    assert str(tmp_path / "kubernetes" / "kubeconfig") == environment["PELOTON_KUBERNETES"]
    assert "PELOTON_KUBERNETES" not in cluster.parts["hostmgr"].environment
    nodes = nodes_of(cluster)
    assert [f"kubernetes-node-{index}" for index in range(3)] == [host.name for host in nodes.hosts]
    ours = {port for host in nodes.hosts for first, last in host.ports for port in range(first, last + 1)}
    arguments = cluster.minicluster_arguments()
    first, last = map(int, arguments[arguments.index("--task-ports") + 1].split("-"))
    assert ours.isdisjoint(range(first, last + 1))


def test_kubernetes_alone(tmp_path: Path) -> None:
    """The cluster has no Mesos, and simulated nodes."""
    cluster = parts_of(LocalSettings(port=0, data_dir=tmp_path, kubernetes=20, no_mesos=True))

    assert ["temporal", "resmgr", "api", "worker", "kubernetes", "hostmgr-kubernetes"] == list(cluster.parts)
    nodes = nodes_of(cluster)
    assert (20, True) == (len(nodes.hosts), nodes.simulate)
    assert 20 == cluster._host_count()
    assert (
        "" == cluster.parts["hostmgr-kubernetes"].environment["PELOTON_PREFETCH_URL"]
    )  # its nodes are called directly


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-mesos"], "--no-mesos needs --kubernetes"),
        (["--kubernetes", "--no-mesos", "--simulate", "3"], "--no-mesos needs --kubernetes"),
        (["--kubernetes", "--cluster", "kubernetes"], "--kubernetes makes a cluster of the name kubernetes"),
        (["--kubernetes", "100001"], "100001 is not in the range"),
    ],
)
def test_faults_of_options(arguments: list[str], message: str) -> None:
    """Faulty options are rejected before any part starts."""
    result = CliRunner().invoke(peloton, ["up", *arguments])

    assert 2 == result.exit_code
    assert message in result.output


async def test_it_is_asked_with_the_token_of_its_kubeconfig(tmp_path: Path) -> None:
    """Nodes, drills and refusals of the apiserver are requested with the token of the kubeconfig."""
    settings = NodeSettings(tmp_path, (HostSpec("kubernetes-node-0"),), simulate=True)
    with Cluster(tmp_path, nodes=settings, token="t") as server:
        cluster = LocalKubernetes(tmp_path, server.server.port)
        await cluster.wait_until_ready()

        cluster.act_on_node("kubernetes-node-0", "stop")

        assert [{"name": "kubernetes-node-0", "is_up": False, "pods": 0}] == cluster.nodes()
        with pytest.raises(NotFound, match="there is no node 'x'"):
            cluster.act_on_node("x", "start")
        with pytest.raises(InvalidArgument, match="it can be stopped and started"):
            cluster.act_on_node("kubernetes-node-0", "degrade")
        write_kubeconfig(cluster.kubeconfig, "", "another")
        with pytest.raises(InvalidArgument, match="Unauthorized"):
            cluster.nodes()
    with pytest.raises(Unavailable, match="does not answer"):
        cluster.nodes()
