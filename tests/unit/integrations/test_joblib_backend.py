"""joblib runs its calls by the executor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import joblib
import pytest

import peloton.integrations.joblib  # noqa: F401  (registers the backend)
from peloton.integrations.futures import PelotonExecutor


class Threads(ThreadPoolExecutor):
    instances_max = 2


def test_parallel_runs_by_the_executor() -> None:
    """Results come in order, an error is raised, and n_jobs is limited by the executor."""
    with Threads() as threads, joblib.parallel_config("peloton", n_jobs=50, executor=cast(PelotonExecutor, threads)):
        assert [0, 1, 4, 9] == joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(4))
        assert 2 == joblib.effective_n_jobs()
        with pytest.raises(ValueError, match="invalid literal"):
            joblib.Parallel()(joblib.delayed(int)("x") for _ in range(4))
