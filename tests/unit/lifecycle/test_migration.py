"""Instances that move next, and the reasons of a migration's waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import describe, may_hold_in
from peloton.lifecycle.migration import (
    ServicePods,
    ServiceStep,
    batch_of,
    binding_of,
    binding_text,
    bound,
    details,
    leaves,
    may_be_in,
    next_service_step,
    plan_refusal,
    progress_of,
    refusal_of,
    service_waits,
    services_to_step,
)
from peloton.model.migration import (
    Migration,
    MigrationAct,
    MigrationLoad,
    MigrationProgress,
    MigrationSpec,
    MigrationState,
    MigrationTarget,
    ServiceProgress,
    ServiceState,
)
from peloton.model.pod import AllOf, AnyOf, HostLabel, PodShape
from peloton.model.resources import Resources

FORWARD = Migration("m", "pool", True, "/maps", MigrationSpec("b"))
BACK = replace(FORWARD, state=MigrationState.ROLLING_BACK)
DONE, MOVING, WAITING = ServiceState.DONE, ServiceState.MOVING, ServiceState.WAITING


def service(state: ServiceState, name: str = "web", **more: Any) -> ServiceProgress:
    return ServiceProgress("j", name, state, **more)


# -- bindings


@pytest.mark.parametrize(
    ("binding", "in_a", "in_b"), [("", True, True), ("a", True, False), (leaves("a"), False, True)]
)
def test_a_binding_is_a_constraint_on_the_cluster(binding: str, in_a: bool, in_b: bool) -> None:
    """A binding allows the same clusters as the constraint of the bound shape."""
    shape = bound(PodShape(Resources(1)), binding)

    assert [in_a, in_b] == [may_be_in(cluster, binding) for cluster in "ab"]
    assert [in_a, in_b] == [may_hold_in(shape.constraint, cluster) for cluster in "ab"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (None, "label peloton/cluster=b"),
        (HostLabel("disk", "ssd", "=", 1), "(label peloton/cluster=b and label disk=ssd)"),
        (
            AllOf((HostLabel("disk", "ssd", "=", 1), HostLabel("rack", "r", "<", 1))),
            "(label peloton/cluster=b and label disk=ssd and label rack=r < 1)",
        ),
        (AnyOf((HostLabel("disk", "ssd", "=", 1),)), "(label peloton/cluster=b and (label disk=ssd))"),
    ],
)
def test_a_bound_shape_keeps_its_own_constraint(own: HostLabel | AllOf | AnyOf | None, said: str) -> None:
    """A bound shape has the cluster first, then its own constraint."""
    shape = bound(PodShape(Resources(1), constraint=own), "b")

    assert shape.constraint is not None
    assert said == describe(shape.constraint)


def test_a_rollback_leaves_the_target() -> None:
    """A rollback binds the object as before, or to any other cluster, and the end restores the binding from before."""
    was_in_a, was_in_b = replace(BACK, bound_before="a"), replace(BACK, bound_before="b")
    states = (FORWARD, replace(FORWARD, state=MigrationState.PAUSED), replace(FORWARD, state=MigrationState.SUCCEEDED))

    assert ["b"] * 3 == [binding_of(one) for one in states]
    assert ["!b", "a", "!b"] == [binding_of(one) for one in (BACK, was_in_a, was_in_b)]
    ended = [replace(one, state=MigrationState.ROLLED_BACK) for one in (BACK, was_in_a, was_in_b)]
    assert ["", "a", "b"] == [binding_of(one) for one in ended]
    assert ["bound to cluster b by a migration", "bound to any cluster but b while a migration is rolled back"] == [
        binding_text(binding) for binding in ("b", "!b")
    ]


# -- a service


@pytest.mark.parametrize(("batch_size", "count", "expected"), [(0, 4, 1), (0, 100, 10), (7, 100, 7), (7, 2, 7)])
def test_a_batch_is_what_was_asked_for_or_a_tenth(batch_size: int, count: int, expected: int) -> None:
    """A batch is the requested size or a tenth, at least one instance."""
    assert expected == batch_of(MigrationSpec("b", batch_size), count)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (ServicePods({0: "a", 1: "a", 2: "b"}), ServiceStep((0,), 2, 0)),
        (ServicePods({0: "b", 1: "b"}), ServiceStep((), 0, 0, is_done=True)),
        # A pod that ends, for whatever reason, is unavailable; so is one that was moved and does not serve yet.
        (ServicePods({0: "a", 1: "a"}, leaving={0}, missing={0}), ServiceStep((), 1, 1)),
        (ServicePods({1: "a"}, missing={0}, moved={0}), ServiceStep((), 1, 1)),
        # One that was never touched and fails does not block the others: the SLA decides about them.
        (ServicePods({1: "a"}, missing={0}), ServiceStep((1,), 1, 0)),
        # One that came back to the old cluster before the binding was read is asked again.
        (ServicePods({0: "a"}, missing={0}, moved={0}), ServiceStep((0,), 1, 0)),
    ],
)
def test_a_batch_is_filled_up(pods: ServicePods, expected: ServiceStep) -> None:
    """A batch of one is filled up."""
    assert expected == next_service_step(pods, FORWARD, 1)


def test_a_rollback_moves_what_was_moved() -> None:
    """A rollback moves no instance that was in the target before: here instance 2."""
    pods = ServicePods({0: "b", 1: "a", 2: "b"}, moved={0, 1})

    assert ServiceStep((0,), 1, 0) == next_service_step(pods, BACK, 5)
    assert next_service_step(replace(pods, clusters={0: "a", 1: "a", 2: "b"}), BACK, 5).is_done


INSTANCES = st.integers(0, 12)


@given(
    st.dictionaries(INSTANCES, st.sampled_from("abc")),
    st.sets(INSTANCES),
    st.sets(INSTANCES),
    st.sets(INSTANCES),
    st.integers(1, 5),
    st.sampled_from([FORWARD, BACK]),
)
def test_no_step_exceeds_the_batch(
    clusters: dict[int, str], leaving: set[int], missing: set[int], moved: set[int], batch: int, migration: Migration
) -> None:
    """Steps ask only for instances that are in an excluded cluster and are not leaving, and end when there are none."""
    pods = ServicePods(clusters, leaving & clusters.keys(), missing, moved)

    step = next_service_step(pods, migration, batch)

    assert not step.ask or len(step.ask) + step.unavailable_count <= batch
    assert all(not may_be_in(clusters[i], binding_of(migration)) and i not in pods.leaving for i in step.ask)
    assert migration is FORWARD or set(step.ask) <= moved
    assert step.is_done == (not step.ask and not step.left_count and not step.unavailable_count)
    assert step.ask or step.unavailable_count >= batch or not step.left_count


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 12))
def test_every_instance_moves(count: int, batch: int, turns: int) -> None:
    """Every instance moves, whatever the batch, if ended instances start in an allowed cluster; a rollback after any
    number of steps brings all of them back.
    """
    clusters, moved = dict.fromkeys(range(count), "a"), set[int]()

    def take_step(migration: Migration, home: str) -> bool:
        step = next_service_step(ServicePods(clusters, moved=frozenset(moved)), migration, batch)
        assert len(step.ask) == min(batch, step.left_count)
        moved.update(step.ask)
        clusters.update(dict.fromkeys(step.ask, home))
        return step.is_done

    is_done = True in [take_step(FORWARD, "b") for _ in range(turns)]
    assert Counter(clusters.values())["b"] == min(count, batch * turns)
    assert is_done == (turns > -(-count // batch))
    while not take_step(BACK, "a"):
        pass
    assert {"a"} == set(clusters.values())


def test_a_service_says_what_it_waits_for() -> None:
    """A service reports its unavailable instances, and the reason of its SLA."""
    assert "" == service_waits(ServiceStep(is_done=True), "", 0, "cluster b")
    assert "3 instances to serve in cluster b" == service_waits(ServiceStep((1, 2), 5, 1), "", 2, "cluster b")
    assert "its SLA: no" == service_waits(ServiceStep((1,), 1, 0), "no", 0, "cluster b")


# -- all of them


def test_services_take_turns() -> None:
    """Services under way continue, also beyond the bound; others begin in order up to the bound."""
    services = [service(state, str(i)) for i, state in enumerate((DONE, MOVING, WAITING, MOVING, WAITING))]

    assert [["1", "3"], ["1", "3"], ["1", "3", "2"]] == [
        [one.name for one in services_to_step(services, at_once)] for at_once in (1, 2, 3)
    ]


def test_a_migration_is_over_when_all_is_done() -> None:
    """A migration ends with its services, and the batch pods to be moved; one without services ends at once. A paused
    one does not end.
    """
    services = [service(DONE, moved_count=2), service(DONE, moved_count=1)]
    paused = replace(FORWARD, state=MigrationState.PAUSED)

    found = [progress_of(FORWARD, services), progress_of(BACK, services), progress_of(paused, [])]
    found.append(progress_of(FORWARD, [], 1))

    assert ["SUCCEEDED", "ROLLED_BACK", "PAUSED", "MIGRATING"] == [one.state for one in found]
    assert ["", "", "an operator to resume it", "1 batch pods to end"] == [one.waiting_for for one in found]
    assert (2, 2, 3) == (found[0].done_count, found[0].service_count, found[0].moved_count)
    assert "SUCCEEDED" == progress_of(FORWARD, []).state


def test_a_progress_names_few_services() -> None:
    """Progress names few services, however many are under way."""
    services = [service(MOVING, str(i), waiting_for="x", left_count=1) for i in range(1_000)]

    progress = progress_of(FORWARD, services)

    assert (20, 20, 1_000) == (len(progress.services), len(progress.waiting_for.split("; ")), progress.left_count)


@pytest.mark.parametrize(
    ("act", "state", "refusal"),
    [
        (MigrationAct.PAUSE, MigrationState.MIGRATING, ""),
        (MigrationAct.RESUME, MigrationState.PAUSED, ""),
        (MigrationAct.ROLL_BACK, MigrationState.PAUSED, ""),
        (MigrationAct.ROLL_BACK, MigrationState.ROLLING_BACK, ""),
        (MigrationAct.PAUSE, MigrationState.ROLLING_BACK, "is ROLLING_BACK: it can be neither paused nor resumed"),
        (MigrationAct.RESUME, MigrationState.ROLLING_BACK, "is ROLLING_BACK: it can be neither paused nor resumed"),
        (MigrationAct.ROLL_BACK, MigrationState.SUCCEEDED, "is SUCCEEDED: start another one"),
    ],
)
def test_acts_that_come_too_late_are_refused(act: MigrationAct, state: MigrationState, refusal: str) -> None:
    """A late act is refused with the state of the migration."""
    said = f"the migration of /maps to cluster b {refusal}" if refusal else ""

    assert said == refusal_of(act, replace(FORWARD, state=state))


def test_people_read_how_far_it_is() -> None:
    """Details have the progress, the reason of the wait, and the reason for which a cancellation was refused."""
    progress = MigrationProgress(
        done_count=1, service_count=3, moved_count=4, left_count=1, batch_left_count=2, waiting_for="web: x"
    )

    said = details("/maps", "b", progress, "it has ended")

    assert [
        "The migration of **/maps** to cluster **b** is **MIGRATING**.",
        "1 of 3 services are done; 4 instances were taken down for it, 1 are left in the services under way.",
        "2 batch pods are to leave their hosts.",
        "It waits for web: x.",
        "The cancellation was refused: it has ended",
    ] == said.split("\n\n")


def test_volumes_do_not_move() -> None:
    """A volume does not move, even by force."""
    load = MigrationLoad({}, (), volume_count=2)

    refusal = plan_refusal("db", "east", load, MigrationTarget(Resources(), Resources(), {}), is_forced=True)

    assert "db has 2 volumes in other clusters than east, and what is on volumes does not move" == refusal
