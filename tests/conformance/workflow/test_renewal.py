"""New credentials of the connection to Temporal are used without a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig
from temporalio.worker import Worker

from peloton.files import write_private_file
from services.temporal.connection import connect, connect_config
from services.temporal.renewal import RenewableConnection, renewing
from services.temporal.worker_fleet import list_heartbeats
from services.tls.authority import LocalAuthority
from services.worker.worker import build_workers, run_workers
from tests.conformance.workflow.tls_proxy import behind_tls
from tests.workflow.server import server_story, wait_until
from tests.workflow.stories import ports_on

PERIOD_S = 0.05


class Credentials:
    """Files of a client, whose certificate is of one of two authorities."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = LocalAuthority(folder / "old", "old"), LocalAuthority(folder / "new", "new")
        self.both = folder / "both.pem"
        self.both.write_bytes(self.old.ca_file.read_bytes() + self.new.ca_file.read_bytes())
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "client.pem", "client.key"))
        self.use(self.old)

    def use(self, authority: LocalAuthority) -> None:
        issued = authority.issue_user("worker")
        for source, target in ((self.both, self.ca), (issued.cert, self.cert), (issued.key, self.key)):
            write_private_file(target, source.read_bytes())

    def reading(self, address: str) -> Callable[[], ClientConnectConfig]:
        environment = {
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(self.ca),
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(self.cert),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(self.key),
        }
        return partial(connect_config, address, environment=environment)


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return Credentials(tmp_path)


async def ask(client: Client) -> str:
    found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    return found.namespace_info.name


def uses(client: Client, read: Callable[[], ClientConnectConfig]) -> bool:
    connection = client.service_client
    assert isinstance(connection, RenewableConnection)
    return connection.uses(read())


async def test_a_job_runs_after_the_authority_has_changed(temporal_address: str, credentials: Credentials) -> None:
    """Worker and waker call a server that no longer takes certificates of the old authority, and shows another one."""
    old_server, new_server = (one.issue_server("temporal", ["127.0.0.1"]) for one in (credentials.old, credentials.new))
    async with AsyncExitStack() as later, AsyncExitStack() as stack:
        async with behind_tls(temporal_address, 0, old_server, credentials.both) as address:
            read = credentials.reading(address)
            client = await connect(read(), "worker", is_lazy=False)
            story = await stack.enter_async_context(server_story(client))
            await story.stop_worker()
            workers = build_workers(client, ports_on(story.cluster), {story.task_queue: story.worker_slots})
            await stack.enter_async_context(run_workers(workers))
            await stack.enter_async_context(renewing(client, read, workers, PERIOD_S))
            await story.result(await story.submit(1))
            credentials.use(credentials.new)
            await wait_until(lambda: uses(client, read), "use of the new credentials")
        cut_s, port = time.time(), int(address.rpartition(":")[2])
        await later.enter_async_context(behind_tls(temporal_address, port, new_server, credentials.new.ca_file))

        assert ("SUCCEEDED", {"SUCCEEDED": 3}) == await story.result(await story.submit(3))
        while not await _beats_since(client, cut_s):
            await asyncio.sleep(0.1)


async def test_a_connection_ends_when_another_one_is_used(temporal_address: str, credentials: Credentials) -> None:
    """A lazy client without calls in flight has one connection, by its newest certificate."""
    issuers: list[str] = []
    server = credentials.old.issue_server("temporal", ["127.0.0.1"])
    async with behind_tls(temporal_address, 0, server, credentials.both, issuers) as address:
        read = credentials.reading(address)
        client = await connect(read())
        async with renewing(client, read, period_s=PERIOD_S):
            found = [await ask(client)]
            credentials.use(credentials.new)
            await wait_until(lambda: len(issuers) == 1 and "authority of new" in issuers[0], "end of the connection")
            found.append(await ask(client))

    assert ["default"] * 2 == found


async def test_broken_files_keep_the_connection(
    temporal_address: str, credentials: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of another certificate is named in the log once, and the next pair that fits is used."""
    server = credentials.old.issue_server("temporal", ["127.0.0.1"])
    async with behind_tls(temporal_address, 0, server, credentials.both) as address:
        read = credentials.reading(address)
        client = await connect(read(), is_lazy=False)
        async with renewing(client, read, period_s=PERIOD_S):
            write_private_file(credentials.key, credentials.old.issue_user("other").key.read_bytes())
            await wait_until(lambda: bool(_errors(caplog)), "an error in the log")
            found = await ask(client)
            credentials.use(credentials.new)
            await wait_until(lambda: uses(client, read), "use of the new credentials")

    assert ("default", 1) == (found, len(_errors(caplog)))


class SlowWorker:
    """A worker that takes another client at the second attempt."""

    def __init__(self) -> None:
        self.attempts = 0

    def __setattr__(self, name: str, value: object) -> None:
        if name == "client":
            self.attempts += 1
            if self.attempts == 1:
                raise RuntimeError("the worker takes no client now")
        super().__setattr__(name, value)


async def test_a_worker_that_took_no_client_gets_it_later(temporal_address: str, credentials: Credentials) -> None:
    """A worker does not poll by the old connection for ever after one failure, nor do those that follow it."""
    server = credentials.old.issue_server("temporal", ["127.0.0.1"])
    async with behind_tls(temporal_address, 0, server, credentials.both) as address:
        read = credentials.reading(address)
        client = await connect(read(), is_lazy=False)
        workers = SlowWorker(), SlowWorker()
        async with renewing(client, read, cast(Sequence[Worker], workers), PERIOD_S):
            credentials.use(credentials.new)
            await wait_until(lambda: all(hasattr(one, "client") for one in workers), "new clients of all workers")

    assert [2, 2] == [one.attempts for one in workers]


async def test_a_plain_connection_reads_no_files(temporal_address: str) -> None:
    """A local cluster has no credentials that could change."""
    reads = list[str]()

    def read() -> ClientConnectConfig:
        reads.append("read")
        return {}

    client = await connect(connect_config(temporal_address, environment={"TEMPORAL_CONFIG_FILE": os.devnull}))
    async with renewing(client, read, period_s=0.0):
        await ask(client)

    assert [] == reads


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


async def _beats_since(client: Client, since_s: float) -> bool:
    beats = await list_heartbeats(client)
    return any(
        beat.worker_identity == client.identity and beat.heartbeat_time.ToNanoseconds() / 1e9 > since_s
        for beat in beats
    )
