"""Clusters and browsers that the tests of one group (``xdist_group``) share.

They end before a test of another group begins: an idle cluster takes a share of the cores that other tests need, and a
browser keeps an event loop in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class Shared:
    """One instance per worker, see the fixture ``shared``."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the resource of this key, which is made when it is first asked for."""
        if key not in self._made:
            self._made[key] = self._stack.enter_context(make())
        found: T = self._made[key]
        return found

    def close(self) -> None:
        """End all resources, the newest first."""
        self._made.clear()
        self._stack.close()


def group_of(item: pytest.Item | None) -> str:
    """Return the name of the item's group, or "" if it has none."""
    mark = item.get_closest_marker("xdist_group") if item is not None else None
    return str(mark.args[0]) if mark is not None else ""
