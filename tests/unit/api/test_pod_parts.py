"""Resources of a pod with several containers, and the clusters that can run it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api import convert, pod_parts
from peloton.api.cluster_kinds import (
    KEEPS_VOLUMES,
    MOUNTS_SECRETS,
    NOT_KUBERNETES,
    ON_KUBERNETES,
    kind_fault,
    kind_refusal,
)
from peloton.api.compare import same_task
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.pod import AllOf, HostLabel
from peloton.model.resources import Resources

URIS = {"value": "run", "uris": [{"value": "http://a/b"}]}


def task(**fields: Any) -> task_pb2.TaskConfig:
    return ParseDict(fields, task_pb2.TaskConfig())


def other(cpu: float = 0, name: str = "proxy", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resource": {"cpuLimit": cpu}, **fields}


@pytest.mark.parametrize(
    ("fields", "cpu_milli"),
    [
        ({}, 1_000),
        ({"otherContainers": [other(2), other(0.5)]}, 3_500),
        ({"initContainers": [other(2), other(3)]}, 3_000),
        ({"otherContainers": [other(2)], "initContainers": [other(2)]}, 3_000),
    ],
)
def test_a_pod_takes_what_its_containers_take(fields: dict[str, Any], cpu_milli: int) -> None:
    """A pod's resources are the greater of its concurrent containers' sum and its init containers' maximum."""
    pod = task(resource={"cpuLimit": 1}, **fields)

    assert Resources(cpu_milli) == pod_parts.pod_resources(pod)
    assert Resources(cpu_milli) == convert.pod_shape(pod, job_pb2.SlaConfig()).resources


def test_an_override_takes_what_it_leaves_out_from_the_default() -> None:
    """A field that an override omits is the default's; each of the three is replaced as a whole."""
    default = task(resource={"cpuLimit": 1}, otherContainers=[other(2)], initContainers=[other(8)])

    assert [8_000, 9_000, 21_000] == [
        pod_parts.pod_resources(override, default).cpu_milli
        for override in (
            task(resource={"cpuLimit": 5}),
            task(resource={"cpuLimit": 7}),
            task(otherContainers=[other(20)]),
        )
    ]


def test_usage_is_of_all_containers() -> None:
    """Usage is the sum of the concurrent containers."""
    pod = task(resource={"cpuLimit": 1, "memLimitMb": 5}, otherContainers=[other(2)], initContainers=[other(8)])

    assert (3, 5) == (pod_parts.limits(pod).cpuLimit, pod_parts.limits(pod).memLimitMb)


def test_ports_of_all_containers_are_assigned() -> None:
    """The dynamic ports of all containers are allocated, and static ones are not."""
    pod = task(ports=[{"name": "a"}], otherContainers=[other(ports=[{"name": "b"}, {"name": "c", "value": 80}])])

    assert 2 == convert.pod_shape(pod, job_pb2.SlaConfig()).port_count


@pytest.mark.parametrize(
    ("fields", "is_checked"),
    [
        ({}, False),
        ({"healthCheck": {"enabled": True}}, True),
        ({"readinessCheck": {"enabled": True}}, False),  # Mesos has no readiness check, and the pod may run there
        ({"otherContainers": [other(readinessCheck={"enabled": True})]}, True),
        ({"otherContainers": [other()], "readinessCheck": {"enabled": True}}, True),
    ],
)
def test_whose_health_is_known(fields: dict[str, Any], is_checked: bool) -> None:
    """The health of a pod is known if it has a check, and a rollout waits for it."""
    assert is_checked == pod_parts.is_checked(task(**fields))


VOLUME = {"containerPath": "data", "sizeMB": 5}
KINDS: list[tuple[dict[str, Any], HostLabel | None]] = [
    ({}, None),
    ({"otherContainers": [other()]}, ON_KUBERNETES),
    ({"initContainers": [other()]}, ON_KUBERNETES),
    ({"command": URIS}, NOT_KUBERNETES),
    ({"volume": VOLUME}, KEEPS_VOLUMES),
    ({"secrets": [{"id": {"value": "1"}, "path": "/run/key"}]}, MOUNTS_SECRETS),
    ({"container": {"type": "DOCKER", "docker": {"image": "a", "network": "USER"}}}, NOT_KUBERNETES),
]


@pytest.mark.parametrize(("fields", "expected"), KINDS)
def test_a_pod_is_placed_where_it_can_run(fields: dict[str, Any], expected: HostLabel | None) -> None:
    """A constraint restricts the pod to clusters that can run it, in conjunction with the pod's own."""
    rack: dict[str, Any] = {
        "type": "LABEL_CONSTRAINT",
        "labelConstraint": {"kind": "HOST", "condition": 2, "requirement": 1},
    }
    rack["labelConstraint"] |= {"label": {"key": "rack", "value": "a"}}
    own = HostLabel("rack", "a")

    assert expected == convert.pod_shape(task(**fields), job_pb2.SlaConfig()).constraint
    both = convert.pod_shape(task(**fields, constraint=rack), job_pb2.SlaConfig()).constraint
    assert both == (own if expected is None else AllOf((expected, own)))


@pytest.mark.parametrize(
    ("fields", "kinds", "text"),
    [
        ({"initContainers": [other()]}, {"mesos"}, "init containers are not supported: it needs a cluster of kind"),
        ({"initContainers": [other()]}, {"mesos", "kubernetes"}, ""),
        ({"initContainers": [other()]}, set(), ""),
        ({"command": URIS}, {"kubernetes"}, "URIs to fetch: no cluster of kind kubernetes has that"),
        ({"command": URIS}, {"kubernetes", "mesos"}, ""),
        ({"volume": VOLUME}, {"kubernetes"}, ""),
    ],
)
def test_what_no_cluster_can_run_is_refused(fields: dict[str, Any], kinds: set[str], text: str) -> None:
    """The error names the feature; while the kinds of clusters are unknown no pod is refused."""
    refusal = kind_refusal(task(**fields), kinds)

    assert (bool(text), True) == (bool(refusal), text in refusal)


def test_what_no_kind_can_run_is_refused_everywhere() -> None:
    """A pod that requires features of both Kubernetes and Mesos is refused."""
    pod = task(command=URIS, otherContainers=[other()])

    assert "several containers run on Kubernetes only, and URIs to fetch on Mesos only" == kind_fault(pod)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ({}, {"containerName": "web"}, True),  # 0.1 did not store it
        ({"containerName": "app"}, {"containerName": "web"}, False),
        ({"otherContainers": [other()]}, {}, False),
        (
            {"otherContainers": [other(ports=[{"name": "b"}, {"name": "a"}])]},
            {"otherContainers": [other(ports=[{"name": "a"}, {"name": "b"}])]},
            True,
        ),
    ],
)
def test_what_an_update_has_to_touch(before: dict[str, Any], after: dict[str, Any], is_same: bool) -> None:
    """A difference in the containers counts; the order of ports does not."""
    assert is_same == same_task(task(**before), task(**after))
