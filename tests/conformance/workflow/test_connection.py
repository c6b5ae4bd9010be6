"""A secured Temporal: a real server behind a proxy that ends TLS, and one that asks for a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoResponse

from services.lab.local.temporal_server import is_reachable
from services.temporal.connection import CAUSE, connect, connect_config
from tests.conformance.workflow.tls_proxy import CERTIFICATES, behind_tls
from tests.workflow.encrypted import make_encrypting
from tests.workflow.server import server_story

SECURED = {
    "TEMPORAL_CONFIG_FILE": os.devnull,
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(CERTIFICATES / "ca.pem"),
    "TEMPORAL_TLS_CLIENT_CERT_PATH": str(CERTIFICATES / "client.pem"),
    "TEMPORAL_TLS_CLIENT_KEY_PATH": str(CERTIFICATES / "client.pem"),
}
KEY = {**SECURED, "TEMPORAL_API_KEY": "a key"}


async def test_a_job_runs_over_mutual_tls(temporal_address: str) -> None:
    """Waker, worker and story reach the server through the proxy alone."""
    async with behind_tls(temporal_address) as address:
        client = await connect(connect_config(address, environment=SECURED), "worker", is_lazy=False)
        async with server_story(client) as story:
            job = await story.submit(3)
            assert ("SUCCEEDED", {"SUCCEEDED": 3}) == await story.result(job)
        history = await story.handle(job).fetch_history()

    started = [e.workflow_task_started_event_attributes for e in history.events if e.event_type == 6]
    assert all(one.identity.startswith("worker@") for one in started)


async def test_the_cause_of_a_signal_is_encrypted(temporal_address: str, tmp_path: Path) -> None:
    """A history shows the cause to readers with the keyring alone."""
    converter = make_encrypting(tmp_path)
    config = connect_config(temporal_address, environment={"TEMPORAL_CONFIG_FILE": os.devnull})
    client = await connect(config, "worker", is_lazy=False, converter=converter)
    handle = await client.start_workflow("Nothing", id=f"nothing-{uuid4()}", task_queue="none")
    token = CAUSE.set("pod of alice lost")
    await handle.signal("woken")
    CAUSE.reset(token)
    history = await handle.fetch_history()
    await handle.terminate()

    (signal,) = [event for event in history.events if event.HasField("workflow_execution_signaled_event_attributes")]
    header = signal.workflow_execution_signaled_event_attributes.header.fields["cause"]
    assert "alice" not in history.to_json()
    assert ["pod of alice lost"] == await converter.decode([header])


async def test_a_server_that_is_secured_is_found_with_its_certificates_only(temporal_address: str) -> None:
    """`peloton up --temporal` asks before it starts anything."""
    insecure = {"TEMPORAL_CONFIG_FILE": os.devnull}
    nobody = {name: value for name, value in SECURED.items() if "CLIENT" not in name}
    async with behind_tls(temporal_address) as address:
        found = [await is_reachable(address, environment) for environment in (SECURED, nobody, insecure)]

    assert [True, False, False] == found


@contextmanager
def asking_for_a_key(seen: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the address of a server that requires a key as Temporal Cloud does; ``seen`` has the metadata of calls."""

    def system_info(request: bytes, context: grpc.ServicerContext) -> bytes:
        seen.append(dict(context.invocation_metadata()))
        if seen[-1].get("authorization") != "Bearer a key":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        return GetSystemInfoResponse(server_version="1").SerializeToString()

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "GetSystemInfo": grpc.unary_unary_rpc_method_handler(system_info)
    }
    pem = (CERTIFICATES / "server.pem").read_bytes()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("temporal.api.workflowservice.v1.WorkflowService", methods),)
    )
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


async def test_a_key_is_sent_over_tls() -> None:
    """The key is in the header that Temporal Cloud reads, over TLS; a wrong key is refused."""
    seen: list[dict[str, Any]] = []
    with asking_for_a_key(seen) as address:
        await connect(connect_config(address, "ours.a1b2c", KEY), is_lazy=False)
        with pytest.raises(RuntimeError, match="who are you"):
            await connect(connect_config(address, environment={**KEY, "TEMPORAL_API_KEY": "b"}), is_lazy=False)

    assert "Bearer a key" == seen[0]["authorization"]


async def test_a_lazy_client_takes_the_same_way(temporal_address: str) -> None:
    """Roles connect with their first call."""
    async with behind_tls(temporal_address) as address:
        client = await connect(connect_config(address, environment=SECURED))
        found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))

    assert "default" == found.namespace_info.name
