"""Tests of a host label that names no value: it exists, or its value is a number above or below a bound.

A test is an ordinary constraint leaf: the key is the label's with a prefix, the value is the test. So it is stored and
sent like any other leaf, and hosts that join later are evaluated by it.
"""

from __future__ import annotations

LABEL_TEST = "peloton/label-test/"
"""Prefix of the key of a leaf that tests a label."""
EXISTS = "exists"
DIGITS_MAX = 19
"""Limit of the digits of a number in a label: those of 64 bits."""


def label_under_test(key: str) -> str:
    """Return the key of the label that a leaf with this key is about."""
    return key.removeprefix(LABEL_TEST)


def passes(value: str, test: str) -> bool:
    """Return whether the label's value passes the test: ``exists``, ``> 5`` or ``< 5``. A value that is no whole number
    is neither above nor below one."""
    if test == EXISTS:
        return True
    relation, _, bound = test.partition(" ")
    number, limit = _read_number(value), _read_number(bound)
    if number is None or limit is None:
        return False
    return number > limit if relation == ">" else number < limit


def _read_number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else None


def describe_test(key: str, test: str) -> str:
    """Return the test in words: ``label gpu exists``, ``label gen > 5``."""
    return f"label {label_under_test(key)} {test}"
