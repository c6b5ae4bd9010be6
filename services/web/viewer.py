"""Viewer of the pages and its permissions. Without sign-in, there is one viewer who may do everything."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection


@dataclass(frozen=True)
class Viewer:
    name: str
    may_change: bool


EVERYBODY = Viewer("everybody", may_change=True)


def viewer_of(request: HTTPConnection) -> Viewer:
    """Return the viewer of a request; the single place to authenticate users."""
    return EVERYBODY
