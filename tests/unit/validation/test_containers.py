"""Rules for pods of several containers."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.config_bounds import CONTAINERS_MAX
from peloton.api.v0.job import job_pb2
from services.api.pool_rules import PoolBounds
from services.api.validation import job_faults

BOUNDS = PoolBounds((4_000, 1_000, 1_000, 0), ("/eng",) * 4, kinds=frozenset({"kubernetes", "mesos"}))
RUNS = {"command": {"value": "run"}}
CHECK = {"enabled": True, "type": "HTTP"}


def job(default: dict[str, Any], overrides: dict[int, Any] | None = None, kind: str = "SERVICE") -> job_pb2.JobConfig:
    sla = {"preemptible": True} if kind == "SERVICE" else {}
    fields = {"name": "web", "type": kind, "instanceCount": 2, "sla": sla, "defaultConfig": {**RUNS, **default}}
    return ParseDict({**fields, "instanceConfig": overrides or {}}, job_pb2.JobConfig())


def other(name: str = "proxy", **fields: Any) -> dict[str, Any]:
    return {"name": name, **RUNS, **fields}


FAULTS: dict[str, dict[str, Any]] = {
    "": {"otherContainers": [other(), other("log")], "initContainers": [other("setup")]},
    "container name 'main' is used 2 times": {"otherContainers": [other("main")]},
    "container name 'a' is used 2 times": {"containerName": "a", "initContainers": [other("a")]},
    "container name '': want 1 to 63 of a-z, 0-9 and -, no - at the ends": {"otherContainers": [other("")]},
    "container name 'Web_1': want 1 to 63": {"otherContainers": [other("Web_1")]},
    "container proxy: it has neither a command nor an image": {"otherContainers": [{"name": "proxy"}]},
    "container proxy: cpuLimit -1 is negative": {"otherContainers": [other(resource={"cpuLimit": -1})]},
    "container proxy: Port name is missing": {"otherContainers": [other(ports=[{"envName": "A"}])]},
    "container proxy: command contains NUL": {"otherContainers": [{"name": "proxy", "command": {"value": "a\0"}}]},
    "container proxy: health check of type HTTP has port 0": {"otherContainers": [other(healthCheck=CHECK)]},
    "readiness check of type HTTP has port 0, want 1 to 65535": {"readinessCheck": CHECK},
    "container proxy: readiness check of type HTTP has portName 'a'; known ports of its container: b": {
        "ports": [{"name": "a", "value": 1}],
        "otherContainers": [
            other(ports=[{"name": "b", "envName": "B"}], readinessCheck={**CHECK, "httpCheck": {"portName": "a"}})
        ],
    },
    "port name 'a' is used twice": {
        "ports": [{"name": "a", "value": 1}],
        "otherContainers": [other(ports=[{"name": "a", "value": 2}])],
    },
    "static port 1 is asked by both 'a' and 'b'": {
        "ports": [{"name": "a", "value": 1}],
        "otherContainers": [other(ports=[{"name": "b", "value": 1}])],
    },
    "init container setup has ports or checks": {"initContainers": [other("setup", ports=[{"name": "a", "value": 1}])]},
    f"the pod has {CONTAINERS_MAX + 1} containers, at most {CONTAINERS_MAX} are allowed": {
        "otherContainers": [other(f"c{number}") for number in range(CONTAINERS_MAX)]
    },
    "several containers run on Kubernetes only, and URIs to fetch on Mesos only": {
        "otherContainers": [other()],
        "command": {"value": "a", "uris": [{"value": "http://a/b"}]},
    },
    "instance 0 asks cpu 5, limit of resource pool /eng is 4": {
        "resource": {"cpuLimit": 2},
        "otherContainers": [other(resource={"cpuLimit": 3})],
    },
}


@pytest.mark.parametrize("text", FAULTS)
def test_each_container_is_validated(text: str) -> None:
    """Names, commands, ports, checks and amounts of each container are validated; a valid pod has no fault."""
    message = job_faults(job(FAULTS[text]), BOUNDS).message()

    assert (bool(text), True) == (bool(message), text in message)


def test_overrides_are_validated_too() -> None:
    """Overrides are validated as well, including their sum with the default."""
    faults = job_faults(
        job({"resource": {"cpuLimit": 2}}, {1: {"otherContainers": [other(resource={"cpuLimit": 3})]}}), BOUNDS
    )

    assert "instance 1 asks cpu 5, limit of resource pool /eng is 4" == faults.message()


def test_a_gang_takes_what_all_containers_take() -> None:
    """A gang's demand is the sum over its members and their containers."""
    gang = job({"resource": {"cpuLimit": 1}, "otherContainers": [other(resource={"cpuLimit": 2})]}, kind="BATCH")
    gang.sla.minimumRunningInstances = 2

    assert (
        "the gang of instances 0-1 asks cpu 6, limit of resource pool /eng is 4" in job_faults(gang, BOUNDS).message()
    )


@pytest.mark.parametrize("where", ["default", "override"])
def test_without_kubernetes_there_is_one_container(where: str) -> None:
    """A pod of several containers is refused if no cluster is Kubernetes."""
    pod = {"initContainers": [other("setup")]}
    asked = job(pod) if where == "default" else job({}, {1: pod})
    bounds = PoolBounds(BOUNDS.limits, BOUNDS.paths, kinds=frozenset({"mesos"}))

    number = 0 if where == "default" else 1
    expected = f"Invalid config for instance {number}, init containers are not supported: it needs a cluster of kind"
    assert job_faults(asked, bounds).message().startswith(expected)
