"""A static port is used once on a host, and never allocated to another pod there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.reason_text import misfit_text, placement_text
from peloton.model.host import ReadyGang
from peloton.model.ids import PodId
from peloton.model.pod import AllOf, HostLabel, PodLabel, PodShape, port_label
from peloton.model.ranges import ranges_without
from peloton.scheduling.placement import place
from tests.unit.hostmgr.test_hosts import JOB, OTHER, free_part, pool_with, refusals_of
from tests.unit.scheduling.test_placement import host, lease, where


def task(*ports: int, **more: Any) -> task_pb2.TaskConfig:
    config = task_pb2.TaskConfig(**more)
    config.resource.cpuLimit = 0.1
    for number in ports:
        config.ports.add(name=f"p{number}", value=number, envName="PORT")
    return config


def pods(count: int, *ports: int, start: int = 0) -> list[ReadyGang]:
    """Return pods as storage reads them."""
    shape, labels = shape_of(*ports), convert.collect_labels(task(*ports))
    return [ReadyGang(shape, ((start + at, 1),), labels) for at in range(count)]


def shape_of(*ports: int) -> PodShape:
    return convert.pod_shape(task(*ports), job_pb2.SlaConfig())


def test_pods_with_one_static_port_are_on_hosts_of_their_own() -> None:
    """Pods with other ports may share the host; the reason names the port."""
    batch = place(JOB, [*pods(3, 8080), *pods(1, 9090, start=5)], lease(host("h1"), host("h2")))

    assert {"h1", "h2"} == set(where(batch))
    assert 3 == batch.placed_count
    assert "1 pod without a host (2 hosts: port 8080 in use)" == placement_text(batch.why)


def test_pods_of_other_jobs_count() -> None:
    """The labels that a launch adds, of static and of dynamic ports, count; the end of the pod frees the port."""
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))
    pool.pods_launched(OTHER, [(0, 1, "h1", convert.collect_labels(task(8080))), (1, 1, "h2", (port_label(8080),))])

    taken = pool.acquire(JOB, [(shape_of(8080), 2)], 0.0)
    assert (["h3"], {"port 8080 in use": 2}) == ([one.hostname for one in taken.hosts], refusals_of(taken))

    pool.pods_ended([PodId(OTHER, 0, 1)])
    assert {"h1", "h3"} == {one.hostname for one in pool.acquire(JOB, [(shape_of(8080), 2)], 1.0).hosts}


def test_a_static_port_is_assigned_to_no_pod() -> None:
    """The port is not allocated on a host where a pod has it, whatever the cluster offers, nor next to a pod of the
    same placement.
    """
    pool = pool_with(free_part("h1"))
    pool.pods_launched(OTHER, [(0, 1, "h1", (port_label(31_001),))])
    (leased,) = pool.acquire(JOB, [(shape_of(0), 1)], 0.0).hosts
    assert ((31_000, 31_000), (31_002, 31_009)) == leased.ports

    both = place(JOB, [*pods(2, 0), *pods(1, 31_000, start=5)], lease(replace(host("h1"), ports=((31_000, 31_009),))))
    assert [(31_001,), (31_002,), ()] == [pod.ports for one in both.placements for pod in one.pods]


def test_pods_for_which_a_static_port_left_none_are_checked_again() -> None:
    """A pod is not launched without its port."""
    batch = place(JOB, [*pods(2, 0), *pods(1, 31_000, start=5)], lease(replace(host("h1"), ports=((31_000, 31_001),))))

    assert {"h1": [0, 5]} == where(batch)


def test_static_ports_stand_alongside_the_own_constraint() -> None:
    """Static ports are further parts that must hold; each port once, whichever containers name it."""
    own = task_pb2.Constraint(type=task_pb2.Constraint.LABEL_CONSTRAINT)
    own.labelConstraint.kind = task_pb2.LabelConstraint.HOST
    own.labelConstraint.condition = task_pb2.LabelConstraint.CONDITION_EQUAL
    own.labelConstraint.label.key, own.labelConstraint.requirement = "rack", 1
    shape = convert.pod_shape(task(9090, 0, 8080, constraint=own), job_pb2.SlaConfig())

    assert isinstance(shape.constraint, AllOf)
    first, second, third = shape.constraint.constraints
    assert (PodLabel(*port_label(8080)), PodLabel(*port_label(9090))) == (first, second)
    assert isinstance(third, HostLabel)
    assert (1, "rack") == (shape.port_count, third.key)


def test_no_host_is_unable_for_the_sake_of_a_port() -> None:
    """A port in use makes no host infeasible, since it is free again later."""
    pool = pool_with(free_part("h1"))
    pool.pods_launched(OTHER, [(0, 1, "h1", (port_label(8080),))])

    found = pool.acquire(JOB, [(shape_of(8080), 1)], 0.0)

    assert {} == found.infeasible
    assert ["port 8080 in use"] == [misfit_text(each.why) for each in found.refused[shape_of(8080)]]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=3), st.sets(st.integers(0, 12)))
def test_ranges_without_ports(spans: list[tuple[int, int]], ports: set[int]) -> None:
    """The rest has every remaining port, and no other."""
    ranges, last = [], -1
    for begin, length in sorted(spans):
        if begin > last:
            ranges.append((begin, last := begin + length))
    every = {port for begin, end in ranges for port in range(begin, end + 1)}

    left = [port for begin, end in ranges_without(ranges, ports) for port in range(begin, end + 1)]

    assert sorted(every - ports) == left
