"""Application of patches to specs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from services.api.v1.patch import apply_patch
from tests.unit.api.v1_specs import pod_specs

Spec = stateless_pb2.JobSpec


def a_spec(**container: Any) -> stateless_pb2.JobSpec:
    pod = pod_pb2.PodSpec(containers=[pod_pb2.ContainerSpec(**container)])
    return Spec(name="web", instance_count=3, default_spec=pod, sla=stateless_pb2.SlaSpec(priority=1))


@given(pod_specs(), st.integers(0, 3))
def test_a_patch_that_says_nothing_new(pod: pod_pb2.PodSpec, count: int) -> None:
    """The empty patch and the spec itself change nothing."""
    spec = Spec(name="web", instance_count=count, default_spec=pod, instance_spec={1: pod})

    assert apply_patch(spec, Spec()) == spec
    assert apply_patch(spec, spec) == spec


@given(pod_specs(), pod_specs())
def test_what_is_patched_is_there(before: pod_pb2.PodSpec, patch: pod_pb2.PodSpec) -> None:
    """Every field of the patch has its value afterwards, and the current spec is unchanged."""
    current = Spec(default_spec=before)
    kept = Spec(default_spec=before)
    after = apply_patch(current, Spec(default_spec=patch)).default_spec.containers[0]

    wanted = patch.containers[0]
    assert after.image == (wanted.image or before.containers[0].image)
    assert list(after.environment) == list(wanted.environment or before.containers[0].environment)
    if wanted.entrypoint.value:
        assert after.entrypoint.value == wanted.entrypoint.value
    assert current == kept


def test_messages_are_merged_and_lists_replaced() -> None:
    """The SLA and the only container are merged by field, labels replaced as a whole, and only the named instances
    changed."""
    current = a_spec(image="web:1", resource=pod_pb2.ResourceSpec(cpu_limit=1, mem_limit_mb=2))
    current.labels.add(key="a", value="1")
    current.instance_spec[0].kill_grace_period_seconds = 5
    patch = Spec(sla=stateless_pb2.SlaSpec(maximum_unavailable_instances=2))
    patch.labels.add(key="b", value="2")
    patch.default_spec.containers.add(resource=pod_pb2.ResourceSpec(cpu_limit=4))
    patch.instance_spec[1].kill_grace_period_seconds = 7
    spec = apply_patch(current, patch)

    assert spec.sla == stateless_pb2.SlaSpec(priority=1, maximum_unavailable_instances=2)
    assert [(label.key, label.value) for label in spec.labels] == [("b", "2")]
    container = spec.default_spec.containers[0]
    assert (container.image, container.resource.cpu_limit, container.resource.mem_limit_mb) == ("web:1", 4, 2)
    assert {i: pod.kill_grace_period_seconds for i, pod in spec.instance_spec.items()} == {0: 5, 1: 7}


def test_mesos_messages_are_taken_whole() -> None:
    """Mesos messages are replaced as a whole, since their fields exclude each other."""
    current = a_spec(command=mesos_pb2.CommandInfo(value="old", arguments=["x"]))
    patch = a_spec(command=mesos_pb2.CommandInfo(value="new"))

    assert apply_patch(current, patch).default_spec.containers[0].command == mesos_pb2.CommandInfo(value="new")


@pytest.mark.parametrize("count", [0, 2])
def test_containers_that_are_not_one_to_one_are_replaced(count: int) -> None:
    """The patch's containers replace the spec's unless both have exactly one."""
    current = Spec()
    current.default_spec.containers.extend(pod_pb2.ContainerSpec(name=str(i)) for i in range(count))
    patch = a_spec(image="web:2")

    assert list(apply_patch(current, patch).default_spec.containers) == list(patch.default_spec.containers)
