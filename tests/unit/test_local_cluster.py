"""How the local cluster starts its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.local.cluster import LocalCluster, LocalSettings
from services.minicluster.command import settings_of


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize(("index", "name"), [(1, ""), (2, "west")])
def test_each_emulated_cluster_treats_disks_as_asked(wanted: bool, index: int, name: str, tmp_path: Path) -> None:
    """Also those beside the first one."""
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
    """Those of other clusters begin with its name. Variables of simulated pods have Peloton's names."""
    settings = LocalSettings(data_dir=tmp_path, simulate=simulate, more_clusters=("west",))
    cluster = LocalCluster(settings, lambda part, line: None)

    found = [settings_of(cluster.minicluster_arguments(index, name)) for index, name in ((1, ""), (2, "west"))]

    assert names.split() == [each.hosts[0].name for each in found]
    if simulate:
        assert {"PELOTON_SIMULATE"} == {each.task_variables for each in found}


def test_no_two_clusters_have_a_port_in_common(tmp_path: Path) -> None:
    """Their pods are processes of one machine."""
    settings = LocalSettings(data_dir=tmp_path, more_clusters=("west", "east"))
    cluster = LocalCluster(settings, lambda part, line: None)

    found = [
        settings_of(cluster.minicluster_arguments(index, name)) for index, name in enumerate(("", "west", "east"), 1)
    ]

    ranges = [pair for each in found for host in each.hosts for pair in host.ports]
    ports = [port for begin, end in ranges for port in range(begin, end + 1)]
    assert len(ports) == len(set(ports)) > 990
