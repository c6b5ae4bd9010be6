"""Pinned updates: which instances keep which spec."""

from __future__ import annotations

import random
from typing import Any

import pytest

from peloton.api import convert_v1_spec
from peloton.api.compare import same_task
from peloton.api.merge import effective_task_config
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec
from services.aurorabridge.mapping.job_spec import job_spec_of
from services.aurorabridge.mapping.pins import CurrentPod, instance_specs, read_ranges
from services.aurorabridge.thrift import api
from tests.unit.aurorabridge.scenario import task_config, update_request

MARK = "aurora_bridge_update"


def spec_of(command: str = "sleep 100", mark: str = "", **fields: Any) -> PodSpec:
    spec = PodSpec()
    spec.CopyFrom(job_spec_of(update_request(task_config(command, **fields)), "pool", None).default_spec)
    if mark:
        spec.labels.add(key=MARK, value=mark)
    return spec


def complete(spec: PodSpec) -> PodSpec:
    spec.complete = True
    return spec


GENERATED = spec_of()


def labels_only(mark: str) -> PodSpec:
    return PodSpec(labels=[*GENERATED.labels, Label(key=MARK, value=mark)])


# pod (None: there is none), whether the update names the instance -> its spec
CASES: dict[str, tuple[CurrentPod | None, bool, PodSpec | None]] = {
    "no pod, named": (None, True, None),
    "no pod, not named": (None, False, None),
    "not named, equal": (CurrentPod(spec_of(), False), False, None),
    "not named, equal and stopped": (CurrentPod(spec_of(), True), False, None),
    "not named, marked": (CurrentPod(spec_of(mark="old"), False), False, labels_only("old")),
    "not named, marked and stopped": (CurrentPod(spec_of(mark="old"), True), False, labels_only("old")),
    "not named, changed": (CurrentPod(spec_of("true"), False), False, complete(spec_of("true"))),
    "not named, changed and marked": (
        CurrentPod(spec_of("true", "old"), True),
        False,
        complete(spec_of("true", "old")),
    ),
    "named, changed": (CurrentPod(spec_of("true"), False), True, None),
    "named, changed and stopped": (CurrentPod(spec_of("true", "old"), True), True, None),
    "named, equal": (CurrentPod(spec_of(), False), True, None),
    "named, marked": (CurrentPod(spec_of(mark="old"), False), True, labels_only("old")),
    "named, equal and stopped": (CurrentPod(spec_of(), True), True, labels_only("new")),
    "named, marked and stopped": (CurrentPod(spec_of(mark="old"), True), True, labels_only("new")),
}


@pytest.mark.parametrize(("pod", "is_named", "expected"), CASES.values(), ids=CASES)
def test_the_spec_of_an_instance(pod: CurrentPod | None, is_named: bool, expected: PodSpec | None) -> None:
    """Instance 1 of three is the one of the table; the others have the generated spec."""
    pods = {i: CurrentPod(spec_of(), False) for i in (0, 2)} | ({} if pod is None else {1: pod})
    named = {0, 1, 2} if is_named else {0, 2}

    assert instance_specs(pods, GENERATED, 3, named, "new") == ({} if expected is None else {1: expected})


def test_an_update_of_all_instances_names_each() -> None:
    """An update without ranges replaces changed pods and restarts stopped ones."""
    pods = {0: CurrentPod(spec_of("true"), False), 1: CurrentPod(spec_of(), True)}

    assert instance_specs(pods, GENERATED, 2, None, "new") == {1: labels_only("new")}


def test_instances_that_are_removed_have_no_spec() -> None:
    """Instances beyond the new count are left out."""
    pods = {i: CurrentPod(spec_of("true"), False) for i in range(5)}

    assert set(instance_specs(pods, GENERATED, 2, {0}, "new")) == {1}


def test_the_order_of_labels_changes_nothing() -> None:
    """Labels in another order are the same configuration."""
    current = spec_of(metadata=[api.Metadata(key="a", value="1"), api.Metadata(key="b", value="2")])
    generated = PodSpec()
    generated.CopyFrom(current)
    labels = [*current.labels]
    del generated.labels[:]
    generated.labels.extend(reversed(labels))

    assert instance_specs({0: CurrentPod(current, False)}, generated, 1, None, "new") == {}


def test_booleans_of_a_revocable_job_are_repeated() -> None:
    """An override decides booleans even if it leaves them out."""
    spec = spec_of(tier="revocable")

    (found,) = instance_specs({0: CurrentPod(spec, True)}, spec, 1, None, "new").values()

    assert found.revocable


LIMIT = api.Constraint(name="host", constraint=api.TaskConstraint(limit=api.LimitConstraint(limit=1)))
RICH = spec_of(
    resources=[api.Resource(numCpus=1), api.Resource(namedPort="http")],
    constraints=[LIMIT],
    container=api.Container(mesos=api.MesosContainer(volumes=[api.Volume(containerPath="/a", hostPath="/a", mode=1)])),
)


@pytest.mark.parametrize("generated", [GENERATED, RICH], ids=["plain", "rich"])
def test_pinned_specs_have_the_effect_that_the_rows_say(generated: PodSpec) -> None:
    """Merged over the generated spec, instances are replaced exactly if they are named and changed, or stopped; also if
    the generated spec has ports and constraints that instances lack."""
    marked = PodSpec()
    marked.CopyFrom(generated)
    marked.labels.add(key=MARK, value="old")
    for seed in range(200):
        chance = random.Random(seed)
        kinds = [generated, marked, spec_of("true"), spec_of("true", "old"), None]
        drawn = {i: (chance.choice(kinds), chance.random() < 0.5, chance.random() < 0.5) for i in range(6)}
        pods = {i: CurrentPod(spec, stopped) for i, (spec, stopped, _) in drawn.items() if spec is not None}
        named = {i for i, (_, _, is_named) in drawn.items() if is_named}
        job = JobSpec(default_spec=generated)
        for i, spec in instance_specs(pods, generated, 6, named, "new").items():
            job.instance_spec[i].CopyFrom(spec)
        config = convert_v1_spec.job_config(job)

        for i, pod in pods.items():
            is_kept = same_task(convert_v1_spec.task_config(pod.spec), effective_task_config(config, i))
            is_changed = any("true" in c.entrypoint.value for c in pod.spec.containers)
            assert is_kept is not (i in named and (is_changed or pod.is_terminal)), (seed, i)


RANGES = {
    "none": (None, None),
    "empty": ([], None),
    "one": ([(1, 2)], {1, 2}),
    "overlapping": ([(3, 4), (0, 3), (1, 1)], {0, 1, 2, 3, 4}),
    "beyond the job": ([(4, 2**31 - 1)] * 1_000, {4}),
    "backwards": ([(3, 1)], set()),
    "negative": ([(-5, 0)], {0}),
}


@pytest.mark.parametrize(("ranges", "expected"), RANGES.values(), ids=RANGES)
def test_named_instances(ranges: list[tuple[int, int]] | None, expected: set[int] | None) -> None:
    """Ranges are closed, may overlap and may reach beyond the job."""
    wire = None if ranges is None else [api.Range(first=first, last=last) for first, last in ranges]

    assert read_ranges(wire, 5) == expected
