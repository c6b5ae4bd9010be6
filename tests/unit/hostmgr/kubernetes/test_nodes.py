"""Nodes as the ledger sees them."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.resources import Resources
from services.hostmgr.kubernetes.nodes.nodes import CORDONED, DRAINING, MAINTENANCE, PORTS, Node, node_of
from services.hostmgr.kubernetes.settings import IN_CLUSTER, KubernetesSettings

Json = dict[str, Any]
SETTINGS = KubernetesSettings(IN_CLUSTER)
ALLOCATABLE = {
    "cpu": "1950m",
    "memory": "24629300Ki",
    "ephemeral-storage": "10Gi",
    "pods": "110",
    "nvidia.com/gpu": "2",
    "example.com/fpga": "3",
    "hugepages-2Mi": "0",
    "scheduling.kubernetes.io/foo": "5",
}


def node(spec: Json | None = None, ready: str = "True", **meta: Any) -> Json:
    status = {
        "allocatable": ALLOCATABLE,
        "capacity": {"cpu": "64"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
    }
    return {"metadata": {"name": "n1", "uid": "u1", **meta}, "spec": spec or {}, "status": status}


def read(found: Json, settings: KubernetesSettings = SETTINGS) -> Node:
    read_node = node_of(found, settings)
    assert read_node is not None
    return read_node


def test_a_node_has_what_it_calls_allocatable() -> None:
    """The amounts are rounded down; the host has the labels of the node, and its name."""
    found = read(node(labels={"topology.kubernetes.io/zone": "a"}))

    capacity = Resources(1_950, 24_052, 10_240, 2_000, (("example.com/fpga", 3),))
    assert (capacity, 110) == (found.capacity, found.pods_max)
    assert {"topology.kubernetes.io/zone": "a", "hostname": "n1"} == found.labels
    assert ("n1", "u1", "10.0.0.1", True, "") == (found.name, found.uid, found.ip, found.is_ready, found.withdrawn)


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_is_ready_or_not(ready: str) -> None:
    """A node without the condition is not ready."""
    assert not read(node(ready=ready)).is_ready
    silent = node()
    del silent["status"]["conditions"]
    assert not read(silent).is_ready


@pytest.mark.parametrize(
    ("taint", "why"),
    [
        ({"key": "a/b", "value": "c", "effect": "NoSchedule"}, "it has the taint a/b=c:NoSchedule"),
        ({"key": "a/b", "effect": "NoExecute"}, "it has the taint a/b:NoExecute"),
        ({"key": "a/b", "effect": "PreferNoSchedule"}, ""),
        ({"key": "peloton.io/dedicated", "effect": "NoSchedule"}, ""),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, ""),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, ""),
    ],
)
def test_taints_keep_pods_away(taint: Json, why: str) -> None:
    """A taint withdraws the node, except Peloton's own and one that repeats another field of the node."""
    assert why == read(node({"taints": [taint]})).withdrawn


def test_a_cordon_is_ours_or_that_of_others() -> None:
    """Annotations of the node say which client cordoned it."""
    ours = node({"unschedulable": True}, annotations={MAINTENANCE: DRAINING, CORDONED: "true"})

    assert "an operator of the cluster has cordoned it" == read(node({"unschedulable": True})).withdrawn
    assert ("", DRAINING, True) == (read(ours).withdrawn, read(ours).maintenance, read(ours).is_cordoned)


def test_a_node_without_the_selected_labels_is_left_out() -> None:
    """A node must have all selected labels."""
    settings = KubernetesSettings(IN_CLUSTER, node_selector=(("pool", "batch"), ("zone", "a")))

    assert node_of(node(labels={"pool": "batch"}), settings) is None
    assert "n1" == read(node(labels={"pool": "batch", "zone": "a"}), settings).name


def test_a_node_may_name_its_own_ports() -> None:
    """A node without the annotation has the ports of the settings."""
    assert SETTINGS.ports == read(node()).ports
    assert ((25, 30), (40, 41)) == read(node(annotations={PORTS: "40-41, 25-30"})).ports
    with pytest.raises(ValueError, match=r"annotation peloton.io/ports='many'"):
        node_of(node(annotations={PORTS: "many"}), SETTINGS)


def test_what_is_no_amount_is_refused() -> None:
    """The error has the text of the amount."""
    wrong = node()
    wrong["status"]["allocatable"] = {"cpu": "many"}

    with pytest.raises(ValueError, match="'many' is no amount"):
        node_of(wrong, SETTINGS)
