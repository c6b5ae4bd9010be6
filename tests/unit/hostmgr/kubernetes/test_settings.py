"""Settings of a Kubernetes cluster."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.settings import IN_CLUSTER, KubernetesSettings, read_node_selector, read_ports


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"cluster": "east-"}, "CLUSTER"),
        ({"namespace": "Peloton"}, "KUBERNETES_NAMESPACE"),
        ({"namespace": ""}, "KUBERNETES_NAMESPACE"),
        ({"taint": "a b"}, "KUBERNETES_TAINT"),
        ({"volumes": "volumes"}, "KUBERNETES_VOLUMES"),
        ({"volumes": "/"}, "KUBERNETES_VOLUMES"),
        ({"volumes": "/var/../etc"}, "KUBERNETES_VOLUMES"),
    ],
)
def test_a_wrong_value_is_refused_by_its_setting(wrong: dict[str, Any], setting: str) -> None:
    """Invalid settings are rejected before any request to the cluster."""
    with pytest.raises(InvalidArgument, match=f"PELOTON_{setting}"):
        KubernetesSettings(IN_CLUSTER, **wrong)


def test_a_node_selector_is_read() -> None:
    """Pairs of labels; spaces between them do not count."""
    assert (("pool", "batch"), ("example.com/zone", "")) == read_node_selector("pool=batch, example.com/zone=")
    assert () == read_node_selector("")
    with pytest.raises(InvalidArgument, match="'batch' is not KEY=VALUE"):
        read_node_selector("pool=batch,batch")


@pytest.mark.parametrize("text", ["1", "5-4", "0-4", "1-65536", "a-b", "-3"])
def test_a_range_of_ports_is_checked(text: str) -> None:
    """The two ends are ports, in their order."""
    with pytest.raises(InvalidArgument, match="PELOTON_KUBERNETES_PORTS"):
        read_ports(text)


def test_a_range_of_ports_is_read() -> None:
    """The range includes its two ends, and may be empty."""
    assert ((25_000, 25_001),) == read_ports("25000-25001")
    assert () == read_ports("")
