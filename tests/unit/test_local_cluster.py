"""How the local cluster starts its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.local.cluster import LocalCluster, LocalSettings
from services.minicluster.__main__ import settings_of


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize(("index", "name"), [(1, ""), (2, "west")])
def test_each_emulated_cluster_enforces_disk_quotas_as_asked(
    wanted: bool, index: int, name: str, tmp_path: Path
) -> None:
    """Also those beside the first one."""
    cluster = LocalCluster(
        LocalSettings(data_dir=tmp_path, enforce_disk_quota=wanted, more_clusters=("west",)), lambda part, line: None
    )

    assert wanted is settings_of(cluster.minicluster_arguments(index, name)).enforce_disk_quota
