"""Tests of a group (``xdist_group``) run in one worker."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("grouped")
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_group_is_part_of_the_id(request: pytest.FixtureRequest, name: str) -> None:
    """By the id xdist deals tests out."""
    group = "@grouped" if getattr(request.config.option, "loadgroup", False) else ""

    assert request.node.nodeid.endswith(f"[{name}]{group}")
