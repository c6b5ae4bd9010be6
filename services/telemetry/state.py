"""State of the exporters of this process. Code asks for it where even a call that records nothing would cost."""

from __future__ import annotations

METHOD = "rpc.method"
"""Attribute of the spans that may begin a trace: calls that come from clients."""
_on: set[str] = set()


def is_on() -> bool:
    """Return whether anything is exported."""
    return bool(_on)


def has(what: str) -> bool:
    """Return whether metrics, or traces, are exported."""
    return what in _on


def turn_on(what: str) -> None:
    _on.add(what)
