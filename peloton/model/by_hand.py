"""Texts of events that a person wanted. The name of the person is empty if it is not known."""

from __future__ import annotations

BY_HAND = "by hand"
NAME_CHARS_MAX = 300
"""Maximum characters of the name of a person that are stored. Longer names that begin alike are one name."""


def shorten_name(person: str) -> str:
    """Return the name as it is stored."""
    return person[:NAME_CHARS_MAX]


def by_hand(person: str) -> str:
    """Return the cause of an event."""
    return f"{BY_HAND} of {shorten_name(person)}" if person else BY_HAND


def name_person(text: str, person: str) -> str:
    """Return the text of an action with the name of the person who requested it."""
    return f"{text} by {shorten_name(person)}" if person else text
