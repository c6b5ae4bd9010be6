"""Parts of the local cluster, and their arguments."""

from __future__ import annotations

import random
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from services.lab.local.cluster import LocalCluster, LocalSettings
from services.lab.local.ports import is_free
from services.lab.local.temporal_server import own_threads
from services.lab.mesos.command import settings_of
from tests.ports import free_ports


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize(("index", "name"), [(1, ""), (2, "west")])
def test_each_emulated_cluster_treats_disks_as_asked(wanted: bool, index: int, name: str, tmp_path: Path) -> None:
    """Each emulated cluster has the requested disk quota, also the ones besides the first."""
    cluster = LocalCluster(
        LocalSettings(data_dir=tmp_path, enforce_disk_quota=wanted, sandbox_retention_h=2, more_clusters=("west",)),
        lambda part, line: None,
    )

    settings = settings_of(cluster.minicluster_arguments(index, name))

    assert (wanted, 7_200.0) == (settings.enforce_disk_quota, settings.sandbox_retention_s)


@pytest.mark.parametrize(
    ("simulate", "names"), [(0, "peloton-mesos-agent0 west-peloton-mesos-agent0"), (2, "sim-00000 west-sim-00000")]
)
def test_hosts_are_called_as_the_tutorial_calls_them(simulate: int, names: str, tmp_path: Path) -> None:
    """Hosts have the names in the tutorial, with the name of their cluster in other clusters. Variables of simulated
    pods have Peloton's names.
    """
    settings = LocalSettings(data_dir=tmp_path, simulate=simulate, more_clusters=("west",))
    cluster = LocalCluster(settings, lambda part, line: None)

    found = [settings_of(cluster.minicluster_arguments(index, name)) for index, name in ((1, ""), (2, "west"))]

    assert names.split() == [each.hosts[0].name for each in found]
    if simulate:
        assert {"PELOTON_SIMULATE"} == {each.task_variables for each in found}


@pytest.mark.parametrize(("cores", "threads"), [(None, "1"), (1, "1"), (2, "1"), (8, "4")])
def test_temporal_leaves_half_of_the_cores_to_the_roles(
    cores: int | None, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal's server has threads for half of the cores, unless the environment names a number."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)

    assert ({"GOMAXPROCS": threads}, {}) == (own_threads({}), own_threads({"GOMAXPROCS": "3"}))


@pytest.mark.parametrize("is_taken", [False, True])
def test_pages_that_move_to_another_port_say_why(
    is_taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fixed port of the api whose usual port for pages is in use moves the pages, with a reason."""
    [api_port] = free_ports(1)
    ports = range(19_000, 20_000)  # outside OWN_PORTS, of which this cluster and those of other tests take any
    usual_port = next(port for port in random.sample(ports, len(ports)) if is_free(port))
    monkeypatch.setattr("services.lab.local.cluster.WEB_PORT", usual_port)
    with socket.create_server(("127.0.0.1", usual_port if is_taken else 0)):
        cluster = LocalCluster(LocalSettings(data_dir=tmp_path, port=api_port, web=True), lambda part, line: None)

    note = f" (port {usual_port} is in use: another process listens there, or another local cluster has taken it)"
    assert (is_taken, note if is_taken else "") == (cluster.web_port != usual_port, cluster.web_port_note)


def test_pages_of_a_cluster_on_free_ports_say_nothing(tmp_path: Path) -> None:
    """Pages of a cluster on free ports have no reason, as no port was expected."""
    assert "" == LocalCluster(LocalSettings(data_dir=tmp_path, port=0, web=True), lambda part, line: None).web_port_note


@pytest.mark.parametrize("is_taken", [False, True])
def test_the_bridge_has_its_usual_port_where_it_is_free(
    is_taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fixed port of the api puts Aurora's API at its usual port, unless that is in use; a free one does not."""
    api_port, usual_port = free_ports(2)
    monkeypatch.setattr("services.lab.local.cluster.BRIDGE_PORT", usual_port)
    usual_url = f"http://127.0.0.1:{usual_port}/api"
    with socket.create_server(("127.0.0.1", usual_port if is_taken else 0)):
        settings = LocalSettings(data_dir=tmp_path, port=api_port, bridge=True)
        fixed = LocalCluster(settings, lambda part, line: None)
        free = LocalCluster(replace(settings, port=0), lambda part, line: None)
        without = LocalCluster(replace(settings, port=0, bridge=False), lambda part, line: None)

    assert is_taken == (fixed.bridge_url != usual_url)
    assert free.bridge_url not in ("", usual_url)
    assert "" == without.bridge_url


def test_no_two_clusters_have_a_port_in_common(tmp_path: Path) -> None:
    """No two clusters share a port, as their pods are processes of one machine."""
    settings = LocalSettings(data_dir=tmp_path, more_clusters=("west", "east"))
    cluster = LocalCluster(settings, lambda part, line: None)

    found = [
        settings_of(cluster.minicluster_arguments(index, name)) for index, name in enumerate(("", "west", "east"), 1)
    ]

    ranges = [pair for each in found for host in each.hosts for pair in host.ports]
    ports = [port for begin, end in ranges for port in range(begin, end + 1)]
    assert len(ports) == len(set(ports)) > 990
