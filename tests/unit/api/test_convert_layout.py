"""Placement of a job: conversion of both versions of the API to the model, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api import convert_v1_spec
from peloton.api.convert_layout import layout, layout_faults
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.model.layout import GangClose, Layout, Spread

Rule = job_pb2.Spread


def config(*rules: Rule, **more: Any) -> job_pb2.JobConfig:
    return job_pb2.JobConfig(placement=job_pb2.Placement(spread=rules), **more)


def test_rules_are_hard_with_a_skew_of_one_unless_they_say_otherwise() -> None:
    """Rules default to hard ones with a skew of one; a job without rules has no layout."""
    rules = Rule(label="rack"), Rule(label="zone", maxSkew=3, soft=True)
    assert Layout((Spread("rack", 1, True), Spread("zone", 3, False))) == layout(config(*rules).placement)
    assert layout(config().placement) is None


def test_v1alpha_means_the_same() -> None:
    """The rules of v1alpha are converted to the same layout and back."""
    placement = stateless_pb2.Placement(spread=[stateless_pb2.Spread(label="zone", max_skew=3, soft=True)])
    spec = stateless_pb2.JobSpec(name="web", placement=placement)

    stored = convert_v1_spec.job_config(spec)

    assert Layout((Spread("zone", 3, False),)) == layout(stored.placement)
    assert placement == convert_v1_spec.job_spec(stored).placement


def test_a_gang_may_be_close() -> None:
    """The closeness of a gang is preferred unless it is required."""
    for is_required in (False, True):
        placement = job_pb2.Placement(gangClose=job_pb2.GangClose(label="rack", required=is_required))
        assert Layout((), GangClose("rack", is_required)) == layout(placement)
        gang = job_pb2.JobConfig(placement=placement, sla=job_pb2.SlaConfig(minimumRunningInstances=2))
        assert [] == list(layout_faults(gang))


NO_GANG = job_pb2.JobConfig(
    placement=job_pb2.Placement(gangClose=job_pb2.GangClose(label="rack")),
    sla=job_pb2.SlaConfig(minimumRunningInstances=1),
)
NO_LABEL = job_pb2.JobConfig(
    placement=job_pb2.Placement(gangClose=job_pb2.GangClose()), sla=job_pb2.SlaConfig(minimumRunningInstances=2)
)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (config(Rule(label="rack"), Rule()), "placement.spread[1] names no label of hosts"),
        (
            config(Rule(label="x" * 4_001)),
            "placement.spread[0]: the label has 4001 characters, at most 4000 are allowed",
        ),
        (config(Rule(label="rack"), Rule(label="rack")), "placement.spread[1]: the label rack is there already"),
        (NO_GANG, "placement.gangClose is given: the job has no gang, its minimumRunningInstances is 1"),
        (NO_LABEL, "placement.gangClose names no label of hosts"),
        (config(*[Rule()] * 9), "placement has 9 rules to spread, at most 8 are allowed"),
        (
            config(Rule(label="rack"), type=job_pb2.DAEMON),
            "placement is given: a daemon has one instance on each host that matches, leave it out",
        ),
    ],
)
def test_what_is_refused(refused: job_pb2.JobConfig, text: str) -> None:
    """The error has the rule's place, or the numbers."""
    assert [text] == list(layout_faults(refused))
