"""How the local cluster starts its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.local.cluster import LocalCluster, LocalSettings
from services.minicluster.__main__ import settings_of


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
