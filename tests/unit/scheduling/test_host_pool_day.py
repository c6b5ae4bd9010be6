"""The day of examples/host-pools: the mover's own code over 24 hours of simulated traffic."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from peloton.model.mover import MoverRule

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def day() -> ModuleType:
    spec = importlib.util.spec_from_file_location("host_pool_day", ROOT / "examples/host-pools/day.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_hosts_follow_the_day(day: ModuleType) -> None:
    """Latency is high for a tenth of the time that it would be, batch jobs keep their minimum, the hosts come back."""
    found = day.simulate()

    assert day.minutes_above(found.p99_ms, day.ORANGE_MS) * 10 < day.minutes_above(found.fixed_p99_ms, day.ORANGE_MS)
    assert (day.SERVICES, day.BATCH) == (found.services[-1], found.batch[-1])
    assert min(found.batch) >= day.BATCH_MINIMUM
    assert max(found.services) > day.SERVICES
    total = [sum(at) for at in zip(found.services, found.batch, found.moving, strict=True)]
    assert {day.SERVICES + day.BATCH} == set(total)


def test_what_the_page_says_of_it(day: ModuleType) -> None:
    """Numbers in docs/host-pools.md are results of the simulated day."""
    found = day.simulate()
    taken = sum(shift.count for _, shift in found.moves if shift.rule is not MoverRule.SPARE)
    page = (ROOT / "docs/host-pools.md").read_text()

    for number in (
        f"{taken} hosts",
        f"{found.preempted[-1]} batch pods",
        f"{day.minutes_above(found.p99_ms, day.ORANGE_MS)} minutes",
        f"{day.minutes_above(found.fixed_p99_ms, day.ORANGE_MS)} minutes",
        f"{max(found.services)} hosts",
    ):
        assert number in page, number
