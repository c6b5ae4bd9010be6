"""Looks of workers and of the resource manager at the versions of the workers."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentInfo

from peloton.lifecycle.worker_ramp import Act, Decision, Fleet, Promotion, Version
from peloton.lifecycle.worker_versions import WorkerVersions
from services import worker_fleet, worker_versions
from services.worker_fleet import START


class Watched(worker_versions.VersionKeeper):
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


def unserved(verdict: str = "", current: str = "old") -> Fleet:
    return Fleet(current, {"new"}, {"old": OLD, "new": Version("new", 2.0, verdict=verdict)})


def test_a_version_takes_over_when_looks_have_agreed_for_a_while(clock: Clock) -> None:
    """A look that sees workers of the current version, or that fails, begins the time again."""
    keeper = Watched()
    assert not keeper.is_sure_of(TAKEOVER, unserved())
    clock.now_s = 9.0
    assert not keeper.is_sure_of(TAKEOVER, unserved())
    keeper.forget_agreement()
    clock.now_s = 15.0
    assert not keeper.is_sure_of(TAKEOVER, unserved())
    clock.now_s = 25.0
    assert keeper.is_sure_of(TAKEOVER, unserved())


def test_a_version_that_was_given_up_waits_for_longer(clock: Clock) -> None:
    """The current version may have one worker, which is restarted."""
    keeper = Watched()
    bad = unserved("crashes")
    assert not keeper.is_sure_of(TAKEOVER, bad)
    clock.now_s = 59.0
    assert not keeper.is_sure_of(TAKEOVER, bad)
    clock.now_s = 60.0
    assert keeper.is_sure_of(TAKEOVER, bad)


def test_what_follows_from_no_absence_is_done_at_once(clock: Clock) -> None:
    """The first version of a cluster is current at once, and steps of a ramp are taken; verdicts are not."""
    served = Fleet("old", {"old", "new"}, {"old": OLD, "new": NEW})
    keeper = Watched()
    assert keeper.is_sure_of(TAKEOVER, unserved(current=""))
    assert keeper.is_sure_of(Decision(Act.RAMP, "new", "newer", 5.0), served)
    assert not keeper.is_sure_of(Decision(Act.GIVE_UP, "new", "3 of its workers crashed"), served)


async def test_no_worker_has_crashed_where_there_are_no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not taken back are those of workers that are up."""
    now_s = time.time()
    started = [f"{START}{int((now_s - 100) * 1_000)}/worker@host/{i}" for i in range(3)]

    async def metadata(*_: object) -> dict[str, object]:
        return dict.fromkeys(started)

    monkeypatch.setattr(worker_fleet, "_metadata", metadata)
    summary = WorkerDeploymentInfo.WorkerDeploymentVersionSummary()
    version = worker_fleet._version
    without = await version(None, summary, None, now_s)  # type: ignore[arg-type]
    silent = await version(None, summary, [], now_s)  # type: ignore[arg-type]

    assert (0, 3) == (without.crashes, silent.crashes)


class Claiming(worker_versions.VersionClaim):
    """The claim without its task."""

    def __init__(self, promotion: Promotion) -> None:
        self._version, self._promotion, self._agreement = "new", promotion, None
        self._client, self._is_noted = None, True  # type: ignore[assignment]


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
    """The current version has been without a worker for long."""
    made_current: list[str] = []

    async def look(_: object) -> WorkerVersions:
        return WorkerVersions(was_current, {"new"})

    async def verdicts_of(*_: object) -> set[str]:
        return set()

    async def set_current(_: object, version: str) -> None:
        made_current.append(version)

    for fake in (look, verdicts_of, set_current):
        monkeypatch.setattr(worker_versions, fake.__name__, fake)
    claim = Claiming(promotion)
    for clock.now_s in (0.0, 100.0):
        await claim._act()

    assert claims == ("new" in made_current)
