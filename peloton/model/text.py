"""Safe quoting and printing of text from users: steering characters are escaped, and long text is cut.

A steering character can change the terminal's state or the reading order of a line: the controls C0 and C1 (category
Cc), the marks, embeddings, overrides and isolates of direction (Cf), line and paragraph separators (Zl, Zp) and lone
surrogates (Cs). Characters that only join letters are allowed.
"""

from __future__ import annotations

import re

QUOTED_MAX = 80
"""Maximum characters that an error quotes of one text; the total count follows a longer text."""
ID_CHARS_MAX = 1_000
"""Maximum characters of an id or a pool path in a request, since answers about an unknown one repeat it."""
PROSE = "\n\t"
"""Steering characters allowed in multi-line texts: descriptions, values of labels, output."""

_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str, kept: str = "") -> str:
    r"""Return the text with steering characters written as \x1b or \u202e, except the ones in ``kept``."""
    return _STEERING.sub(lambda match: match[0] if match[0] in kept else _escape_char(match[0]), text)


def is_printable(text: str, kept: str = "") -> bool:
    """Return whether ``escape`` would change nothing."""
    return all(match[0] in kept for match in _STEERING.finditer(text))


def cut(text: str, chars_max: int) -> str:
    """Return the text, or its beginning followed by the total count of characters."""
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
                f"{field} {quote(text)} contains {_escape_char(match[0])} (U+{ord(match[0]):04X}) at {match.start()}: "
                f"control characters and characters that change the direction of text are not allowed"
            )
    return ""


def _escape_char(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _rest(text: str, chars_max: int) -> str:
    return f"... ({len(text):,} characters)" if len(text) > chars_max else ""
