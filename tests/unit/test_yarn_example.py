"""The decision of the YARN example: how many node managers there should be."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[2] / "examples" / "yarn" / "demand.py"
NODE_MIB = 1024


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("yarn_example_demand", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


demand = load()


def scale(least: int = 1, most: int = 5) -> Any:
    return demand.Scale(least, most, NODE_MIB)


def metrics(allocated: int = 0, pending: int = 0, waiting_apps: int = 0, nodes: int = 9) -> dict[str, int]:
    return {"allocatedMB": allocated, "pendingMB": pending, "appsPending": waiting_apps, "activeNodes": nodes}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (metrics(), 1),
        (metrics(allocated=1024, pending=1), 2),
        (metrics(allocated=2048, pending=2048), 4),
        (metrics(pending=100_000), 5),
    ],
)
def test_pending_containers_get_nodes_at_once(given: dict[str, int], wanted: int) -> None:
    """The number is that of nodes whose memory is allocated or requested, within the bounds."""
    assert wanted == scale().wanted(given, 1, 0.0)


def test_an_application_that_waits_gets_a_node() -> None:
    """An application master counts for no memory before there is a node."""
    assert 1 == scale(least=0).wanted(metrics(waiting_apps=1), 0, 0.0)


def test_idle_nodes_go_one_at_a_time() -> None:
    """Fewer nodes must have been enough for a while; demand in between starts it again."""
    one = scale()

    assert 3 == one.wanted(metrics(), 3, 0.0)
    assert 3 == one.wanted(metrics(), 3, demand.IDLE_S - 1)
    assert 2 == one.wanted(metrics(), 3, demand.IDLE_S)
    assert 2 == one.wanted(metrics(), 2, demand.IDLE_S + 1)
    assert 2 == one.wanted(metrics(allocated=2048), 2, demand.IDLE_S + 2)
    assert 2 == one.wanted(metrics(), 2, 2 * demand.IDLE_S + 1)


def test_no_node_goes_before_all_have_registered() -> None:
    """A resource manager that has restarted counts no containers until the nodes report them."""
    one = scale()

    assert [3, 3, 3] == [one.wanted(metrics(nodes=2), 3, now_s) for now_s in (0.0, demand.IDLE_S, 2 * demand.IDLE_S)]
    assert 3 == one.wanted(metrics(nodes=3), 3, 3 * demand.IDLE_S)
