"""Random lives of databases in virtual time: a volume is never in two pods, and is never replaced automatically."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.storage.volumes import rows
from tests.nightly import NIGHTLY, lives
from tests.simulation.volume_life import VolumeLife

ACTS = {"lead", "restart", "fail", "lose_host", "return_host"}


@pytest.mark.parametrize(("seed", "steps"), lives((1, 400), steps=700))
def test_a_random_life(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """No volume is in two pods or places after any step, and earlier writes are there; in the end all instances run.

    PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones.
    """
    with VolumeLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        assert ACTS <= {name for name, count in life.done.items() if count}
        assert any(len(had) > 1 for had in life.seen.values())
        assert life.unmade


# What would go wrong is noticed.


@NIGHTLY
def test_a_rule_that_is_forgotten_is_noticed(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life fails with the broken invariant, and with the seed and the step that repeat it."""
    monkeypatch.setattr(rows, "volumes_of", lambda *given: {})  # each launch makes a volume of its own

    def live() -> None:
        with VolumeLife(1, template, tmp_path) as life:
            life.live(700)
            life.end()

    with pytest.raises(AssertionError, match="seed 1, step") as noticed:
        live()
    assert "nobody gave" in str(noticed.value).splitlines()[0]
