"""The ports of resource manager and host managers serve public services to roles only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from services.servers.role_surface import AGENT_OPTION, RolesOnly, RolesOnlyOnThreads

PUBLIC, PRIVATE = "/peloton.api.v0.respool.ResourceManager/GetResourcePool", "/peloton.private.resmgr.Admission/Enqueue"
ECHO: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)


class Echo(grpc.GenericRpcHandler):
    """Answers every call with its request."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return ECHO


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()], interceptors=[RolesOnlyOnThreads()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def call(address: str, method: str, *options: tuple[str, Any]) -> bytes:
    with grpc.insecure_channel(address, options=options) as channel:
        send: Callable[..., bytes] = channel.unary_unary(method)
        return send(b"x", timeout=60)


def test_only_roles_call_public_services(address: str) -> None:
    """Roles are answered, others learn where to call; private services are answered to both."""
    assert [b"x"] * 2 == [call(address, PUBLIC, AGENT_OPTION), call(address, PRIVATE)]
    with pytest.raises(grpc.RpcError) as refused:
        call(address, PUBLIC)
    error: Any = refused.value
    assert grpc.StatusCode.PERMISSION_DENIED is error.code()
    assert error.details().startswith("service peloton.api.v0.respool.ResourceManager is not for clients on this port")


async def test_the_same_on_an_event_loop() -> None:
    """The resource manager answers roles, also the api of the previous release, and refuses clients."""
    server = grpc.aio.server(handlers=[Echo()], interceptors=[RolesOnly()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for agent, code in (("peloton-role", None), ("", None), ("grpc-go", grpc.StatusCode.PERMISSION_DENIED)):
        found = None
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.primary_user_agent", agent)] if agent else []
        ) as channel:
            send: Any = channel.unary_unary(PUBLIC)
            try:
                await send(b"x", timeout=60)
            except grpc.aio.AioRpcError as error:
                found = error.code()
        assert code is found
    await server.stop(None)
