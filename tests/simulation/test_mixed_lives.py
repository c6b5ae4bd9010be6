"""Random lives of all kinds of jobs in virtual time while their cluster is rebalanced."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.model.rebalance import Goal
from peloton.model.volume import VolumeState
from tests.nightly import lives
from tests.simulation.mixed_life import MixedLife

MOVES_IN_FLIGHT_MIN = 2
"""Few moves are: a round begins when the pods of the one before are at rest, or late."""


@pytest.mark.parametrize(("seed", "steps"), lives((5, 200), steps=400))
def test_a_random_life(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """Rebalancing moves only services without volumes, within their SLA and the budget; no volume is in two pods, no
    daemon twice on a host, and no host is overcommitted. Some moves begin while other pods start and end. In the end
    all pods run, and without other acts no pod moves.

    PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones.
    """
    with MixedLife(seed, template, tmp_path) as life:
        life.live(steps)
        assert life.moved_in_flight >= MOVES_IN_FLIGHT_MIN
        life.end()
        life.rest(Goal.FREE, Goal.EMPTY)
        assert 0 == life.rest(Goal.FREE, Goal.EMPTY)
        assert min(life.rules.taken[cause] for cause in ("move", "update", "maintenance", "broken")) > 0
        assert {VolumeState.CREATED} == {row.state for row in life.storage.volumes.page()}
