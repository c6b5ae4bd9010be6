"""Which stories fork the roles of their clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster

FORKED = {
    "test_batch_jobs",
    "test_bench",
    "test_both_kinds",
    "test_clusters",
    "test_engine_away",
    "test_explain",
    "test_gangs",
    "test_heavy_jobs",
    "test_host_advice",
    "test_host_pools",
    "test_host_trouble",
    "test_http_api",
    "test_images",
    "test_kubernetes",
    "test_maintenance",
    "test_lost_wake_ups",
    "test_master_away",
    "test_oversubscription",
    "test_pools_for_kubectl",
    "test_preemption",
    "test_random_life",
    "test_real_kubernetes",
    "test_real_kubernetes_faults",
    "test_rebalance",
    "test_sandbox_removal",
    "test_sandboxes",
    "test_scale_out",
    "test_self_healing",
    "test_service_placement",
    "test_services",
    "test_simulated_hosts",
    "test_stateful",
    "test_stateful_kubernetes",
    "test_udeploy",
    "test_unplaceable",
    "test_volume_life",
    "test_web_ui",
}
"""Modules of stories about what clusters do. In others processes are started as users start them: those stories may be
about what such a process takes, or about its start."""


@pytest.fixture(autouse=True, scope="module")
def forked_roles(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] in FORKED:
            patch.setattr(Cluster, "made_of", ForkedCluster)
        yield
