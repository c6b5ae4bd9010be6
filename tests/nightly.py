"""The mark of tests that ``make nightly`` runs and ``make test`` leaves out.

``make test`` proves each behaviour once. Nightly are further seeds and kinds of clusters, faults of the product that
the simulation must notice, small runs of the benchmarks, and stories of more than half a minute that shorter tests
cover in parts.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

NIGHTLY = pytest.mark.nightly


def nightly(*values: Any) -> Any:
    """A value of ``parametrize`` or of a fixture's ``params`` whose tests are nightly."""
    return pytest.param(*values, marks=NIGHTLY)


def seeds(default: str) -> list[Any]:
    """Seeds of random lives: those of PELOTON_TEST_SEEDS (as in 1,2,3), or the default, of which only the first one is
    played by ``make test``."""
    if chosen := os.environ.get("PELOTON_TEST_SEEDS", ""):
        return [int(seed) for seed in chosen.split(",")]
    first, *others = (int(seed) for seed in default.split(","))
    return [first, *map(nightly, others)]
