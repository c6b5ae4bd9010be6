"""Rules of words hold, within a budget that falls: docstrings begin with a verb or their noun and name the actor,
functions are verbs.
"""

from __future__ import annotations

import pytest

from tests.unit.tidy import PACKAGES, python_files, tree_of
from tests.unit.tidy_words import word_faults

BUDGETS = {
    "product": {"odd": 0, "riddles": 4, "participles": 457},
    "tests": {"odd": 0, "riddles": 0, "participles": 388},
}
"""Faults that are left: riddles of the product are in help texts."""
SPARE = 20
"""Distance of a budget above its count from which the budget has to be lowered."""
SHOWN_MAX = 20


@pytest.mark.parametrize("part", BUDGETS)
def test_words_stay_within_their_budget(part: str) -> None:
    """No change adds a docstring, a word or a name of the old idiom; a change that removes some lowers the budget."""
    folders = PACKAGES if part == "product" else ("tests",)
    found = word_faults((path, tree_of(path)) for path in python_files(*folders))
    faults = {"odd": found.odd, "riddles": found.riddles, "participles": found.participles}

    for kind, budget in BUDGETS[part].items():
        some = "\n".join(faults[kind][-SHOWN_MAX:])
        count = len(faults[kind])
        assert count <= budget, f"{part}: {count} {kind}, budget {budget}; the last of them:\n{some}"
        assert count + SPARE >= budget, f"{part}: only {count} {kind} are left: lower the budget from {budget}"
