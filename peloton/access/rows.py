"""Fields of the rows of parsed files. Faults are ValueErrors that name the row."""

from __future__ import annotations

from peloton.model.text import quote


def text_of(row: dict[str, object], key: str, where: str, default: str | None = None) -> str:
    """Return a text of a parsed row. Raises ValueError, naming the row."""
    found = row.get(key, default)
    if not isinstance(found, str) or (not found and default is None):
        raise ValueError(f"{where}: want a text for {key}, found {quote(repr(found))}")
    return found


def texts_of(row: dict[str, object], key: str, where: str) -> tuple[str, ...]:
    """Return a list of texts of a parsed row, empty by default. Raises ValueError, naming the row."""
    found = row.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ValueError(f"{where}: want a list of texts for {key}, found {quote(repr(found))}")
    return tuple(found)


def check_keys(row: object, known: frozenset[str], where: str) -> dict[str, object]:
    """Return a parsed row. Raises ValueError for one that is no table, or has unknown keys."""
    if not isinstance(row, dict):
        raise ValueError(f"{where}: want a table with the keys {', '.join(sorted(known))}")
    if unknown := sorted(set(map(str, row)) - known):
        raise ValueError(f"{where}: unknown key {quote(unknown[0])}; known keys: {', '.join(sorted(known))}")
    return row
