"""Reasons in words, and on the wire between roles."""

from __future__ import annotations

import pytest

from peloton.api import convert_reason as wire
from peloton.lifecycle.reason_text import misfit_text, placement_text, requeue_text
from peloton.model.misfit import (
    FailedPods,
    FlappingHost,
    GangCapacity,
    HostRule,
    LackingAmount,
    LackingPorts,
    LackingVolumeDisk,
    Misfit,
    NameTaken,
    NoDomain,
    OwnReservation,
    PortInUse,
    Refused,
    ReservedForOther,
    SkewExceeded,
    Slots,
    UnmetConstraint,
    UnservedWorkload,
    from_slots,
    to_slots,
)
from peloton.model.reason import ClusterReason, ClusterRule, RequeueReason, RequeueRule, merge_misfits
from tests.reasons import HOT, lacking_capacity, too_large

MISFITS = [
    (Refused(HostRule.EXCLUSIVE), "kept for pods that ask for peloton/exclusive"),
    (UnmetConstraint("label rack=a"), "label rack=a not met"),
    (LackingAmount(HostRule.SIZE, "cpu", 8_000, 4_000), "less than 8 cpu even when empty, 4 at most"),
    (LackingAmount(HostRule.FREE_RESOURCES, "memory", 200, 100), "less than 200 MiB memory free, 100 MiB at most"),
    (LackingAmount(HostRule.REVOCABLE_RESOURCES, "cpu", 2_000, 500), "less than 2 revocable cpu free, 0.5 at most"),
    (
        LackingVolumeDisk("wide", 1_050, 1_000, 950),
        "less than 1050 MiB disk free with a volume of 950 MiB, 1000 MiB at most: what host pool wide announces beyond "
        "the disk of its hosts is not for volumes",
    ),
    (Refused(HostRule.POD_SLOTS), "no pod slot left"),
    (LackingPorts(1, 0), "less than 1 port free, 0 at most"),
    (NameTaken("b"), "a host of cluster b has the same name"),
    (Refused(HostRule.AVOIDED), "avoided after pods of several jobs failed there"),
    (FailedPods(3, 1, 2), "avoided after 3 pods of the job failed there within 2 s"),
    (GangCapacity(9, 8), "fits 8 of the gang's 9 pods"),
]


@pytest.mark.parametrize(("misfit", "text"), MISFITS)
def test_rules_of_hosts_in_words(misfit: Misfit, text: str) -> None:
    """Each rule has its numbers and names."""
    assert text == misfit_text(misfit)


@pytest.mark.parametrize(
    ("slots", "misfit"),
    [
        (Slots(HostRule.EXCLUSIVE), Refused(HostRule.EXCLUSIVE)),
        (Slots(HostRule.SIZE, "cpu", 8, 4), LackingAmount(HostRule.SIZE, "cpu", 8, 4)),
        (Slots(HostRule.VOLUME_DISK, "disk", 9, 7, 5, "wide"), LackingVolumeDisk("wide", 9, 7, 5)),
        (Slots(HostRule.PORTS, wanted=2, left=1), LackingPorts(2, 1)),
        (Slots(HostRule.PORTS, name="8080"), PortInUse("8080")),
        (Slots(HostRule.HOST_POOL, "batch", name="web"), UnservedWorkload("web", "batch")),
        (Slots(HostRule.CONSTRAINT, name="label rack=a"), UnmetConstraint("label rack=a")),
        (Slots(HostRule.NAME_TAKEN, name="b"), NameTaken("b")),
        (Slots(HostRule.AVOIDED), Refused(HostRule.AVOIDED)),
        (Slots(HostRule.AVOIDED, wanted=3, left=2, bound=1), FailedPods(3, 1, 2)),
        (Slots(HostRule.FLAPPING), Refused(HostRule.FLAPPING)),
        (Slots(HostRule.FLAPPING, wanted=3, left=40), FlappingHost(3, 40)),
        (Slots(HostRule.SKEW, "c", 3, 1, 2, "rack"), SkewExceeded("rack", "c", 1, 3, 2)),
        (Slots(HostRule.SKEW, name="rack"), NoDomain("rack")),
        (Slots(HostRule.GANG_CAPACITY, wanted=9, left=8, name="rack"), GangCapacity(9, 8, "rack")),
        (Slots(HostRule.RESERVED, name="j-1"), ReservedForOther("j-1")),
        (Slots(HostRule.OWN_RESERVATION, "cpu", 10, 20, 5, "h1"), OwnReservation("h1", 10, 20, "cpu", 5)),
    ],
)
def test_slots_of_the_previous_release(slots: Slots, misfit: Misfit) -> None:
    """Each rule keeps the slots that the previous release gives it, in both directions."""
    assert (misfit, slots) == (from_slots(slots), to_slots(misfit))


@pytest.mark.parametrize("rule", list(HostRule))
def test_every_rule_of_hosts_has_words(rule: HostRule) -> None:
    """Every rule has a text, also unknown rules of another version."""
    assert misfit_text(from_slots(Slots(rule)))


@pytest.mark.parametrize("rule", list(ClusterRule))
@pytest.mark.parametrize("cluster", ["", "a"])
def test_every_rule_of_clusters_has_words(rule: ClusterRule, cluster: str) -> None:
    """Several clusters are named, a single one is not."""
    reason = ClusterReason(cluster, rule, lacking_capacity(1)[0].pods, detail="it is away")

    text = placement_text((reason,))
    assert (bool(cluster), True) == (text.startswith("cluster a: "), text != "cluster a: ")


def test_hosts_that_fail_one_rule_are_counted_together() -> None:
    """Hosts that fail one rule are counted together, with the largest free amount among them."""
    little, more = (LackingAmount(HostRule.FREE_RESOURCES, "cpu", 4_000, left) for left in (500, 2_500))

    (found,) = merge_misfits([(little, 2), (more, 1), (Refused(HostRule.LEASED), 0)])

    assert (3, more) == (found.host_count, found.why)


REASONS = [
    RequeueReason(RequeueRule.NO_HOST_IN_TIME, seconds=600, placement=lacking_capacity(2)),
    RequeueReason(RequeueRule.FITS_NO_HOST, 0, 1, 0, ((too_large(7, "a"), too_large(8, "b")),), (), 2),
    RequeueReason(RequeueRule.NOT_RUNNING_IN_TIME, 3, 4, 300, placement=lacking_capacity(4, is_gang=True)),
]


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_survive_the_wire(reason: RequeueReason) -> None:
    """Reasons keep every rule and number on the wire."""
    assert reason == wire.requeue_from_wire(wire.requeue_to_wire(reason))
    assert HOT == wire.qos_from_wire(wire.qos_to_wire(HOT))


def test_a_rule_of_another_version() -> None:
    """A rule of another version is read as unknown, and the rest as it is."""
    sent = wire.requeue_to_wire(REASONS[0])
    sent.rule = sent.placement[0].pods[0].hosts[0].rule = "of tomorrow"
    found = wire.requeue_from_wire(sent)

    assert (RequeueRule.UNKNOWN, 600) == (found.rule, found.seconds)
    assert HostRule.UNKNOWN is found.placement[0].pods[0].hosts[0].misfit.rule


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (REASONS[0], "no host found in 600 s: 2 pods without a host (3 hosts: less than 2 gpu free, 1 at most)"),
        (
            REASONS[1],
            "cluster a: no host has cpu 7: the largest of 3 hosts has 4; "
            "cluster b: no host has cpu 8: the largest of 3 hosts has 4; and 2 more reasons",
        ),
        (RequeueReason(RequeueRule.CANCELLED), "the workflow of its launch was cancelled"),
    ],
)
def test_why_pods_are_queued_again(reason: RequeueReason, text: str) -> None:
    """A requeue reason has the result of placement, or the resource that no host has."""
    assert text == requeue_text(reason)
