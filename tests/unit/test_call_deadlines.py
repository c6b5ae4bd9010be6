"""Calls inside an activity end before the activity's time is over, and long activities end when they are cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import cast

import grpc
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.definition import ANSWER_S
from activities.launch import LaunchActivities
from activities.records import RecordsActivities
from peloton.api.private import hostmgr_pb2 as pb
from peloton.api.private import hostmgr_pb2_grpc
from peloton.errors import Unavailable
from peloton.model.ids import JobId
from peloton.ports import CALL_DEADLINE_S, HostManager
from services.hostmgr.client import CALL_TIMEOUT_S, HostManagerClient
from services.servers.grpc_errors import timeout_s
from tests.workflow.clock import VirtualClock
from tests.workflow.cluster import Cluster
from tests.workflow.fakes import FakeRecords
from tests.workflow.updates_port import FakeUpdates

JOB = JobId("5a3c1e50-0000-4000-8000-000000000001")


def run_for(limit_s: float) -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, start_to_close_timeout=timedelta(seconds=limit_s))
    return environment


class Killer(hostmgr_pb2_grpc.HostsServicer):
    """Records the remaining time of each call."""

    def __init__(self) -> None:
        self.left_s: list[float] = []

    def KillRunning(self, request: pb.KillRunningRequest, context: grpc.ServicerContext) -> pb.KillRunningResponse:
        self.left_s.append(context.time_remaining() or 0.0)
        return pb.KillRunningResponse(killed=3)


@pytest.fixture
def killer() -> Iterator[tuple[Killer, LaunchActivities]]:
    server, servicer = grpc.server(ThreadPoolExecutor(1)), Killer()
    hostmgr_pb2_grpc.add_HostsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield servicer, LaunchActivities(cast(HostManager, HostManagerClient(lambda: channel)))
    server.stop(None).wait()


@pytest.mark.parametrize(("limit_s", "expected_s"), [(10.0, 10.0 - ANSWER_S), (600.0, 2 * CALL_TIMEOUT_S)])
def test_a_call_has_the_time_of_its_activity_or_its_own_if_that_is_less(
    killer: tuple[Killer, LaunchActivities], limit_s: float, expected_s: float
) -> None:
    """The call carries the deadline of the activity to the host manager."""
    servicer, launch = killer

    assert 3 == run_for(limit_s).run(launch.kill_running, JOB)
    assert 0 < servicer.left_s[0] <= expected_s * 1.01  # gRPC sends the timeout in three digits, rounded up
    assert CALL_DEADLINE_S.get() is None


def test_no_call_begins_when_no_time_is_left(killer: tuple[Killer, LaunchActivities]) -> None:
    """The next attempt of the activity makes it."""
    servicer, launch = killer

    with pytest.raises(ApplicationError) as refusal:
        run_for(ANSWER_S).run(launch.kill_running, JOB)
    assert ("UNAVAILABLE", False) == (refusal.value.type, refusal.value.non_retryable)
    assert [] == servicer.left_s


def test_calls_outside_of_activities_keep_their_own_time() -> None:
    """The api and the resource manager call the same clients."""
    assert 20.0 == timeout_s(20.0)

    token = CALL_DEADLINE_S.set(time.monotonic() - 1)
    with pytest.raises(Unavailable, match="no time is left"):
        timeout_s(20.0)
    CALL_DEADLINE_S.reset(token)


@pytest.mark.parametrize("end", [ActivityEnvironment.cancel, ActivityEnvironment.worker_shutdown])
def test_the_creation_of_pods_ends_between_two_chunks(end: Callable[[ActivityEnvironment], None]) -> None:
    """A cancelled attempt, or one of a worker that shuts down, leaves whole chunks; the next one creates the rest."""
    clock = VirtualClock()
    cluster = Cluster(clock)
    cluster.submit(JOB, 2_500)
    records, updates = FakeRecords(cluster), FakeUpdates(cluster)
    steps = RecordsActivities(records, records, updates, clock.now_ns)
    environment = run_for(1_800.0)
    cluster.on_chunk = lambda count: end(environment)

    with pytest.raises(ApplicationError, match="interrupted"):
        environment.run(steps.create_pods, JOB)
    interrupted = len(cluster.jobs[JOB].pods.records)
    cluster.on_chunk = lambda count: None
    progress = run_for(1_800.0).run(steps.create_pods, JOB)

    assert 0 < interrupted < 2_500
    assert {"INITIALIZED": 2_500} == progress.counts
