"""Resources that a node allocates to a pod."""

from __future__ import annotations

from typing import Any

import pytest

from services.lab.kubernetes.nodes.admission import host_ports
from services.lab.kubernetes.nodes.amounts import requests_of
from services.lab.kubernetes.resources import Json


def part(cpu: int, **more: Any) -> Json:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def sidecar(cpu: int, **more: Any) -> Json:
    return part(cpu, restartPolicy="Always", **more)


CASES: dict[str, tuple[Json, int]] = {
    "containers together": ({"containers": [part(1), part(2)]}, 3),
    "the greediest init container": ({"containers": [part(1)], "initContainers": [part(3), part(2)]}, 3),
    "sidecars and containers": ({"containers": [part(1)], "initContainers": [sidecar(1), sidecar(2)]}, 4),
    "the sidecars before": ({"containers": [part(1)], "initContainers": [sidecar(1), sidecar(1), part(3)]}, 5),
    "not those after": ({"containers": [part(1)], "initContainers": [part(4), sidecar(1), sidecar(1)]}, 4),
    "the pod as a whole": (part(4, containers=[part(1)], initContainers=[sidecar(1)]), 4),
    "a limit of it": ({"containers": [{}], "resources": {"limits": {"cpu": 2}}}, 2),
    "requests before such a limit": ({"containers": [part(1)], "resources": {"limits": {"cpu": 2}}}, 1),
    "overhead": (part(4, containers=[part(1)], overhead={"cpu": 1}), 5),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_needs_what_it_asks_for_at_its_greediest(case: str) -> None:
    """Init containers run one after the other; sidecars run alongside all later containers."""
    spec, cpus = CASES[case]
    assert {"cpu": 1_000 * cpus, "pods": 1} == requests_of(spec)


def test_sidecars_take_ports_of_the_node() -> None:
    """A sidecar keeps its node ports; an init container that ends does not."""
    ports = [[{"containerPort": 1, "hostPort": port}] for port in (81, 82, 83)]
    spec = {
        "initContainers": [part(1, ports=ports[0]), sidecar(1, ports=ports[1])],
        "containers": [part(1, ports=ports[2])],
    }
    assert {82, 83} == host_ports(spec)
