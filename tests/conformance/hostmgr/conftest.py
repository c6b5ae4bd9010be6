"""A host manager on a Mesos cluster: emulated without processes, emulated with them, or the one that
PELOTON_TEST_MESOS names (host:port of its master; the framework is torn down after each test)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.mesos_access import OPEN, MesosAccess
from services.storage import migrate
from tests import sqlite_engines
from tests.conformance.hostmgr.emulated import Emulated
from tests.conformance.hostmgr.link import Link
from tests.conformance.hostmgr.world import World, wait
from tests.nightly import nightly

sqlite_engines.reuse()

MESOS = os.environ.get("PELOTON_TEST_MESOS", "")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "empty.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


Make = Callable[..., World]


@pytest.fixture
def make(empty_database: Path, tmp_path: Path) -> Iterator[Make]:
    """Make a world with the given settings of ``Emulated``."""
    ends: list[Callable[[], None]] = []
    worlds: list[World] = []

    def one(
        real_mesos: bool = False,
        lease_s: float = 30.0,
        agents_period_s: float = 10.0,
        access: MesosAccess = OPEN,
        agent_reregister_timeout_s: float = 600.0,
        offer_hold_s: float = 10.0,
        role: str = "peloton",
        **settings: Any,
    ) -> World:
        shutil.copy(empty_database, tmp_path / "peloton.db")
        cluster = None if real_mesos else Emulated(tmp_path / "minicluster", **settings)
        host, _, port = MESOS.rpartition(":")
        link = Link(cluster.target if cluster else (host, int(port)))
        url = f"sqlite:///{tmp_path / 'peloton.db'}"
        ours: dict[str, Any] = {
            "lease_s": lease_s,
            "agents_period_s": agents_period_s,
            "agent_reregister_timeout_s": agent_reregister_timeout_s,
            "offer_hold_s": offer_hold_s,
            "access": access,
            "role": role,
        }
        world = World(url, link, cluster, **ours)
        worlds.append(world)
        ends.extend([world.close, link.close] + ([cluster.close] if cluster else []))
        wait(lambda: world.mesos.subscription.framework_id, "a subscription")
        wait(lambda: world.storage.hosts.framework_id("local"), "the framework id in storage")
        return world

    yield one
    faults = [*_find_faults(worlds)]
    for end in ends:
        end()
    assert not faults, faults


def _find_faults(worlds: Iterable[World]) -> Iterator[str]:
    for world in worlds:
        try:
            world.core.cache.validate()
        except AssertionError as error:
            yield str(error)


@pytest.fixture
def world(make: Make) -> World:
    """An emulated cluster without processes."""
    return make()


@pytest.fixture(params=[nightly("simulated"), "processes", "mesos"])
def any_world(request: pytest.FixtureRequest, make: Make) -> World:
    """Each of the three kinds of clusters."""
    if request.param == "mesos" and not MESOS:
        pytest.skip("PELOTON_TEST_MESOS names no Mesos master")
    if request.param == "mesos":
        return make(real_mesos=True)
    return make(simulate=request.param == "simulated")
