"""Random lives of services on a whole cluster: no more instances are unavailable than the batch and the test's own
faults account for, no decision of Peloton exceeds an SLA, and in the end every instance runs the last configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.local import Cluster, temporary
from tests.e2e.random_life import HOSTS, Life
from tests.nightly import NIGHTLY, seeds

pytestmark = [NIGHTLY, pytest.mark.xdist_group("random-life")]
SEEDS = seeds("1")
STEPS = int(os.environ.get("PELOTON_TEST_STEPS", "30"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_life(seed: int, tmp_path: Path) -> None:
    """A life of each seed ends well; PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones; a failure
    prints its story."""
    with Cluster(temporary(tmp_path, simulate=HOSTS)) as cluster:
        life = Life(cluster, seed)
        try:
            life.live(STEPS)
            life.end()
        finally:
            print(f"PELOTON_TEST_SEEDS={seed} PELOTON_TEST_STEPS={STEPS} plays this again:", *life.story, sep="\n")
            print(f"taken down: {dict(life.rules.taken)}")
        assert life.rules.taken["update"] > 0
