"""Requests of people by workflow updates on a real Temporal server."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from tests.nightly import first_of
from tests.workflow.record_histories import Recipe
from tests.workflow.request_stories import RECIPES


@pytest.mark.parametrize("recipe", first_of(RECIPES), ids=lambda recipe: recipe.__name__)
async def test_story(recipe: Recipe, client: Client) -> None:
    """The stories that histories are recorded of hold, and replay."""
    await recipe(client)
