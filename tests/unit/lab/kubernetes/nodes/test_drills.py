"""Drills with nodes, and the options that describe them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from services.lab.kubernetes.command import run_emulated_kubernetes, settings_from
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

NODES = "/emulation/nodes"


def test_nodes_are_stopped_and_started_over_http(tmp_path: Path) -> None:
    """Nodes stop and start over HTTP; the name of an unknown node is answered with 404."""
    hosts = (HostSpec("a"), HostSpec("b"))
    with Cluster(tmp_path, nodes=NodeSettings(tmp_path, hosts, simulate=True), token="t") as cluster:
        assert {"name": "a", "is_up": False} == cluster.ask("POST", f"{NODES}/a/stop").json
        rows = [{"name": "a", "is_up": False, "pods": 0}, {"name": "b", "is_up": True, "pods": 0}]
        assert rows == cluster.get(NODES, Authorization="Bearer t").json["nodes"]
        assert {"name": "a", "is_up": True} == cluster.ask("POST", f"{NODES}/a/start").json
        answer = cluster.ask("POST", f"{NODES}/c/stop")
        assert (404, "there is no node 'c'; there are a, b") == (answer.status, answer.json["message"])
        assert 405 == cluster.ask("POST", f"{NODES}/a/fly").status
        assert 401 == cluster.get(NODES, Authorization="Bearer x").status


def test_the_summary_of_a_node(tmp_path: Path) -> None:
    """The summary of a node has the usage of each pod that runs there; a node that is down does not answer."""
    path = "/api/v1/nodes/node-1/proxy/stats/summary"
    with Cluster(tmp_path, nodes=NodeSettings(tmp_path, (HostSpec("node-1"),), simulate=True)) as cluster:
        body = pod("a")
        body["spec"]["containers"][0] |= {"command": ["sleep", "1000"], "resources": {"requests": {"memory": "64Mi"}}}
        with cluster.watch(f"{PODS}?watch=1") as watch:
            uid = cluster.create(PODS, body).json["metadata"]["uid"]
            while watch.next()[1]["status"]["phase"] != "Running":
                pass

        (found,) = cluster.get(path).json["pods"]

        assert {"name": "a", "namespace": "default", "uid": uid} == found["podRef"]
        assert 64 * 2**20 == found["memory"]["workingSetBytes"]
        assert 404 == cluster.get("/api/v1/nodes/x/proxy/stats/summary").status
        cluster.ask("POST", f"{NODES}/node-1/stop")
        assert 503 == cluster.get(path).status


def options(tmp_path: Path, *arguments: str) -> NodeSettings | None:
    context = run_emulated_kubernetes.make_context("x", ["--data", str(tmp_path), *arguments])
    return settings_from(context.params).nodes


def test_options_of_nodes(tmp_path: Path) -> None:
    """The options make three nodes with processes and shares of the ports, simulated nodes, or none."""
    three = options(tmp_path, "--prefix", "k-", "--task-ports", "1000-1299")
    assert three is not None
    assert [("k-node-0", ((1000, 1099),)), ("k-node-1", ((1100, 1199),)), ("k-node-2", ((1200, 1299),))] == [
        (host.name, host.ports) for host in three.hosts
    ]
    many = options(tmp_path, "--simulate", "5", "--max-pods", "7")
    assert many is not None
    assert (5, True, 7) == (len(many.hosts), many.simulate, many.pods_max)
    assert options(tmp_path, "--nodes", "0") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--simulation", "x.yaml"], "--simulation needs --simulate N"),
        (["--hosts", "x.yaml", "--simulate", "2"], "exclude each other"),
        (["--simulate", "0"], "between 1 and 200000, got 0"),
        (["--task-ports", "9-1"], "want A-B with 1 <= A <= B <= 65535, got '9-1'"),
    ],
)
def test_faults_of_options(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Each error names the option and its rule."""
    with pytest.raises(click.UsageError, match=message):
        options(tmp_path, *arguments)
