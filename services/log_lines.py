"""Makes lines of logs safe for a person and a terminal, whatever they hold."""

from __future__ import annotations

LINE_CHARS_MAX = 8_192
_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_ESCAPED = {code: f"\\x{code:02x}" for code in _CONTROL if chr(code) != "\t"}


def printable(line: str, most: int = LINE_CHARS_MAX) -> str:
    """One line without control characters, those of terminals among them; what is longer is cut, and says so."""
    cut = line[:most]
    shown = cut.translate(_ESCAPED)
    return shown if len(line) <= most else f"{shown} ... ({len(line)} characters)"
