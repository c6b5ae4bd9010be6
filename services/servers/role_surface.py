"""The surface of resource manager and host managers: only other roles call their public services there.

Without TLS, roles name themselves in the user agent of their channels. That proves no identity: any client that reaches
the port can do the same. It keeps clients on the api, which is the one place to ask who may call what. With TLS, roles
prove by their certificates who they are, and private calls are taken from them alone; the secret of
PELOTON_AUTH_ROLE_TOKEN_FILE proves it, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from services.servers.grpc_handlers import AroundCalls, AroundCallsOnThreads, within
from services.tls.transport import Transport

ROLE_AGENT = "peloton-role"
AGENT_OPTION = ("grpc.primary_user_agent", ROLE_AGENT)
"""Option of each channel from one role to another."""
_AGENTS = (ROLE_AGENT, "grpc-python-asyncio/")
"""User agents of roles; the second is that of the previous release's api."""
_PUBLIC = "/peloton.api."


def is_allowed(call: grpc.HandlerCallDetails) -> bool:
    agent = dict(call.invocation_metadata or ()).get("user-agent", "")
    return not call.method.startswith(_PUBLIC) or str(agent).startswith(_AGENTS)


def _service_of(method: str) -> str:
    return method.removeprefix("/").rpartition("/")[0]


def refusal_text(method: str) -> str:
    service = _service_of(method)
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


def roles_only(transport: Transport, direct_calls: bool) -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of a resource manager."""
    if transport.proves_roles:
        certified = CertifiedRoles(transport, lambda method: not (direct_calls and method.startswith(_PUBLIC)))
        return [*_refuse_denied(transport), certified]
    return [] if direct_calls else [RolesOnly()]


def roles_only_on_threads(transport: Transport, direct_calls: bool) -> list[grpc.ServerInterceptor]:
    """Return the interceptors of a host manager."""
    if transport.proves_roles:
        return [CertifiedRolesOnThreads(transport, direct_calls)]
    return [] if direct_calls else [RolesOnlyOnThreads()]


def roles_only_in(services: Collection[str], transport: Transport) -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of an api, of whose services these are for roles."""
    if not transport.proves_roles:
        return []
    return [*_refuse_denied(transport), CertifiedRoles(transport, lambda method: _service_of(method) in services)]


def _refuse_denied(transport: Transport) -> list[grpc.aio.ServerInterceptor]:
    return [RefuseDenied(transport)] if transport.denies else []


def denial_text(name: str) -> str:
    return f"the certificate {name} is denied by PELOTON_TLS_DENIED_FILE"


class RefuseDenied(AroundCalls):
    """Interceptor that refuses calls of certificates that are denied."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def wrap(self, method: str, handler: Any) -> Any:
        @asynccontextmanager
        async def around(request: Any, context: Any) -> AsyncIterator[Any]:
            if name := self._transport.find_denied(context):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, denial_text(name))
            yield request

        return within(handler, around, handler.request_deserializer)


def no_role_text(method: str) -> str:
    return (
        f"service {_service_of(method)} is for roles, whose certificates PELOTON_TLS_ROLES describes: this call has "
        "none of them, nor the secret of PELOTON_AUTH_ROLE_TOKEN_FILE; where "
        "PELOTON_TLS_CLIENTS is none, roles call PELOTON_ROLES_PORT"
    )


class CertifiedRoles(AroundCalls):
    """Interceptor that takes calls of some methods only from roles, by their certificates."""

    def __init__(self, transport: Transport, is_for_roles: Callable[[str], bool]) -> None:
        self._transport, self._is_for_roles = transport, is_for_roles

    def wrap(self, method: str, handler: Any) -> Any:
        if not self._is_for_roles(method):
            return handler

        @asynccontextmanager
        async def around(request: Any, context: Any) -> AsyncIterator[Any]:
            if not self._transport.is_role(context):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, no_role_text(method))
            yield request

        return within(handler, around, handler.request_deserializer)


class CertifiedRolesOnThreads(AroundCallsOnThreads):
    """The same for a server with threads, whose methods are all unary."""

    def __init__(self, transport: Transport, direct_calls: bool) -> None:
        self._transport, self._direct_calls = transport, direct_calls

    def wrap(self, method: str, handler: Any) -> Any:
        is_open = self._direct_calls and method.startswith(_PUBLIC)
        if is_open and not self._transport.denies:
            return handler

        def answer(request: Any, context: Any) -> Any:
            if name := self._transport.find_denied(context):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, denial_text(name))
            if not is_open and not self._transport.is_role(context):
                context.abort(grpc.StatusCode.PERMISSION_DENIED, no_role_text(method))
            return handler.unary_unary(request, context)

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(answer, handler.request_deserializer, handler.response_serializer)
