"""Makes lines of logs safe for a person and a terminal, whatever they hold."""

from __future__ import annotations

from peloton.model.text import escape

LINE_CHARS_MAX = 8_192


def printable(line: str) -> str:
    """Return one line without terminal control characters; a longer one is cut, with its length at the end."""
    shown = escape(line[:LINE_CHARS_MAX], "\t")
    return shown if len(line) <= LINE_CHARS_MAX else f"{shown} ... ({len(line)} characters)"
