"""The screen of `peloton top`: its lines of text, and keys."""

from __future__ import annotations

import asyncio
import html
import re
from collections import defaultdict
from collections.abc import Callable

from textual.pilot import Pilot

from cli.top.app import TopApp

TIMEOUT_S = 60.0
CHARACTER_WIDTH = 12.2
"""Width of a character in a screenshot."""


class Screen:
    """The text on the terminal, and the keys."""

    def __init__(self, pilot: Pilot[None], app: TopApp) -> None:
        self.pilot, self.app = pilot, app

    @property
    def lines(self) -> list[str]:
        return screen_lines(self.app.export_screenshot())

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.press("slash", *({":": "colon", "/": "slash", " ": "space"}.get(key, key) for key in text), "enter")

    async def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the condition holds for the lines, and return them."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition(lines := self.lines):
                await self.pilot.pause(0.01)
        return lines

    async def shows(self, *texts: str) -> list[str]:
        try:
            return await self.until(lambda lines: all(text in "\n".join(lines) for text in texts))
        except TimeoutError:
            raise AssertionError(f"{texts} not on the screen:\n" + "\n".join(self.lines)) from None


def table(lines: list[str], title: str) -> list[str]:
    """Return the first word of each row below a header."""
    at = next(index for index, line in enumerate(lines) if line.split()[:1] == [title])
    rows = []
    for line in lines[at + 1 :]:
        if not line.strip():
            break
        rows.append(line.split()[0])
    return rows


def screen_lines(svg: str) -> list[str]:
    """Return the lines of text of a screenshot."""
    parts: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for attributes, content in re.findall(r"<text([^>]*)>([^<]*)</text>", svg):
        found = {key: float(value) for key, value in re.findall(r' (x|y|textLength)="([\d.]+)"', attributes)}
        if "textLength" in found:
            parts[found["y"]].append((found["x"], html.unescape(content).replace("\xa0", " ")))
    lines = []
    for _, pieces in sorted(parts.items()):
        line = ""
        for x, content in sorted(pieces):
            line = line.ljust(round(x / CHARACTER_WIDTH)) + content
        lines.append(line.rstrip())
    return lines
