"""Viewer of the pages: who it is, and the credentials by which its calls reach the api, which decides."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from peloton.api.v0.access import access_pb2 as pb
from services.access.forwarded import FORWARDED, Headers


@dataclass(frozen=True)
class Viewer:
    """A viewer. ``headers`` are the credentials of its calls, ``session`` is the id of its session, which ends at
    ``expires_s`` (Unix); "" and 0 without one. ``identity`` is what the api knows it by; empty: the
    api asks for no credentials.
    """

    name: str
    headers: Headers = ()
    session: str = ""
    expires_s: float = 0.0
    identity: str = ""

    @property
    def is_signed_in(self) -> bool:
        return bool(self.headers)

    @property
    def identity_request(self) -> pb.WhoAmIRequest:
        """Return the request for the identity of the viewer, which the api refuses when its session has ended."""
        return pb.WhoAmIRequest(session=self.session)

    def has_expired(self) -> bool:
        return 0 < self.expires_s <= time.time()


EVERYBODY = Viewer("everybody")
"""Viewer without credentials: it may do everything where the cluster asks for none, and nothing elsewhere."""
_KEY = "peloton.viewer"


def viewer_of(request: HTTPConnection) -> Viewer:
    """Return the viewer of a request."""
    viewer: Viewer = request.scope.get(_KEY, EVERYBODY)
    return viewer


def set_viewer(request: HTTPConnection, viewer: Viewer) -> None:
    request.scope[_KEY] = viewer
    FORWARDED.set(viewer.headers)
