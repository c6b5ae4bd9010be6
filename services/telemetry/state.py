"""State of the exporters of this process. Code asks for it where even a call that records nothing would cost."""

from __future__ import annotations

_on: set[str] = set()


def is_on() -> bool:
    """Report whether anything is exported."""
    return bool(_on)


def turn_on(what: str) -> None:
    _on.add(what)
