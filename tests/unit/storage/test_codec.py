"""Encoding of blobs and short texts in storage."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from peloton.model.layout import GangClose, Layout, Spread
from peloton.model.pod import (
    AllOf,
    AnyOf,
    HealthState,
    HostLabel,
    HostPreference,
    PodLabel,
    PodShape,
    PodState,
    Strategy,
)
from peloton.model.ranges import as_ranges
from peloton.model.resources import Resources
from services.storage.codec import (
    InstanceFacts,
    counts_from_text,
    counts_to_text,
    facts_from_text,
    facts_to_text,
    pack,
    unpack,
)
from services.storage.ranges import chunks


@pytest.mark.parametrize("data", [b"", b"config", b"x" * 100_000])
def test_blobs_are_unpacked_as_they_were(data: bytes) -> None:
    """A packed blob unpacks to the same bytes, and repetitive data is small."""
    assert data == unpack(pack(data))
    assert len(pack(data)) < 100


def test_blobs_of_another_format_are_refused() -> None:
    """The first byte is the format of a blob; an unknown format is refused."""
    with pytest.raises(ValueError, match="unknown format"):
        unpack(b"\x02rest")


def test_facts_of_a_configuration_are_kept() -> None:
    """Shape, retries, health, grace, labels and image are restored, constraints as a tree."""
    rule = AllOf(
        (HostLabel("rack", "1", "=", 2), AnyOf((PodLabel("job", "x", "<", 1), HostLabel("zone", "z", ">", 0))))
    )
    shape = PodShape(Resources(1, 2, 3, 4, (("license/a", 5),)), 5, True, True, True, Strategy.SPREAD_JOB, rule)
    facts = InstanceFacts("worker", shape, 6, HealthState.HEALTH_UNKNOWN, 7, True, (("a", "b"),), "web:1")
    plain = InstanceFacts("", PodShape(Resources()), 0, HealthState.DISABLED, 30)

    assert [facts, plain] == [facts_from_text(facts_to_text(f)) for f in (facts, plain)]
    assert facts_from_text(facts_to_text(facts)).shape is facts_from_text(facts_to_text(replace(facts, name="b"))).shape


def test_facts_of_rows_from_before_images() -> None:
    """Rows without an image have an empty one."""
    text = facts_to_text(InstanceFacts("old", PodShape(Resources()), 0, HealthState.DISABLED, 30, image="web:1"))

    assert "" == facts_from_text(json.dumps(json.loads(text)[:-1])).image


@pytest.mark.parametrize("strategy", Strategy)
def test_a_strategy_that_release_0_1_does_not_know_is_to_it_the_one_of_batch_jobs(strategy: Strategy) -> None:
    """Release 0.1 reads the ninth value of a row, and ignores the values after the image."""
    text = facts_to_text(
        InstanceFacts("a", PodShape(Resources(), strategy=strategy), 0, HealthState.DISABLED, 30, image="web:1")
    )

    assert strategy is facts_from_text(text).shape.strategy
    known = Strategy.PACK_HOST if strategy in (Strategy.DEFRAGMENT, Strategy.LEAST_LOADED) else strategy
    assert known == json.loads(text)[9]


def test_spread_is_kept() -> None:
    """The skew, its hardness and the closeness of a gang are restored."""
    layout = Layout((Spread("rack"), Spread("zone", 3, is_hard=False)), GangClose("rack", True))
    shape = PodShape(Resources(), layout=layout)
    facts = InstanceFacts("a", shape, 0, HealthState.DISABLED, 30)

    assert facts == facts_from_text(facts_to_text(facts))


def test_preferences_are_kept() -> None:
    """The weights and constraints of preferences are restored, in their order."""
    either = AnyOf((HostLabel("zone", "a"), HostLabel("zone", "b")))
    shape = PodShape(
        Resources(), preferences=(HostPreference(7, either), HostPreference(100, HostLabel("disk", "hdd", "<")))
    )
    facts = InstanceFacts("a", shape, 0, HealthState.DISABLED, 30)

    assert facts == facts_from_text(facts_to_text(facts))


def test_counts_leave_out_zeros() -> None:
    """States without pods are omitted."""
    text = counts_to_text({PodState.RUNNING: 2, PodState.FAILED: 0})

    assert {PodState.RUNNING: 2} == counts_from_text(text)


@pytest.mark.parametrize(
    ("instances", "expected"), [([], []), ([5], [(5, 1)]), ([0, 1, 2, 4, 6, 7], [(0, 3), (4, 1), (6, 2)])]
)
def test_rising_instances_become_ranges(instances: list[int], expected: list[tuple[int, int]]) -> None:
    """Adjacent instances share a range."""
    assert expected == as_ranges(instances)


def test_ranges_are_cut_to_size() -> None:
    """Ranges have a maximum size, so that transactions have a bound."""
    assert [(0, 4), (4, 4), (8, 2), (20, 1)] == list(chunks([(0, 10), (20, 1), (30, 0)], 4))
