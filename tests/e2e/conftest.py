"""Give the stories their clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster
from tests.e2e.shared import Lend, lender
from tests.sharing import Shared

STARTED = {
    "test_elastic_pools",
    "test_pressure",
    "test_real_kubelet",
    "test_upgrade",
}
"""Modules whose clusters start each process as users do: their stories may be about what such a process takes, or about
its start. In all others the roles of clusters are forked."""


@pytest.fixture(autouse=True, scope="module")
def forked_roles(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] not in STARTED:
            patch.setattr(Cluster, "made_of", ForkedCluster)
        yield


@pytest.fixture(scope="session")
def lend(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Lend:
    return lender(shared, tmp_path_factory.mktemp)
