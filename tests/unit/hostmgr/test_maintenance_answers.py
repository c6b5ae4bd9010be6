"""Steps of maintenance answer with the row of the host, so that their caller does not read it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from activities.maintenance import MaintenanceActivities
from peloton.api.private import hostmgr_pb2 as pb
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import Blocker, DrainProgress, HostMaintenance, make_in_service
from peloton.model.resources import Resources
from services.hostmgr.maintenance_messages import decode_step, encode_step

PROGRESS = DrainProgress(7, 3, (Blocker("job", 2, "1 of at most 1 instances are unavailable already"),), "h2")
ROW = HostMaintenance(
    "east",
    Hostname("h1"),
    HostState.DRAINING,
    HostState.DOWN,
    ip="10.0.0.1",
    seq=2**40,
    at_most=4,
    deadline_s=600,
    is_forced=True,
    reason="disk",
    requested_ns=1_700_000_000_123_456_789,
    drained_from_ns=1_700_000_001_123_456_789,
    changed_ns=1_700_000_002_123_456_789,
    progress=PROGRESS,
    capacity=Resources(8_000, 32_768, 100_000, 2_000, (("example.com/fpga", 3),)),
    to_pool="batch",
)
STEPS = ("cordon", "drain", "take_down", "relabel", "bring_up")


class Cluster:
    """A cluster whose steps answer ``answer``, and the rows of its hosts. Implements both ports of the activities."""

    def __init__(self, answer: HostMaintenance | None) -> None:
        self.answer, self.steps, self.reads = answer, list[str](), 0

    def controller(self, cluster: str) -> Any:
        return self

    def __getattr__(self, step: str) -> Any:
        def take(hostname: str) -> HostMaintenance | None:
            self.steps.append(step)
            return self.answer

        return take

    def get(self, cluster: str, hostname: str) -> HostMaintenance | None:
        self.reads += 1
        return None


@pytest.mark.parametrize("step", STEPS)
def test_a_step_reads_no_row_that_its_answer_has(step: str) -> None:
    """A host manager of the last release answers without the row, which is read then."""
    new, old = Cluster(ROW), Cluster(None)

    assert ROW == getattr(MaintenanceActivities(new, new), step)("east", "h1")
    assert make_in_service("east", "h1") == getattr(MaintenanceActivities(old, old), step)("east", "h1")

    assert ([step], 0, [step], 1) == (new.steps, new.reads, old.steps, old.reads)


def test_every_field_of_the_row_crosses_the_wire() -> None:
    """The row has no field at its default, so a forgotten one is noticed."""
    plain = make_in_service("east", "h1")
    same = [each.name for each in fields(ROW) if getattr(ROW, each.name) == getattr(plain, each.name)]
    assert ["cluster", "hostname"] == same

    for row in (ROW, plain):
        assert row == decode_step(pb.MaintenanceStepResponse.FromString(encode_step(row).SerializeToString()))
    assert decode_step(pb.MaintenanceStepResponse()) is None
