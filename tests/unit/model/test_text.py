"""Untrusted text is escaped and cut before it is quoted or printed."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from peloton.model.text import MULTI_LINE, QUOTED_MAX, control_character_fault, escape, is_printable, quote, shorten

LONG = "n" * 50_000_000
DIRECTION = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK"}


def is_steering(character: str) -> bool:
    """Return whether the Unicode database classifies the character as controlling a terminal."""
    category = unicodedata.category(character)
    if category != "Cf":
        return category in ("Cc", "Cs", "Zl", "Zp")
    return unicodedata.bidirectional(character) in DIRECTION or unicodedata.name(character, "") in MARKS


def test_control_characters_are_those_of_unicode() -> None:
    """The escaped characters are exactly the controlling ones among all of Unicode."""
    wrong = []
    for start in range(0, sys.maxunicode + 1, 256):
        block = [chr(code) for code in range(start, start + 256)]
        if not is_printable("".join(block)) or any(map(is_steering, block)):
            wrong += [hex(ord(one)) for one in block if is_steering(one) == is_printable(one)]

    assert [] == wrong


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("x\x1b[31m", "", r"x\x1b[31m"),
        ("a\x1b]0;title\x07b", "", r"a\x1b]0;title\x07b"),
        ("gnp\u202egpj", "", r"gnp\u202egpj"),
        ("one\ntwo\tthree\r", MULTI_LINE, "one\ntwo\tthree\\x0d"),
        ("\x9b31m\u2028", "", r"\x9b31m\u2028"),
        ("Zürich 東京 👩\u200d🚀", "", "Zürich 東京 👩\u200d🚀"),
    ],
)
def test_escape(text: str, allowed: str, expected: str) -> None:
    """Letters of any script and joiners are unchanged."""
    assert expected == escape(text, allowed)


def test_quotes_are_cut() -> None:
    """The quote has the length of the text."""
    end = "... (50,000,000 characters)"

    assert ("n" * QUOTED_MAX + end, f"'{'n' * QUOTED_MAX}'{end}") == (shorten(LONG), quote(LONG))


def test_short_quotes_are_whole() -> None:
    """Short quotes are complete and have no length."""
    assert (r"eng\x1b", r"'eng\x1b'") == (shorten("eng\x1b"), quote("eng\x1b"))


def test_the_fault_names_field_and_character() -> None:
    """The fault has the place of the character, since the quote may end before it."""
    expected = (
        r"name 'a\u202eb' contains \u202e (U+202E) at 1: control characters and characters that change the direction "
        "of text are not allowed"
    )

    assert expected == control_character_fault("name", "a\u202eb")
    assert r"contains \x07 (U+0007) at 50000000" in control_character_fault("name", f"{LONG}\a")


def test_prose_may_have_lines() -> None:
    """A description may contain line ends and tabs, and a name may not."""
    assert ("", True) == (
        control_character_fault("description", "a\n\tb", MULTI_LINE),
        bool(control_character_fault("name", "a\nb")),
    )
