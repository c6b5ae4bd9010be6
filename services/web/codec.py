"""Codec server for Temporal's Web UI and command: it decrypts payloads for operators of the cluster.

The UI and `temporal --codec-endpoint` send payloads to ``/codec/decode`` with the credentials of their user.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import orjson
from google.protobuf import json_format
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from peloton.access.caller import CLUSTER, CallerKind, Grant, Role
from peloton.api.v0.access.access_pb2 import WhoAmIResponse
from peloton.errors import PelotonError
from services.web.bodies import Bodies
from services.web.faults import Refusal, refusal_of
from services.web.sign_in import SignIn
from services.web.viewer import viewer_of

log = logging.getLogger(__name__)

FOLDER = "/codec/"
PAYLOADS_MAX = 1_000
ROLE = Role.OPERATOR
PREFLIGHT = {
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "authorization, content-type, x-namespace",
    "access-control-max-age": "600",
}


class Decodes(Protocol):
    """A codec of Temporal's payloads."""

    async def decode(self, payloads: Sequence[Any]) -> list[Any]: ...


class Codec:
    """Answers those who have role operator on the cluster. ``codec``: None without a keyring."""

    def __init__(self, codec: Decodes | None, sign_in: SignIn) -> None:
        self._codec, self._sign_in = codec, sign_in
        self._bodies = Bodies()

    def routes(self) -> list[Route]:
        if self._codec is None:
            return []
        return [Route(f"{FOLDER}decode", self.answer, methods=["POST", "OPTIONS"])]

    async def answer(self, request: Request) -> Response:
        """Answer; the guard has refused pages of other origins than those of the settings."""
        try:
            if request.method == "OPTIONS":  # without credentials, by a browser that asks whether the page may call
                return _share(request, Response(status_code=204, headers=PREFLIGHT))
            with self._bodies.memory() as memory:
                who = await self._check(request)
                answered = await self._decode(await memory.body(request))
        except ClientDisconnect:
            return Response(status_code=499)
        except (Refusal, PelotonError) as error:
            return _share(request, refusal_of(error).response())
        log.info("payloads of Temporal are decrypted for %s", who.name)
        return _share(request, Response(orjson.dumps(answered), media_type="application/json"))

    async def _check(self, request: Request) -> WhoAmIResponse:
        """Return the viewer. Raises Refusal unless it may read payloads."""
        who = await self._sign_in.find_identity(viewer_of(request))
        if who is None:
            raise Refusal("unavailable", "the api does not answer")
        if not who.is_enforced:
            return who
        is_own = viewer_of(request).is_signed_in or not self._sign_in.proves_role
        if not is_own or who.kind == CallerKind.ANONYMOUS:
            raise Refusal("unauthenticated", "payloads need credentials, as calls of the API do")
        grants = [Grant(Role(grant.role), grant.pool) for grant in who.grants]
        if not any(grant.role.includes(ROLE) and grant.covers(CLUSTER) for grant in grants):
            raise Refusal("permission_denied", f"payloads of all jobs need role {ROLE} on the cluster")
        return who

    async def _decode(self, body: bytes) -> dict[str, Any]:
        """Decrypt payloads in Temporal's JSON. Raises Refusal, and Unavailable for a key that is missing."""
        from temporalio.api.common.v1 import Payloads  # loads Temporal's SDK, which role web needs for this alone

        assert self._codec is not None
        try:
            found = json_format.Parse(body, Payloads())
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise Refusal("invalid_argument", f"want Temporal's payloads as JSON: {str(error)[:200]}") from None
        if len(found.payloads) > PAYLOADS_MAX:
            raise Refusal("invalid_argument", f"{len(found.payloads):,} payloads, at most {PAYLOADS_MAX:,} at once")
        decoded = await self._codec.decode(list(found.payloads))
        return json_format.MessageToDict(Payloads(payloads=decoded))


def _share(request: Request, response: Response) -> Response:
    """Let the page that asks read the answer."""
    if origin := request.headers.get("origin"):
        response.headers["access-control-allow-origin"] = origin
        response.headers["vary"] = "Origin"
    response.headers["cache-control"] = "no-store"
    return response
