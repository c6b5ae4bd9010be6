"""The surface of resource manager and host managers: only other roles call their public services there.

Roles name themselves in the user agent of their channels. That proves no identity: any client that reaches the port can
do the same. It keeps clients on the api, which is the one place to ask who may call what.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

ROLE_AGENT = "peloton-role"
AGENT_OPTION = ("grpc.primary_user_agent", ROLE_AGENT)
"""Option of each channel from one role to another."""
_AGENTS = (ROLE_AGENT, "grpc-python-asyncio/")
"""User agents of roles; the second is that of the previous release's api."""
_PUBLIC = "/peloton.api."


def is_allowed(call: grpc.HandlerCallDetails) -> bool:
    agent = dict(call.invocation_metadata or ()).get("user-agent", "")
    return not call.method.startswith(_PUBLIC) or str(agent).startswith(_AGENTS)


def refusal_text(method: str) -> str:
    service = method.removeprefix("/").rpartition("/")[0]
    where = "call the api (PELOTON_PORT, 5397 by default), which forwards it"
    return f"service {service} is not for clients on this port: {where}; PELOTON_DIRECT_CALLS=true admits direct calls"


class RolesOnly(grpc.aio.ServerInterceptor):
    """Interceptor that refuses calls of public services by other clients than roles."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        if is_allowed(handler_call_details):
            return await continuation(handler_call_details)
        text = refusal_text(handler_call_details.method)

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

        handler: Any = grpc.unary_unary_rpc_method_handler(refuse)
        return handler  # type: ignore[no-any-return]


class RolesOnlyOnThreads(grpc.ServerInterceptor):
    """The same for a server with threads."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        if is_allowed(handler_call_details):
            return continuation(handler_call_details)
        text = refusal_text(handler_call_details.method)

        def refuse(_: Any, context: Any) -> None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

        handler: Any = grpc.unary_unary_rpc_method_handler(refuse)
        return handler  # type: ignore[no-any-return]
