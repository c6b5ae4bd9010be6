"""Stories of workflows on a real Temporal server; histories are recorded of the same ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from temporalio.client import Client

from tests.nightly import first_of
from tests.workflow import daemon_stories, maintenance_stories, migration_stories, rebalance_stories, schedule_stories

MODULES = (daemon_stories, maintenance_stories, migration_stories, rebalance_stories, schedule_stories)
RECIPES = [recipe for stories in MODULES for recipe in first_of(stories.RECIPES)]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
async def test_a_story(client: Client, recipe: Callable[[Client], Awaitable[str]]) -> None:
    """The story ends as it says, and its histories replay."""
    await recipe(client)
