"""An executor hands calls to workers that connect, and asks for as many instances as the calls need."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any

import pytest

from peloton.integrations import futures, futures_server
from peloton.integrations.futures import PelotonExecutor
from peloton.integrations.futures_calls import CallLost, Calls, RemoteTraceback
from peloton.integrations.futures_server import ResultServer
from peloton.integrations.futures_worker import TOKEN, Worker, connect
from tests.unit.integrations.fake_jobs import POOL, FakeClient

TIMEOUT_S = 20.0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(futures, "Client", lambda address: fake)
    monkeypatch.setattr(futures, "TICK_S", 0.01)
    monkeypatch.setattr(futures, "POLL_S", 0.02)
    monkeypatch.setattr(futures, "END_S", 0.1)
    return fake


@pytest.fixture
def executor(fake: FakeClient) -> Iterator[PelotonExecutor]:
    executor = PelotonExecutor("127.0.0.1:1", POOL, instances_max=4, repeats_max=1)
    yield executor
    executor.terminate()


def until(condition: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def join(fake: FakeClient, token: str = "") -> Connection:
    """Connect as a pod of the job does, by its configuration."""
    until(lambda: fake.jobs_seen)
    [*_, config] = fake.jobs_seen.values()
    command = config.defaultConfig.command
    variables = {one.name: one.value for one in command.environment.variables}
    host, _, port = command.value.rpartition(" ")[2].rpartition(":")
    return connect(host, int(port), (token or variables[TOKEN]).encode())


def work(fake: FakeClient) -> None:
    """Run calls in a thread until the executor ends, which may close the connection at any time."""
    worker = Worker(join(fake))

    def serve() -> None:
        with suppress(EOFError, OSError):
            worker.serve()

    threading.Thread(target=serve, daemon=True).start()


def lose_next_batch(fake: FakeClient) -> None:
    """Connect, take a batch and vanish."""
    with join(fake) as connection:
        connection.send((7, futures_version()))
        connection.recv()


def futures_version() -> tuple[int, int]:
    import sys

    return sys.version_info[:2]


def test_results_come_in_the_order_of_the_calls(fake: FakeClient, executor: PelotonExecutor) -> None:
    """Two workers share a thousand calls, and the job has as many instances as calls, up to the limit."""
    results = executor.map(pow, range(1_000), [2] * 1_000)
    work(fake)
    work(fake)
    assert [number**2 for number in range(1_000)] == list(results)
    assert 4 == max(config.instanceCount for config in fake.jobs_seen.values())


def test_an_error_has_the_traceback_of_the_pod(fake: FakeClient, executor: PelotonExecutor) -> None:
    """The error is of its own type, and its cause shows where it was raised."""
    future = executor.submit(int, "x")
    work(fake)
    with pytest.raises(ValueError, match="invalid literal") as caught:
        future.result(TIMEOUT_S)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "Traceback (most recent call last)" in str(caught.value.__cause__)


def test_the_calls_of_a_lost_worker_are_repeated(fake: FakeClient, executor: PelotonExecutor) -> None:
    """The next worker runs them."""
    future = executor.submit(abs, -3)
    lose_next_batch(fake)
    work(fake)
    assert 3 == future.result(TIMEOUT_S)


def test_a_call_that_loses_its_workers_fails(fake: FakeClient, executor: PelotonExecutor) -> None:
    """The error names the limit, so that a call which kills its worker does not kill all of them."""
    future = executor.submit(abs, -3)
    lose_next_batch(fake)
    lose_next_batch(fake)
    with pytest.raises(CallLost, match="lost with its instance 2 times, limit 1; the last one was instance 7"):
        future.result(TIMEOUT_S)


def test_a_worker_without_the_token_is_refused(fake: FakeClient, executor: PelotonExecutor) -> None:
    """A process that finds the port can neither read calls nor give results."""
    executor.submit(abs, -3)
    with pytest.raises((AuthenticationError, EOFError, ConnectionError)):
        join(fake, token="guess").recv()


def test_another_python_is_refused(fake: FakeClient, executor: PelotonExecutor) -> None:
    """Pickled functions of another minor version would fail in ways that are hard to read."""
    future = executor.submit(abs, -3)
    join(fake).send((0, (3, 2)))
    with pytest.raises(BrokenExecutor, match=r"the workers run Python 3\.2, and this process"):
        future.result(TIMEOUT_S)


def test_calls_fail_when_the_job_was_stopped(fake: FakeClient, executor: PelotonExecutor) -> None:
    """A person who stops the job does not leave the program waiting, nor is the job created again."""
    future = executor.submit(abs, -3)
    until(lambda: executor.job_id and executor._job_with_calls)
    fake.move(executor.job_id, "KILLED", 0)
    with pytest.raises(BrokenExecutor, match=r"job .* was stopped"):
        future.result(TIMEOUT_S)
    assert 1 == len(fake.jobs_seen)


def test_calls_fail_when_all_instances_have_failed(fake: FakeClient, executor: PelotonExecutor) -> None:
    """The error says which command shows the reason."""
    future = executor.submit(abs, -3)
    until(lambda: executor.job_id and executor._job_with_calls)
    fake.move(executor.job_id, "FAILED", 0)
    with pytest.raises(BrokenExecutor, match="peloton task logs"):
        future.result(TIMEOUT_S)


def test_ctrl_c_stops_the_job(fake: FakeClient) -> None:
    """Calls that wait are cancelled, and the job is not left behind."""
    executor = PelotonExecutor("127.0.0.1:1", POOL)
    future = executor.submit(abs, -3)
    until(lambda: executor.job_id)
    executor.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert future.cancelled()
    assert "Stop" in fake.calls


def test_terminating_an_executor_fails_running_calls(fake: FakeClient, executor: PelotonExecutor) -> None:
    """A program that waits for such a call gets the error."""
    future = executor.submit(abs, -3)
    with join(fake) as connection:
        connection.send((7, futures_version()))
        connection.recv()
        executor.terminate()
    with pytest.raises(BrokenExecutor, match="the executor was shut down"):
        future.result(TIMEOUT_S)


def test_an_executor_without_a_pool_leaves_nothing_open(fake: FakeClient) -> None:
    """The refusal names the pool, and the port is closed."""
    with pytest.raises(Exception, match="unable to find resource pool /none"):
        PelotonExecutor("127.0.0.1:1", "/none")
    assert ["close"] == fake.calls


def test_limits_that_contradict_each_other_are_refused(fake: FakeClient) -> None:
    """The error has both numbers."""
    with pytest.raises(ValueError, match="instances_min is 3, instances_max 2"):
        PelotonExecutor("127.0.0.1:1", POOL, instances_min=3, instances_max=2)


def test_a_server_that_ends_closes_no_descriptor_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may have vanished: its connection belongs to the thread that attends it, which closes it."""
    monkeypatch.setattr(futures_server, "WAIT_S", 2 * TIMEOUT_S)
    calls = Calls(1)
    server = ResultServer(calls, b"token", local_address="127.0.0.1")
    host, _, port = server.address.rpartition(":")
    connection = connect(host, int(port), b"token")
    connection.send((7, futures_version()))
    until(lambda: server.worker_count)
    [attended] = server._connections
    with socket.socket(fileno=os.dup(connection.fileno())) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    until(lambda: attended.poll(0))

    server.close()

    assert os.fstat(attended.fileno())
    calls.close()
    until(lambda: not server.worker_count)
    until(lambda: attended.closed)
