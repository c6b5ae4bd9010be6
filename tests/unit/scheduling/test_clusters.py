"""The order in which clusters are asked for hosts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import may_hold_in
from peloton.lifecycle.reason_text import placement_text
from peloton.model.host import CLUSTER_KIND_LABEL, CLUSTER_LABEL, Capacity, ClusterChoice
from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, HostPreference, PodShape
from peloton.model.reason import ClusterReason, ClusterRule
from peloton.model.resources import Resources
from peloton.scheduling.clusters import (
    CAPACITY_KEPT_S,
    ClusterView,
    Known,
    counts_as_known,
    order_clusters,
)

SMALL = PodShape(Resources(1_000, 100))
IN_B = HostLabel(CLUSTER_LABEL, "b", "=", 1)
NOT_B = HostLabel(CLUSTER_LABEL, "b", "<", 1)
FAST = HostLabel("disk", "fast", "=", 1)


def view(name: str, cpu: int, memory: int = 10_000, is_silent: bool = False) -> ClusterView:
    return ClusterView(name, Resources(cpu * 1_000, memory), is_silent)


def test_the_one_with_most_free_resources_is_first() -> None:
    """Clusters are ordered by free resources for the pods, by the scarcest kind; equals by name."""
    views = [view("c", 8), view("b", 8), view("a", 2), view("d", 100, memory=150)]

    assert ClusterChoice(("b", "c", "a", "d")) == order_clusters(views, [(SMALL, 4)], {})


def test_pods_that_come_back_come_first() -> None:
    """Pods with a preferred host decide the order by majority, whatever is free in the clusters."""
    views = [view("a", 0), view("b", 1), view("c", 100)]

    assert ClusterChoice(("b", "a", "c")) == order_clusters(views, [(SMALL, 4)], {"a": 1, "b": 3})


def test_preferred_clusters_come_before_those_with_more_free_resources() -> None:
    """A preference for a cluster decides before free resources; one for another label excludes no cluster, and does
    not.
    """
    views = [view("a", 8), view("b", 1)]

    for constraint, order in ((IN_B, ("b", "a")), (FAST, ("a", "b")), (NOT_B, ("a", "b"))):
        fond = replace(SMALL, preferences=(HostPreference(1, constraint),))
        assert order == order_clusters(views, [(fond, 1)], {}).order


def test_silent_clusters_and_those_of_others_are_passed_over() -> None:
    """A cluster that does not respond or that the pods exclude has a reason; one that some of the pods allow is
    tried.
    """
    views = [view("a", 8), view("b", 1), view("c", 9, is_silent=True)]
    bound = replace(SMALL, constraint=IN_B)

    assert ClusterChoice(
        ("b",), (ClusterReason("a", ClusterRule.ELSEWHERE), ClusterReason("c", ClusterRule.SILENT))
    ) == order_clusters(views, [(bound, 1)], {})
    assert ("a", "b") == order_clusters(views, [(bound, 1), (SMALL, 1)], {}).order


def test_only_what_may_go_there_counts_as_wanted() -> None:
    """A hundred pods bound to cluster b do not make cluster a full."""
    views = [view("a", 4), view("b", 90)]
    wanted = [(replace(SMALL, constraint=IN_B), 100), (SMALL, 1)]

    assert ("a", "b") == order_clusters(views, wanted, {}).order


def test_revocable_cpu_is_not_free() -> None:
    """Revocable pods use ordinary memory, and an unknown amount of slack."""
    views = [view("a", 100, memory=100), view("b", 0, memory=1_000)]

    assert ("b", "a") == order_clusters(views, [(replace(SMALL, revocable=True), 1)], {}).order


def test_constraints_are_read_as_far_as_they_name_clusters() -> None:
    """Labels that do not name clusters, and pod labels, leave the result open."""
    cases: list[tuple[Constraint | None, bool, bool]] = [
        (None, True, True),
        (IN_B, False, True),
        (NOT_B, True, False),
        (FAST, True, True),
        (AllOf((FAST, IN_B)), False, True),
        (AnyOf((FAST, IN_B)), True, True),
        (AnyOf((NOT_B, HostLabel(CLUSTER_LABEL, "c", "=", 1))), True, False),
        (AllOf((IN_B, NOT_B)), False, False),
        (AnyOf(()), True, True),
        (AllOf(()), True, True),
    ]

    assert [(a, b) for _, a, b in cases] == [(may_hold_in(c, "a"), may_hold_in(c, "b")) for c, *_ in cases]


def test_constraints_name_kinds_of_clusters() -> None:
    """A cluster of unknown kind may hold any constraint."""
    on_mesos, not_there = HostLabel(CLUSTER_KIND_LABEL, "mesos", "=", 1), HostLabel(CLUSTER_KIND_LABEL, "mesos", "<", 1)

    found = [[may_hold_in(c, "a", kind) for kind in ("mesos", "kubernetes", "")] for c in (on_mesos, not_there)]

    assert [[True, False, True], [False, True, True]] == found


def test_clusters_of_another_kind_are_passed_over() -> None:
    """A reason names the kind of the cluster."""
    views = [replace(view("a", 8), kind="mesos"), replace(view("b", 1), kind="kubernetes")]
    bound = replace(SMALL, constraint=HostLabel(CLUSTER_KIND_LABEL, "kubernetes", "=", 1))

    choice = order_clusters(views, [(bound, 1)], {})

    assert ("b",) == choice.order
    assert "cluster a: no pod may go there: label peloton/cluster=a, peloton/cluster-kind=mesos" == placement_text(
        choice.passed_over
    )


VIEWS = st.lists(
    st.builds(view, st.sampled_from("abcdef"), st.integers(0, 9), is_silent=st.booleans()), unique_by=lambda v: v.name
)


@given(VIEWS, st.randoms(), st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3)))
def test_every_cluster_is_tried_once_or_has_a_reason(
    views: list[ClusterView], random: Random, preferred: dict[str, int]
) -> None:
    """The choice does not depend on the order of the arguments."""
    choice = order_clusters(views, [(SMALL, 3)], preferred)
    shuffled = list(views)
    random.shuffle(shuffled)

    assert sorted(v.name for v in views) == sorted([*choice.order, *(one.cluster for one in choice.passed_over)])
    assert {v.name for v in views if v.is_silent} == {one.cluster for one in choice.passed_over}
    assert choice == order_clusters(shuffled, [(SMALL, 3)], preferred)


def test_a_silent_cluster_counts_for_a_while() -> None:
    """A cluster that does not respond counts with its last capacity for a while; afterwards, and if it never reported
    one, with its held resources.
    """
    known = Known(Capacity(Resources(4_000), Resources(), Resources(4_000)), said_s=10.0)

    assert counts_as_known(known, 10.0 + CAPACITY_KEPT_S)
    assert not counts_as_known(known, 10.1 + CAPACITY_KEPT_S)
    assert not counts_as_known(None, 0.0)
