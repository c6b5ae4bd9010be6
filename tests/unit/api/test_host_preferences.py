"""Preferences for hosts in configurations: conversion of both versions of the API, job files, and refusals."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api import convert, convert_v1_spec
from peloton.api.config_bounds import HOST_PREFERENCES_MAX
from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.pod import AllOf, HostLabel, HostPreference
from services.api.validation import job_faults


def label(value: str = "a", kind: str = "HOST") -> dict[str, object]:
    one = {"kind": kind, "condition": "CONDITION_EQUAL", "requirement": 1, "label": {"key": "zone", "value": value}}
    return {"type": "LABEL_CONSTRAINT", "labelConstraint": one}


def prefer(weight: int, constraint: Mapping[str, object]) -> dict[str, object]:
    return {"weight": weight, "constraint": constraint}


def job(*preferences: dict[str, object], kind: str = "BATCH") -> job_pb2.JobConfig:
    task = {"command": {"value": "true"}, "resource": {"cpuLimit": 1}, "hostPreferences": preferences}
    count = 0 if kind == "DAEMON" else 2
    return ParseDict({"name": "j", "type": kind, "instanceCount": count, "defaultConfig": task}, job_pb2.JobConfig())


def test_preferences_become_part_of_the_shape() -> None:
    """A preference has its weight and constraint; those of an instance replace those of the job."""
    config = job(prefer(5, label()), prefer(9, {"type": "AND_CONSTRAINT", "andConstraint": {"constraints": [label()]}}))
    config.instanceConfig[1].CopyFrom(job(prefer(1, label("b"))).defaultConfig)

    shapes = [convert.pod_shape(effective_task_config(config, instance), config.sla) for instance in (0, 1)]

    in_a = HostLabel("zone", "a")
    assert [
        (HostPreference(5, in_a), HostPreference(9, AllOf((in_a,)))),
        (HostPreference(1, HostLabel("zone", "b")),),
    ] == [shape.preferences for shape in shapes]
    assert [] == job_faults(config, None).lines()


def test_v1alpha_means_the_same() -> None:
    """The preferences of v1alpha are those of v0, in both directions."""
    rule = pod_pb2.Constraint(type=pod_pb2.Constraint.CONSTRAINT_TYPE_LABEL)
    rule.label_constraint.kind = pod_pb2.LabelConstraint.LABEL_CONSTRAINT_KIND_HOST
    rule.label_constraint.condition = pod_pb2.LabelConstraint.LABEL_CONSTRAINT_CONDITION_EQUAL
    rule.label_constraint.label.key, rule.label_constraint.label.value = "zone", "a"
    rule.label_constraint.requirement = 1
    spec = pod_pb2.PodSpec(host_preferences=[pod_pb2.HostPreference(weight=5, constraint=rule)])

    task = convert_v1_spec.task_config(spec)

    assert (HostPreference(5, HostLabel("zone", "a")),) == convert.host_preferences(task)
    assert spec.host_preferences == convert_v1_spec.pod_spec(task).host_preferences


NOT_CLOSED = {"type": "NOT_CONSTRAINT"}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (job(prefer(0, label())), "hostPreferences[0]: weight is 0, want 1 to 100"),
        (job(prefer(1, label()), prefer(101, label())), "hostPreferences[1]: weight is 101, want 1 to 100"),
        (
            job(*[prefer(1, label())] * (HOST_PREFERENCES_MAX + 1)),
            "hostPreferences has 17 preferences, at most 16 are allowed",
        ),
        (job(prefer(1, {})), "hostPreferences[0] names no label of hosts"),
        (
            job(prefer(1, label(kind="TASK"))),
            "hostPreferences[0] names a label of pods: hosts are preferred by labels of hosts alone",
        ),
        (
            job(prefer(1, NOT_CLOSED)),
            "hostPreferences[0]: a NOT constraint has no constraint: set notConstraint.constraint",
        ),
        (
            job(prefer(1, label()), kind="DAEMON"),
            "hostPreferences is given: a daemon has one instance on each host that matches, leave it out",
        ),
    ],
)
def test_what_is_refused(config: job_pb2.JobConfig, text: str) -> None:
    """The error has the place of the preference, the rule and the numbers."""
    assert [f"Invalid config for instance 0, {text}"] == job_faults(config, None).lines()


def test_an_override_is_refused_for_its_own_instance() -> None:
    """The error names the instance whose override has the preference."""
    config = job(prefer(1, label()))
    config.instanceConfig[1].hostPreferences.add(weight=200, constraint=task_pb2.Constraint())

    assert [
        "Invalid config for instance 1, hostPreferences[0]: weight is 200, want 1 to 100",
        "Invalid config for instance 1, hostPreferences[0] names no label of hosts",
    ] == job_faults(config, None).lines()
