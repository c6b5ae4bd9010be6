"""Pods of a job that is only planned: their shapes, and the order of their turns."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from peloton.lifecycle.planned import FIRST, LATER, PlannedRange, as_placed, plan_pods
from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.layout import GangClose, Layout, Spread
from peloton.model.planned_capacity import PlannedPods
from peloton.model.pod import AllOf, HostLabel, PodLabel, PodShape, ShapeRange
from peloton.model.resources import Resources

WEB = ("app", "web")


def job(count: int, gang: int = 1, kind: JobType = JobType.BATCH) -> JobRecord:
    sla = SlaSpec(minimum_running_instances=gang if gang > 1 else 0)
    return JobRecord(
        JobId("j"), "planned", kind, "", RespoolId("p"), count, sla, JobState.INITIALIZED, JobState.RUNNING
    )


def cpu(cores: int, **more: Any) -> PodShape:
    return PodShape(Resources(cores * 1000), **more)


def list_rows(pods: Sequence[PlannedPods]) -> list[tuple[int, int, int, bool]]:
    """Return cores, count, turn, and whether it is a gang."""
    return [(each.shape.resources.cpu_milli // 1000, each.count, each.turn, each.is_gang) for each in pods]


def test_pods_that_are_admitted_take_the_first_turn() -> None:
    """Each instance has its own resources; instances beyond the maximum of running instances are left out."""
    pods = [PlannedRange(ShapeRange(0, 4, cpu(1))), PlannedRange(ShapeRange(4, 6, cpu(2)))]

    found = plan_pods(job(10), pods, [range(2), range(5, 6)], 8, "")

    assert [(1, 2, FIRST, False), (1, 2, LATER, False), (2, 1, FIRST, False), (2, 3, LATER, False)] == list_rows(found)
    assert {Workload.BATCH} == {each.shape.workload for each in found}


def test_a_gang_is_one_thing() -> None:
    """A gang has the resources that are enough for each member, and spreads and keeps close; pods outside of it do not
    keep close.
    """
    layout = Layout((Spread("rack"),), GangClose("rack"))
    pods = [
        PlannedRange(ShapeRange(0, 1, cpu(2, layout=layout))), PlannedRange(ShapeRange(1, 4, cpu(1, layout=layout)))
    ]  # fmt: skip

    now, later = (plan_pods(job(5, gang=3), pods, chosen, 5, "") for chosen in ([range(5)], []))

    assert [(2, 3, FIRST, True), (1, 2, FIRST, False)] == list_rows(now)
    assert [(2, 3, LATER, True), (1, 2, LATER, False)] == list_rows(later)
    assert [layout, layout.apart] == [each.shape.layout for each in now]


def test_labels_that_constraints_name_go_with_the_pods() -> None:
    """Labels in constraints are kept with the pods; others are dropped, and do not make pods different."""
    apart = cpu(1, constraint=PodLabel(*WEB))
    pods = [
        PlannedRange(ShapeRange(0, 2, apart), (WEB, ("a", "b"))),
        PlannedRange(ShapeRange(2, 1, apart), (WEB,)),
        PlannedRange(ShapeRange(3, 1, apart)),
    ]
    found = plan_pods(job(4), pods, [range(4)], 4, "")

    assert [(3, (WEB,)), (1, ())] == [(each.count, each.labels) for each in found]


def test_the_shape_is_that_of_placement() -> None:
    """A volume that has to be created needs disk, the workload a host pool, and a migration binds to its cluster."""
    shape = cpu(1, volume_mib=500, constraint=HostLabel("rack", "a"))
    (placed,) = as_placed([PlannedRange(ShapeRange(0, 1, shape))], job(1, kind=JobType.SERVICE), "east")

    assert (500, 500, Workload.STATEFUL) == (
        placed.shape.resources.disk_mib, placed.shape.volume_mib, placed.shape.workload
    )  # fmt: skip
    assert AllOf((HostLabel("peloton/cluster", "east"), HostLabel("rack", "a"))) == placed.shape.constraint


def test_every_instance_is_counted_once() -> None:
    """Each instance is counted once, whatever ranges are admitted."""
    random = Random(7)
    for _ in range(50):
        count, size = random.randint(1, 30), random.randint(1, 4)
        edges = sorted(random.sample(range(31), random.randint(0, 4) * 2))
        admitted = [range(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
        pods = [PlannedRange(ShapeRange(at, 1, cpu(1 + at % 3))) for at in range(30)]
        begin = size if 1 < size <= count else 0
        first = [instance for span in admitted for instance in span if begin <= instance < count]

        found = [each for each in plan_pods(job(30, max(size, 1)), pods, admitted, count, "") if not each.is_gang]

        assert (len(first), max(count - begin, 0)) == (
            sum(each.count for each in found if each.turn == FIRST), sum(each.count for each in found)
        )  # fmt: skip
