"""Random lives of large pods among small ones in virtual time, for which hosts are reserved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.hosts.host_table import HostTable
from peloton.hosts.reservation_cache import ReservationCache
from peloton.hosts.reservations import HostReservations
from peloton.model.resources import Resources
from tests.nightly import NIGHTLY, lives
from tests.simulation.job_life import JobLife, first_fault
from tests.simulation.reserved_life import ReservedLife

ACTS = {"reserved", "found", "given_back", "lead", "stop", "lose_host", "restart"}


@pytest.mark.parametrize(("seed", "steps"), lives((1, 300), steps=500))
def test_a_random_life(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """Other pods use only the unreserved resources, and a job has one host at a time, for a bounded time; in the end
    all large pods run, and no host is reserved.

    PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones.
    """
    with ReservedLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        assert ACTS <= {name for name, count in life.done.items() if count}


# What would go wrong is noticed.

FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "others": (HostTable, "sum_kept", lambda *_: (Resources(), 0), "left beside"),
    "span": (HostReservations, "late", lambda *_: [], "is reserved for"),
    "launched": (ReservationCache, "record_launched", lambda *_: None, "which runs on"),
}


@NIGHTLY
@pytest.mark.parametrize(("where", "name", "fault", "reported"), FAULTS.values(), ids=FAULTS.keys())
def test_a_rule_that_is_forgotten_is_noticed(
    where: Any, name: str, fault: Any, reported: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a few lives fails with the broken invariant: not every story exposes the fault."""
    monkeypatch.setattr(where, name, fault)
    monkeypatch.setattr(JobLife, "validates", False)
    assert reported in first_fault(ReservedLife, template, tmp_path, steps=500)
