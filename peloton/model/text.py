"""Text that users wrote, made safe to quote and to print: steering characters are escaped, and what is long is cut.

A steering character can make a terminal act, or a line read otherwise than it is stored: the controls C0 and C1
(category Cc), the marks, embeddings, overrides and isolates of direction (Cf), line and paragraph separators (Zl, Zp)
and lone surrogates (Cs). Characters that merely join letters are none.
"""

from __future__ import annotations

import re

QUOTED_MAX = 80
"""Characters that an error quotes of one text; the count of all follows where that is less."""
ID_CHARS_MAX = 1_000
"""Characters of a text that is to be an id or the path of a pool: answers about one that is unknown repeat it."""
PROSE = "\n\t"
"""Steering characters that texts of several lines may hold: descriptions, values of labels, output."""

_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str, kept: str = "") -> str:
    r"""Return the text with steering characters written as \x1b or \u202e, except those in ``kept``."""
    return _STEERING.sub(lambda match: match[0] if match[0] in kept else _escaped(match[0]), text)


def is_printable(text: str, kept: str = "") -> bool:
    """Return whether ``escape`` would change nothing."""
    return all(match[0] in kept for match in _STEERING.finditer(text))


def cut(text: str, chars_max: int) -> str:
    """Return the text or its beginning, which the count of all characters follows."""
    return text[:chars_max] + _rest(text, chars_max)


def shorten(text: str, chars_max: int = QUOTED_MAX) -> str:
    """Return the escaped beginning of a text for an error that quotes it without quotation marks."""
    return escape(text[:chars_max]) + _rest(text, chars_max)


def quote(text: str) -> str:
    """Return the escaped beginning of a text in quotation marks, for errors that quote it."""
    return repr(text[:QUOTED_MAX]) + _rest(text, QUOTED_MAX)


def steering_fault(field: str, text: str, kept: str = "") -> str:
    """Return why ``text`` cannot be the value of ``field``, or "": it contains a steering character."""
    for match in _STEERING.finditer(text):
        if match[0] not in kept:
            return (
                f"{field} {quote(text)} contains {_escaped(match[0])} (U+{ord(match[0]):04X}) at {match.start()}: "
                f"control characters and characters that change the direction of text are not allowed"
            )
    return ""


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _rest(text: str, chars_max: int) -> str:
    return f"... ({len(text):,} characters)" if len(text) > chars_max else ""
