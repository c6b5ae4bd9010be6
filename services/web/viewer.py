"""Who looks at the pages, and what they may do. Until users sign in everybody is one viewer who may do everything."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection


@dataclass(frozen=True)
class Viewer:
    name: str
    may_change: bool


EVERYBODY = Viewer("everybody", may_change=True)


def viewer_of(request: HTTPConnection) -> Viewer:
    """The one place that learns who asks, when there are users."""
    return EVERYBODY
