"""Pods that no host fits even if it were empty, and the reason with its numbers."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from peloton.lifecycle.constraints import EXCLUSIVE_LABEL, host_labels, matches
from peloton.lifecycle.reason_text import infeasible_text
from peloton.model.host import POD_SLOTS_UNLIMITED, HostLease, LeasedHost, ReadyGang
from peloton.model.host_pool import DISK_LABEL, HOST_POOL_LABEL
from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import LackingVolumeDisk
from peloton.model.pod import AllOf, Constraint, HostLabel, Label, PodLabel, PodShape
from peloton.model.resources import Resources
from peloton.scheduling.fit import HostKind, HostView, by_key, count_fits, infeasible, misfit
from peloton.scheduling.placement import place

RACK_Z, RACK_A = HostLabel("rack", "z"), HostLabel("rack", "a")
SMALL = HostKind(Resources(4_000, 8_192, 0, 0), {"rack": "a"}, 2)
WIDE = HostKind(Resources(16_000, 1_024, 0, 0), {"rack": "b"}, 1)
KEPT = HostKind(Resources(64_000, 65_536, 0, 0), {EXCLUSIVE_LABEL: "ml"}, 1)


def pod(cpu: float, memory: int = 1, constraint: Constraint | None = None, revocable: bool = False) -> PodShape:
    return PodShape(Resources.of(cpu, memory), revocable=revocable, constraint=constraint)


@pytest.mark.parametrize(
    ("shape", "hosts", "why"),
    [
        (pod(7), [SMALL], "no host has cpu 7: the largest of 2 hosts has 4"),
        (pod(17, 9_000), [SMALL, WIDE],
         "no host has cpu 17: the largest of 3 hosts has 16; "
         "no host has memory 9000 MiB: the largest of 3 hosts has 8192 MiB"),
        (pod(7, 2_000), [SMALL, WIDE], "no host has cpu 7 and memory 2000 MiB together: there are 3 hosts"),
        (pod(1, 1, RACK_Z), [SMALL, WIDE], "0 of 3 hosts meet the constraint label rack=z"),
        (pod(1, 1, AllOf((RACK_A, RACK_Z))), [SMALL],
         "0 of 2 hosts meet the constraint (label rack=a and label rack=z)"),
        (pod(7, 1, RACK_A), [SMALL, WIDE],
         "no host has cpu 7: the largest of the 2 of 3 hosts that meet the constraint label rack=a has 4"),
        (pod(1), [KEPT], f"0 of 1 host take pods that do not ask for {EXCLUSIVE_LABEL}"),
        (pod(1, 1, HostLabel("rack", "z", "<", 1)), [KEPT],
         "1 of 1 host meet the constraint label rack=z < 1, and take only pods that ask for peloton/exclusive"),
        (pod(40), [SMALL, KEPT],
         "no host has cpu 40: the largest of the 2 of 3 hosts that are not kept for others has 4"),
        (pod(7, revocable=True), [SMALL], "no host has cpu 7: the largest of 2 hosts has 4"),
        (pod(4), [SMALL], ""),
        (pod(7), [SMALL, WIDE], ""),
        (pod(1, 1, PodLabel("app", "web", "<", 1)), [SMALL], ""),
        (pod(1), [], ""),
    ],
)  # fmt: skip
def test_why_no_host_could_take_a_pod(shape: PodShape, hosts: list[HostKind], why: str) -> None:
    """Shape, constraint and exclusive hosts count; running pods and free resources do not. A cluster without hosts has
    no reason.
    """
    found = infeasible(shape, hosts)
    assert why == (infeasible_text((found,)) if found else "")


@given(
    cpu=st.integers(0, 20),
    memory=st.integers(0, 20),
    constraint=st.sampled_from([None, RACK_A, RACK_Z]),
    hosts=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from("az"), st.booleans()), max_size=4),
)
def test_it_is_said_just_when_no_host_fits(
    cpu: int, memory: int, constraint: Constraint | None, hosts: list[tuple[int, int, str, bool]]
) -> None:
    """A pod has a reason exactly if a check of host after host finds none."""
    shape = pod(cpu, memory, constraint)
    kinds = [
        HostKind(Resources.of(has, mem), {"rack": rack, **({EXCLUSIVE_LABEL: "x"} if is_kept else {})})
        for has, mem, rack, is_kept in hosts
    ]
    fits = [
        shape.resources.fits_in(kind.capacity)
        and EXCLUSIVE_LABEL not in kind.labels
        and matches(constraint, kind.labels)
        for kind in kinds
    ]

    assert (bool(kinds) and not any(fits)) == bool(infeasible(shape, kinds))


def test_a_factor_for_disk_is_not_for_volumes() -> None:
    """A factor for disk does not apply to volumes: of 1,000 MiB that are announced as 2,000 a pod with a volume of 800
    has 400 for itself, which use 200.
    """
    labels = {DISK_LABEL: "200", HOST_POOL_LABEL: "wide"}
    host = HostView(labels, Resources(1_000, 1_000, 2_000))
    shape = PodShape(Resources(1, 1, 1_200), volume_mib=800)

    assert (None, 1) == (misfit(shape, host), count_fits(shape, host))

    too_large = replace(shape, resources=Resources(1, 1, 1_202))
    why = misfit(too_large, host)
    assert (LackingVolumeDisk("wide", 1_001, 1_000, 800), 0) == (why, count_fits(too_large, host))
    assert None is misfit(replace(too_large, volume_mib=0), host)
    never = infeasible(PodShape(Resources(1, 1, 1_500), volume_mib=1_500), [HostKind(host.free, labels)])
    assert never is not None
    assert "no host has disk 1500 MiB: the largest of 1 host has 1000 MiB" == infeasible_text((never,))


WEB = ("app", "web")
CONSTRAINTS = [
    None,
    RACK_A,
    AllOf((RACK_A, PodLabel(*WEB, "<", 2))),
    HostLabel("hostname", "h"),
    PodLabel(*WEB, ">", 0),
    HostLabel(EXCLUSIVE_LABEL, "ml"),
]
EXTENDED = st.sampled_from([(), (("example.com/fpga", 1),), (("example.com/fpga", 2), ("example.com/nic", 1))])
ASKED = st.one_of(EXTENDED, st.just((("example.com/nic", 1), ("license/solver", 1))))
OVERSUBSCRIBED = [(DISK_LABEL, "160"), (HOST_POOL_LABEL, "wide")]
LABELS = st.lists(st.sampled_from([("rack", "a"), ("rack", "z"), (EXCLUSIVE_LABEL, "ml")]), max_size=2).flatmap(
    lambda labels: st.sampled_from([labels, labels + OVERSUBSCRIBED])
)


@given(
    asked=st.builds(
        PodShape,
        st.builds(Resources, st.integers(0, 3), st.integers(0, 3), st.integers(4, 9), st.integers(0, 1), ASKED),
        st.integers(0, 2),
        volume_mib=st.integers(0, 4),
        revocable=st.booleans(),
        constraint=st.sampled_from(CONSTRAINTS),
    ),
    free=st.builds(Resources, st.integers(0, 30), st.integers(0, 3), st.integers(0, 20), st.integers(0, 1), EXTENDED),
    revocable_cpu=st.integers(0, 30),
    slots=st.sampled_from([0, 1, POD_SLOTS_UNLIMITED]),
    ports=st.integers(0, 3),
    labels=LABELS,
    pods=st.integers(0, 2),
)
def test_a_placement_puts_a_pod_exactly_where_it_fits(
    asked: PodShape, free: Resources, revocable_cpu: int, slots: int, ports: int, labels: list[Label], pods: int
) -> None:
    """The arrays of a placement and ``misfit`` agree on free resources, pod slots, ports, labels and pods; the reason
    of a refused pod is the rule of ``misfit``.
    """
    ranges = ((31_000, 31_000 + ports - 1),) if ports else ()
    amounts = free, Resources(revocable_cpu), ranges
    host = LeasedHost(Hostname("h"), *amounts, tuple(labels), ((WEB, pods),), pod_slots=slots)
    view = HostView(host_labels("h", labels), free, revocable_cpu, ports, pod_slots=slots)
    why = misfit(asked, view, by_key([(WEB, pods)]))

    batch = place(JobId("j"), [ReadyGang(asked, ((0, 1),))], HostLease("lease", (host,)))

    assert (why is None) == bool(batch.placements) == (why is None and count_fits(asked, view) > 0)
    reported = [one.why for reason in batch.why for each in reason.pods for one in each.hosts]
    assert [why] * (why is not None) == reported
