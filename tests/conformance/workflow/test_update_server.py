"""Rollouts on a real Temporal server: the job's workflow and the update's, in the worker's sandbox."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from tests.nightly import nightly
from tests.workflow.record_histories import (
    Recipe,
    update_in_batches,
    update_in_place,
    update_rolled_back,
    update_steered,
    update_with_failing_steps,
)


@pytest.mark.parametrize(
    "recipe",
    [
        update_in_batches,
        update_rolled_back,
        *map(nightly, (update_in_place, update_steered, update_with_failing_steps)),
    ],
    ids=lambda recipe: recipe.__name__,
)
async def test_story(recipe: Recipe, client: Client) -> None:
    """The stories that histories are recorded of hold, and replay."""
    await recipe(client)
