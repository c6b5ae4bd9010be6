"""How a host manager presents itself to its Mesos master, and a master that hangs."""

from __future__ import annotations

import pytest

from services.hostmgr.mesos import operator
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.world import PATIENCE_S, World


def test_a_changed_user_holds_for_pods_launched_from_then_on(make: Make) -> None:
    """Mesos keeps the user of a framework for ever; each pod names its own."""
    world = make(simulate=False, switch_user=True)
    world.core.stop()
    world.settings["user"] = "nobody-of-that-name"

    world.lead()

    job = world.start()
    world.wait_states(job, {"FAILED": 1})
    assert "No such user 'nobody-of-that-name'" in world.pod(job).message


def test_a_master_that_hangs_with_its_agents_holds_nothing_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconciliation goes on while the answer to GET_AGENTS does not come."""
    monkeypatch.setattr(operator, "LONG_TIMEOUT_S", 10 * PATIENCE_S)
    world.running()
    world.core.stop()
    world.link.hold_call = "GET_AGENTS"
    before = len(world.link.calls)

    world.lead()

    assert world.link.held.wait(PATIENCE_S)
    world.wait_calls("RECONCILE", after=before)
