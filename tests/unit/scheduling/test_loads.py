"""Placement by load: on the hosts with the least use."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.host import LeasedHost
from peloton.model.ids import Hostname
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.placement import place
from peloton.scheduling.qos import HostLoad, Use, beyond_held
from peloton.scheduling.rows import HostRow
from tests.unit.scheduling.test_placement import JOB, host, lease, shape, singles, where

CAPACITY = Resources.of(8, 800, 1000)


def make_loaded_host(name: str, cpu: int = 0, memory: int = 0, *, free: float = 8) -> LeasedHost:
    """Make a host. ``cpu`` and ``memory``: thousandths in use beyond the resources held by pods."""
    return replace(host(name, free, 800), capacity=CAPACITY, load_beyond=(cpu, memory))


def least(cpu: float = 1, memory: float = 10, **more: Any) -> PodShape:
    return shape(cpu, memory, strategy=Strategy.LEAST_LOADED, **more)


def test_a_hot_host_is_chosen_last() -> None:
    """A hot host is chosen last however much of it is free: first come hosts whose pods hold more and use less, by cpu
    or by memory.
    """
    hot, swollen, idle = (
        make_loaded_host("a", cpu=900),
        make_loaded_host("b", memory=850, free=4),
        make_loaded_host("c", cpu=-500, free=3),
    )

    assert {"c": [0, 1, 2]} == where(place(JOB, singles(least(), 3), lease(hot, swollen, idle)))
    batch = place(JOB, singles(least(4), 3), lease(hot, swollen, replace(idle, free=Resources.of(4, 800))))
    assert {"a": [2], "b": [1], "c": [0]} == where(batch)


def test_pods_that_are_put_count_at_once() -> None:
    """Placed pods count at once, also pods of another shape, and also when measured cpu is a kind that they do not
    request.
    """
    hosts = [make_loaded_host("a", 10), make_loaded_host("b", 20), make_loaded_host("c", 30)]

    placed = where(place(JOB, [*singles(least(2), 3), *singles(least(1), 3, start=3)], lease(*hosts)))

    assert {"a": 2, "b": 2, "c": 2} == {name: len(pods) for name, pods in placed.items()}


def test_what_pods_hold_counts_where_nothing_was_measured() -> None:
    """The larger part of held cpu and memory counts, also of a kind that the pod does not request."""
    full, half, swollen = make_loaded_host("a", free=2), make_loaded_host("b", free=5), make_loaded_host("c")
    swollen = replace(swollen, free=Resources.of(8, 400))

    assert {"b": [0]} == where(place(JOB, singles(least(1, 0), 1), lease(full, half, swollen)))


def test_rows_that_are_given_to_another_host_know_no_measurement() -> None:
    """A row that is given to another host has no measurement: the load of a host is removed with it."""
    fleet = Fleet([row("a"), row("b")])
    fleet.loads.set(1, (500, -20))
    fleet.drop_host(Hostname("b"))
    fleet.put_host(row("c"))

    assert [(0, 0), (0, 0), (0, 0)] == [fleet.loads.of(at) for at in (0, fleet.row_of[Hostname("c")], 1_000)]


def row(name: str) -> HostRow:
    return HostRow(Hostname(name), CAPACITY, CAPACITY, 0, 0, 10, (), 0)


@pytest.mark.parametrize(
    ("used", "free", "expected"),
    [
        (Use(4_000, 400), CAPACITY, (250, 250)),  # of a machine twice as large as announced
        (Use(0, 0), Resources.of(2, 800), (-750, 0)),
        (Use(12_000, 1_600), Resources.of(4, 0), (250, 0)),
    ],
)
def test_what_is_in_use_beyond_what_pods_hold(used: Use, free: Resources, expected: tuple[int, int]) -> None:
    """Use beyond held resources is the used part of the machine, less the part of the announced resources that pods
    hold.
    """
    load = HostLoad(Hostname("a"), Use(16_000, 1_600), used, 0, 0)

    assert expected == beyond_held(load, CAPACITY, free)
    assert (0, 0) == beyond_held(HostLoad(Hostname("a"), Use(), Use(), 0, 0), Resources(), Resources())


HOSTS = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(-1_000, 1_000), st.integers(-1_000, 1_000))
"""Free cpu and memory in eighths, and the use beyond held resources."""


@given(st.lists(HOSTS, max_size=5), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=2))
def test_each_pod_goes_to_the_least_loaded_host_of_its_turn(
    amounts: list[tuple[int, int, int, int]], shapes: list[tuple[int, int]]
) -> None:
    """Each pod is placed on the host that a check of all hosts finds, by name among equals; and no pod waits while one
    fits.
    """
    hosts = [
        replace(make_loaded_host(f"h{at}", cpu, memory), free=Resources.of(free_cpu, free_memory * 100))
        for at, (free_cpu, free_memory, cpu, memory) in enumerate(amounts)
    ]
    gangs = [
        each for at, (cpu, memory) in enumerate(shapes) for each in singles(least(cpu, memory * 100), 6, start=6 * at)
    ]

    placed = where(place(JOB, gangs, lease(*hosts)))

    free = [[cpu * 1_000, memory * 100] for cpu, memory, _, _ in amounts]
    expected = dict[str, Counter[int]]()
    for at, (cpu, memory) in enumerate(dict.fromkeys(shapes)):
        need = cpu * 1_000, memory * 100
        for _ in range(6 * shapes.count((cpu, memory))):
            open_hosts = [number for number, left in enumerate(free) if left[0] >= need[0] and left[1] >= need[1]]
            if open_hosts:
                chosen = max(open_hosts, key=lambda number: (count_unused(free[number], amounts[number][2:]), -number))
                free[chosen] = [free[chosen][0] - need[0], free[chosen][1] - need[1]]
                expected.setdefault(f"h{chosen}", Counter())[at] += 1
    first = {shape_of: at for at, shape_of in enumerate(dict.fromkeys(shapes))}
    assert expected == {
        name: Counter(first[shapes[instance // 6]] for instance in pods) for name, pods in placed.items()
    }


def count_unused(free: list[int], beyond: tuple[int, ...]) -> int:
    """Return millionths of cpu or memory, whichever is less."""
    totals = CAPACITY.cpu_milli, CAPACITY.memory_mib
    return min(
        (have - more * total // 1000) * 10**6 // total for have, total, more in zip(free, totals, beyond, strict=True)
    )
