"""Polls of workers and of the resource manager for the versions of the workers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueResponse,
    DescribeWorkerDeploymentResponse,
    DescribeWorkerDeploymentVersionResponse,
    ListWorkersResponse,
    SetWorkerDeploymentRampingVersionResponse,
)
from temporalio.service import RPCError, RPCStatusCode

from peloton.errors import Aborted
from peloton.lifecycle.worker_ramp import Act, Decision, Fleet, Promotion, Version
from peloton.lifecycle.worker_versions import WorkerVersions
from services.temporal import worker_fleet, worker_versions
from services.temporal.worker_admin import WorkerAdmin
from services.temporal.worker_fleet import DEPLOYMENT, START
from services.temporal.worker_versions import RETRY_S
from tests.unit.virtual_time import in_virtual_time, now_s


class Watched(worker_versions.VersionController):
    """The keeper without its task."""

    def __init__(self) -> None:
        self._agreement = None


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


OLD, NEW = Version("old", 1.0), Version("new", 2.0)
TAKEOVER = Decision(Act.MAKE_CURRENT, "new", "version old has no worker")


def make_unserved_fleet(verdict: str = "", current: str = "old") -> Fleet:
    return Fleet(current, {"new"}, {"old": OLD, "new": Version("new", 2.0, verdict=verdict)})


def test_a_version_takes_over_when_reads_have_agreed_for_a_while(clock: Clock) -> None:
    """A poll that sees workers of the current version, or that fails, restarts the time."""
    controller = Watched()
    assert not controller.is_sure_of(TAKEOVER, make_unserved_fleet())
    clock.now_s = 9.0
    assert not controller.is_sure_of(TAKEOVER, make_unserved_fleet())
    controller.forget_agreement()
    clock.now_s = 15.0
    assert not controller.is_sure_of(TAKEOVER, make_unserved_fleet())
    clock.now_s = 25.0
    assert controller.is_sure_of(TAKEOVER, make_unserved_fleet())


def test_a_version_that_was_given_up_waits_for_longer(clock: Clock) -> None:
    """A rejected version waits longer, as the current version may have one worker, which is restarted."""
    controller = Watched()
    bad = make_unserved_fleet("crashes")
    assert not controller.is_sure_of(TAKEOVER, bad)
    clock.now_s = 59.0
    assert not controller.is_sure_of(TAKEOVER, bad)
    clock.now_s = 60.0
    assert controller.is_sure_of(TAKEOVER, bad)


def test_what_follows_from_no_absence_is_done_at_once(clock: Clock) -> None:
    """The first version of a cluster is current at once, and steps of a ramp are taken; verdicts are not."""
    served = Fleet("old", {"old", "new"}, {"old": OLD, "new": NEW})
    controller = Watched()
    assert controller.is_sure_of(TAKEOVER, make_unserved_fleet(current=""))
    assert controller.is_sure_of(Decision(Act.RAMP, "new", "newer", 5.0), served)
    assert not controller.is_sure_of(Decision(Act.GIVE_UP, "new", "3 of its workers crashed"), served)


async def test_no_worker_has_crashed_where_there_are_no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not removed belong to workers that run."""
    now_s = time.time()
    started = [f"{START}{int((now_s - 100) * 1_000)}/worker@host/{i}" for i in range(3)]

    async def metadata(*_: object) -> dict[str, object]:
        return dict.fromkeys(started)

    monkeypatch.setattr(worker_fleet, "_metadata", metadata)
    summary = WorkerDeploymentInfo.WorkerDeploymentVersionSummary()
    version = worker_fleet._version
    without = await version(NO_CLIENT, summary, None, now_s)
    silent = await version(NO_CLIENT, summary, [], now_s)

    assert (0, 3) == (without.crashes, silent.crashes)


NO_CLIENT: Any = None


class Claiming(worker_versions.VersionClaim):
    """The claim without its task."""

    def __init__(self, promotion: Promotion) -> None:
        self._version, self._promotion, self._agreement = "new", promotion, None
        self._client, self._is_noted = NO_CLIENT, True


@pytest.mark.parametrize(
    ("promotion", "was_current", "claims"),
    [
        (Promotion.AUTO, "old", True),
        (Promotion.MANUAL, "old", False),
        (Promotion.MANUAL, "", True),  # the first version of a cluster
    ],
)
async def test_a_worker_claims_only_what_the_setting_lets_it(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, promotion: Promotion, was_current: str, claims: bool
) -> None:
    """The current version has had no worker for long."""
    made_current: list[str] = []

    async def read_versions(_: object) -> WorkerVersions:
        return WorkerVersions(was_current, {"new"})

    async def verdicts_of(*_: object) -> set[str]:
        return set()

    async def set_current(_: object, version: str) -> None:
        made_current.append(version)

    for fake in (read_versions, verdicts_of, set_current):
        monkeypatch.setattr(worker_versions, fake.__name__, fake)
    claim = Claiming(promotion)
    for clock.now_s in (0.0, 100.0):
        await claim._act()

    assert claims == ("new" in made_current)


class FakeDeployment:
    """The worker deployment of a server, which refuses an act on an outdated state."""

    namespace, identity = "default", "api@host/1"

    def __init__(self) -> None:
        self.workflow_service = self
        self.changes, self.current, self.ramping = 0, "old", "odd"
        self.is_raced = False  # by another act after each read

    @property
    def token(self) -> bytes:
        return str(self.changes).encode()

    def _change(self, token: bytes) -> None:
        if token not in (b"", self.token):
            raise RPCError("conflict token mismatch", RPCStatusCode.FAILED_PRECONDITION, b"")
        self.changes += 1

    async def set_worker_deployment_current_version(self, request: Any, **_: Any) -> None:
        self._change(request.conflict_token)
        self.current = request.build_id

    async def set_worker_deployment_ramping_version(self, request: Any, **_: Any) -> Any:
        self._change(request.conflict_token)
        self.ramping = request.build_id
        return SetWorkerDeploymentRampingVersionResponse(conflict_token=self.token)

    async def describe_worker_deployment(self, request: Any, **_: Any) -> Any:
        found = DescribeWorkerDeploymentResponse(conflict_token=self.token)
        routing = found.worker_deployment_info.routing_config
        routing.current_deployment_version.build_id = self.current
        routing.ramping_deployment_version.build_id = self.ramping
        self.changes += self.is_raced
        return found

    async def describe_worker_deployment_version(self, request: Any, **_: Any) -> Any:
        return DescribeWorkerDeploymentVersionResponse()

    async def update_worker_deployment_version_metadata(self, request: Any, **_: Any) -> None: ...

    async def describe_task_queue(self, request: Any, **_: Any) -> Any:
        return DescribeTaskQueueResponse()

    async def list_workers(self, request: Any, **_: Any) -> Any:
        found = ListWorkersResponse()
        for build in ("old", "odd", "new"):
            beat = found.workers_info.add().worker_heartbeat
            beat.status = WorkerStatus.WORKER_STATUS_RUNNING
            beat.deployment_version.deployment_name, beat.deployment_version.build_id = DEPLOYMENT, build
            beat.heartbeat_time.GetCurrentTime()
        return found


async def test_two_acts_of_people_do_not_undo_each_other() -> None:
    """The later act is based on an outdated state, and is refused: its user has to read the state again."""
    deployment: Any = FakeDeployment()
    admin = WorkerAdmin(deployment, Promotion.AUTO)
    before = await worker_fleet.read_fleet(deployment)

    await admin.promote("new", 0.0)  # two changes, as another version ramped
    with pytest.raises(RPCError, match="conflict token mismatch"):
        await worker_fleet.apply(deployment, before, TAKEOVER)

    assert ("new", "", 2) == (deployment.current, deployment.ramping, deployment.changes)
    deployment.is_raced = True
    for act in (admin.promote("old", 0.0), admin.promote("old", 10.0)):
        with pytest.raises(Aborted, match="changed the versions of the workers meanwhile"):
            await act
    assert ("new", "") == (deployment.current, deployment.ramping)


class Refused(worker_versions.VersionController):
    """A keeper whose acts Temporal refuses until ``is_taken``."""

    def __init__(self) -> None:
        self.acts_s: list[float] = []
        self.is_taken = False
        self._agreement = None

    async def _act(self) -> bool:
        self.acts_s.append(now_s())
        if not self.is_taken:
            raise RPCError("its workers do not poll all task queues", RPCStatusCode.FAILED_PRECONDITION, b"")
        return False


@in_virtual_time
async def test_an_act_that_is_refused_is_repeated_later_each_time() -> None:
    """The pause has a bound, and is short again after an act that was taken."""
    controller = Refused()
    task = asyncio.create_task(controller._run())
    await asyncio.sleep(100.0)
    pauses = [later - sooner for sooner, later in pairwise(controller.acts_s)]
    controller.is_taken = True
    await asyncio.sleep(worker_versions.PERIOD_S + 5.0)
    task.cancel()

    assert [RETRY_S * 2**times for times in range(4)] == pytest.approx(pauses[:4])
    assert [worker_versions.PERIOD_S] * 3 == pytest.approx(pauses[-3:])
    assert RETRY_S == pytest.approx(controller.acts_s[-1] - controller.acts_s[-2])
