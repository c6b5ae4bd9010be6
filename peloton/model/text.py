"""Safe quoting and printing of text from users: control characters are escaped, and long text is truncated.

Control characters here are all characters that can change the state of a terminal or the order in which a line is read:
C0 and C1 controls (category Cc), bidirectional formatting (Cf), line and paragraph separators (Zl, Zp) and lone
surrogates (Cs). Characters that only join letters are allowed.
"""

from __future__ import annotations

import re

QUOTED_MAX = 80
"""Maximum characters of a text that an error quotes; the length of a longer text follows the quote."""
ID_CHARS_MAX = 1_000
"""Maximum characters of an id or a pool path in a request. Errors about unknown ids repeat them."""
MULTI_LINE = "\n\t"
"""Control characters that multi-line texts may contain: descriptions, values of labels, output."""

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str, allowed: str = "") -> str:
    r"""Return the text with control characters written as \x1b or \u202e, except those in ``allowed``."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in allowed else _escape_char(match[0]), text)


def is_printable(text: str, allowed: str = "") -> bool:
    """Return whether ``escape`` would change nothing."""
    return all(match[0] in allowed for match in _CONTROL.finditer(text))


def cut(text: str, chars_max: int) -> str:
    """Truncate a long text; its total length follows the beginning."""
    return text[:chars_max] + _length_suffix(text, chars_max)


def shorten(text: str, chars_max: int = QUOTED_MAX) -> str:
    """Return the escaped beginning of a text for an error that quotes it without quotation marks."""
    return escape(text[:chars_max]) + _length_suffix(text, chars_max)


def quote(text: str) -> str:
    """Return the escaped beginning of a text in quotation marks, for errors that quote it."""
    return repr(text[:QUOTED_MAX]) + _length_suffix(text, QUOTED_MAX)


def control_character_fault(field: str, text: str, allowed: str = "") -> str:
    """Return the error for a ``text`` of ``field`` that contains a control character, or ""."""
    for match in _CONTROL.finditer(text):
        if match[0] not in allowed:
            return (
                f"{field} {quote(text)} contains {_escape_char(match[0])} (U+{ord(match[0]):04X}) at {match.start()}: "
                f"control characters and characters that change the direction of text are not allowed"
            )
    return ""


def _escape_char(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _length_suffix(text: str, chars_max: int) -> str:
    return f"... ({len(text):,} characters)" if len(text) > chars_max else ""
