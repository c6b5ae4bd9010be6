"""Pass-through of whole gRPC services to the leader of another role, byte for byte.

Only checks decode requests: every answer, with its status and metadata, reaches the caller, and unknown fields survive.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from peloton.api.error_details import KEY as DETAILS
from peloton.api.limits import is_connection_failure
from services.access.access import CREDENTIALS
from services.access.caller import list_caller_headers
from services.api.channels import AsyncLeaderChannels

log = logging.getLogger(__name__)

RESMGR = "resmgr"

# Set by the transport for each hop, or private to it; credentials are those of the caller to the api alone.
_HOP_KEYS = frozenset({"te", "content-type", "user-agent", "host", "connection"}) | CREDENTIALS


Check = Callable[[bytes], Awaitable[None]]
"""Check of a request before it is forwarded; raises an error to reject it."""


class ForwardedServices(grpc.GenericRpcHandler):
    """Handler for every unary method of the services in ``roles``: service name -> role whose leader serves it.

    ``checks`` maps full names of methods to the checks of their requests.
    """

    def __init__(
        self,
        roles: Mapping[str, str],
        channels: AsyncLeaderChannels,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        self._roles = dict(roles)
        self._channels = channels
        self._checks = dict(checks or {})

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        service, _, _ = method.removeprefix("/").rpartition("/")
        role = self._roles.get(service)
        if role is None:
            return None
        check = self._checks.get(method)

        async def forward(request: bytes, context: Any) -> bytes:
            if check is not None:
                await check(request)
            return await relay(await self._channels.to(role), method, request, context, f"the leader of role {role}")

        handler: Any = grpc.unary_unary_rpc_method_handler(forward)  # no (de)serialisers: bytes in, bytes out
        return handler  # type: ignore[no-any-return]


async def relay(channel: grpc.aio.Channel, method: str, request: bytes, context: Any, whose: str) -> bytes:
    """Forward a call and return its answer, whatever it is. ``whose`` names the other end of the channel for
    messages."""
    call: Any = channel.unary_unary(method)
    metadata = (*filter_metadata(context.invocation_metadata()), *list_caller_headers())
    in_flight = call(request, timeout=context.time_remaining(), metadata=metadata)
    try:
        response: bytes = await in_flight
    except grpc.aio.AioRpcError as error:
        log.info("%s answered %s: %s", method, error.code().name, error.details())
        await context.abort(error.code(), refusal(error, whose), filter_metadata(error.trailing_metadata()))
        raise
    context.set_trailing_metadata(filter_metadata(await in_flight.trailing_metadata()))
    return response


def refusal(error: grpc.aio.AioRpcError, whose: str) -> str:
    """Return the error details; gRPC's text about an unreachable server is replaced, since it would seem to mean the
    api."""
    details = error.details() or ""
    if error.code() == grpc.StatusCode.UNAVAILABLE and is_connection_failure(error):
        return f"{whose} does not answer: it may be being replaced, try again"
    return details


def filter_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> tuple[tuple[str, str | bytes], ...]:
    """Return metadata without the entries that belong to one hop of the transport."""
    return tuple(
        (key, value)
        for key, value in metadata or ()
        if key == DETAILS or (key not in _HOP_KEYS and not key.startswith((":", "grpc-")))
    )
