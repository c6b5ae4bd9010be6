"""Every page of the app, from the table that the app itself reads, so that tests cover a new page automatically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.web import app

TABLE = Path(app.__file__).parent / "app" / "pages.json"


@dataclass(frozen=True)
class Page:
    name: str
    path: str  # with ":id" and the like for parts that are given
    title: str

    def address(self, given: Mapping[str, str]) -> str:
        """Return the path of the page. ``given``: values by their place in the path, ``jobs/:id`` for one. Raises
        LookupError naming a missing one.
        """
        if lacking := [place for place in self._places() if place not in given]:
            raise LookupError(f"page {self.name}: tests/browser/world.py gives nothing for {lacking[0]}")
        parts = self.path.strip("/").split("/")
        ways = ["/".join(parts[: index + 1]) for index in range(len(parts))]
        return "/" + "/".join(given.get(way, part) for way, part in zip(ways, parts, strict=True))

    def is_given(self, given: Mapping[str, str]) -> bool:
        return all(place in given for place in self._places())

    def _places(self) -> list[str]:
        parts = self.path.strip("/").split("/")
        return ["/".join(parts[: index + 1]) for index, part in enumerate(parts) if part.startswith(":")]


def pages() -> list[Page]:
    return [Page(one["name"], one["path"], one["title"]) for one in json.loads(TABLE.read_text(encoding="utf-8"))]
