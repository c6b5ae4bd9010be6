"""Ranges of v0 requests."""

from __future__ import annotations

import pytest

from peloton.api.v0.task import task_pb2
from services.api.ranges import OutOfRange, clip, is_whole_job

Pairs = list[tuple[int, int]]


def wire(pairs: Pairs) -> list[task_pb2.InstanceRange]:
    return [task_pb2.InstanceRange(**{"from": begin, "to": end}) for begin, end in pairs]


CLIPPED: dict[str, tuple[Pairs, Pairs]] = {
    "none is all": ([], [(0, 10)]),
    "half open": ([(2, 4)], [(2, 2)]),
    "to is cut": ([(8, 2**31 - 1)], [(8, 2)]),
    "in order": ([(6, 7), (1, 2)], [(1, 1), (6, 1)]),
    "overlaps merge": ([(1, 4), (3, 6), (6, 7)], [(1, 6)]),
    "one inside another": ([(1, 9), (2, 3)], [(1, 8)]),
}


@pytest.mark.parametrize("name", CLIPPED)
def test_clipped(name: str) -> None:
    """The result is disjoint and ascending (start, count) within the job."""
    asked, ranges = CLIPPED[name]

    assert ranges == clip(wire(asked), 10)


@pytest.mark.parametrize("pairs", [[(10, 11)], [(3, 3)], [(4, 2)], [(1, 2), (12, 20)]])
def test_out_of_range(pairs: Pairs) -> None:
    """A range outside the job is refused with the numbers."""
    begin, end = pairs[-1]
    with pytest.raises(OutOfRange) as caught:
        clip(wire(pairs), 10)

    assert f"instances [{begin}, {end}) asked, the job has instances [0, 10)" == caught.value.message


def test_job_without_instances() -> None:
    """The range over a job without instances is empty."""
    assert clip([], 0) == []


WHOLE: dict[str, tuple[Pairs, bool]] = {
    "no range": ([], True),
    "all": ([(0, 10)], True),
    "more than all": ([(0, 2**31 - 1)], True),
    "all but the first": ([(1, 10)], False),
    "all but the last": ([(0, 9)], False),
    "two halves": ([(0, 5), (5, 10)], False),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_job(name: str) -> None:
    """No range, or exactly one over all instances, means the whole job."""
    asked, is_whole = WHOLE[name]

    assert is_whole is is_whole_job(wire(asked), 10)
