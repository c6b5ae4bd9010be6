"""The minicluster answers as the real master and agents did in the recordings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.minicluster.differences import ACCEPTED, NOT_REPLAYED, Accepted
from tests.conformance.minicluster.paced import ReplayLoop
from tests.conformance.minicluster.plan import Found
from tests.conformance.minicluster.plans import PLANS
from tests.conformance.minicluster.recording import FOLDER, load
from tests.conformance.minicluster.replayer import Replay

pytestmark = pytest.mark.xdist_group("mesos recordings")  # so that one worker replays them, once


async def _replay(key: str, folder: Path) -> list[Found]:
    plan = PLANS[key]
    return await Replay(load(plan.name), plan, folder).run()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    """All replays, once."""
    folder, found = tmp_path_factory.mktemp("minicluster"), {}
    for key in PLANS:
        with asyncio.Runner(loop_factory=ReplayLoop) as runner:
            found[key] = runner.run(_replay(key, folder / key))
    return found


def _list_accepted(key: str, item: Found) -> list[Accepted]:
    name = load(PLANS[key].name).name
    return [entry for entry in ACCEPTED if entry.covers(name, item.where, item.path)]


@pytest.mark.parametrize("key", sorted(PLANS))
def test_recording(key: str, found: dict[str, list[Found]]) -> None:
    """Statuses, texts, headers and events are the recorded ones, but for the accepted differences."""
    surprising = [str(item) for item in found[key] if not _list_accepted(key, item)]

    assert [] == surprising


def test_every_accepted_difference_is_needed(found: dict[str, list[Found]]) -> None:
    """An entry of the table that nothing uses is a difference that is gone."""
    used = {entry for key, items in found.items() for item in items for entry in _list_accepted(key, item)}

    assert [] == [entry for entry in ACCEPTED if entry not in used]


def test_every_recording_is_replayed_or_says_why_not() -> None:
    """No recording is left out silently."""
    replayed = {load(plan.name).name for plan in PLANS.values()}
    left_out = {path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.gz")} - replayed

    assert left_out == {name for name in NOT_REPLAYED if " " not in name}
