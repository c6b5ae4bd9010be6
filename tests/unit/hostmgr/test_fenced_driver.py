"""The fence around drivers of plugins: a leader that was frozen past its lease sends nothing through them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from peloton.ports import ImagePrefetcher
from services import cluster_drivers
from services.fence import Fence
from services.hostmgr.driver import Capabilities, ClusterDriver
from services.hostmgr.external_port import ExternalCluster
from services.hostmgr.fenced_driver import READS, READS_OF_EXTERNAL_PODS, SILENT
from services.settings import Settings

TTL_S = 5.0
LOST = "hostmgr/a: another process leads"


class Recorder:
    """Notes the methods of a port that are called, and answers with their names."""

    def __init__(self, port: type, called: list[str]) -> None:
        self._port, self._called = port, called

    def __getattr__(self, name: str) -> Callable[..., str]:
        assert name in methods_of(self._port), name

        def call(*args: object, **named: object) -> str:
            self._called.append(name)
            return name

        return call


class Driver(Recorder):
    """A driver of a plugin, which has images and external pods and asks nothing before it sends."""

    is_connected, unready, next_run_in_s = True, "", 1.0

    @property
    def capabilities(self) -> Capabilities:
        external: Any = Recorder(ExternalCluster, self._called)
        images: Any = Recorder(ImagePrefetcher, self._called)
        return Capabilities("plugged", external_pods=external, images=images)


def methods_of(port: type) -> set[str]:
    return {name for name, member in vars(port).items() if inspect.isfunction(member) and name[0] != "_"}


class Lease:
    """The lease of a host manager, and its driver of a plugin; ``called`` has what reached the cluster."""

    def __init__(self) -> None:
        self.now_s, self.is_mine, self.called = 0.0, True, list[str]()
        self.fence = Fence("hostmgr/a", "me", TTL_S, lambda: self.is_mine, lambda _: None, lambda: self.now_s)
        self.fence.begin(3)
        self.fence.extend(TTL_S)
        self.driver = self._make_driver()

    def _make_driver(self) -> ClusterDriver:
        """Return a driver of a plugin, registered as plugins do."""
        unused: Any = object()
        plugged: Any = Driver(ClusterDriver, self.called)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(cluster_drivers.DRIVERS, "plugged", lambda *_: plugged)
            settings = Settings(mesos="plugged://somewhere")
            return cluster_drivers.cluster_driver_of(settings, unused, unused, self.fence.refusal)()

    def parts(self) -> list[tuple[Any, set[str], frozenset[str]]]:
        """Return driver and its parts, with their methods, and those that only read."""
        driver, has = self.driver, self.driver.capabilities
        return [
            (driver, methods_of(ClusterDriver), READS),
            (has.images, methods_of(ImagePrefetcher), frozenset()),
            (has.external_pods, methods_of(ExternalCluster), READS_OF_EXTERNAL_PODS),
        ]


@pytest.fixture
def lease() -> Lease:
    return Lease()


def test_a_leader_calls_its_driver(lease: Lease) -> None:
    """Each method passes within the lease, with its answer, and so do properties."""
    names = [name for part, methods, _ in lease.parts() for name in sorted(methods) if getattr(part, name)() == name]

    assert lease.called == names
    assert ("plugged", True, "", 1.0) == (
        lease.driver.capabilities.kind,
        lease.driver.is_connected,
        lease.driver.unready,
        lease.driver.next_run_in_s,
    )


def test_a_replaced_leader_sends_nothing_through_it(lease: Lease) -> None:
    """Methods of the three ports that read pass, and no other ones."""
    parts = lease.parts()
    lease.now_s, lease.is_mine = 10 * TTL_S, False
    for part, methods, reads in parts:
        for name in sorted(methods - reads):
            if name in SILENT:
                assert not getattr(part, name)()
                continue
            with pytest.raises(OSError, match=f"{LOST}|does not lead"):
                getattr(part, name)()
        for name in sorted(methods & reads):
            assert name == getattr(part, name)()
    assert {*lease.called} == (READS | READS_OF_EXTERNAL_PODS) - {"next_run_in_s"}


def test_a_method_taken_before_the_freeze_is_fenced(lease: Lease) -> None:
    """Callers keep bound methods, such as that of a reconciliation."""
    reconcile = lease.driver.reconcile
    lease.now_s, lease.is_mine = 10 * TTL_S, False

    with pytest.raises(OSError, match=LOST):
        reconcile([])
    assert [] == lease.called


def test_a_leader_without_a_successor_sends_again(lease: Lease) -> None:
    """The lease is renewed first."""
    lease.now_s = 10 * TTL_S

    assert "kill" == lease.driver.kill([])  # type: ignore[func-returns-value]
