"""The node provider of Ray keeps nodes as instances, one job for each type; a double stands for Ray's base class."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tests.unit.integrations.fake_jobs import POOL, FakeClient

KIND, TYPE, STATUS, REQUEST = "ray-node-kind", "ray-user-node-type", "ray-node-status", "ray-launch-request"
WORKER = {KIND: "worker", TYPE: "small", REQUEST: "1"}


class NodeProvider:
    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        self.provider_config, self.cluster_name = provider_config, cluster_name


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    tags = {
        "NODE_KIND_HEAD": "head",
        "NODE_KIND_WORKER": "worker",
        "STATUS_UP_TO_DATE": "up-to-date",
        "TAG_RAY_NODE_KIND": KIND,
        "TAG_RAY_NODE_STATUS": STATUS,
        "TAG_RAY_USER_NODE_TYPE": TYPE,
    }
    doubles: dict[str, dict[str, Any]] = {
        "ray": {},
        "ray.autoscaler": {},
        "ray.autoscaler.node_provider": {"NodeProvider": NodeProvider},
        "ray.autoscaler.tags": tags,
        "ray.util": {"get_node_ip_address": lambda: "192.0.2.1"},
    }
    for name, values in doubles.items():
        double = ModuleType(name)
        vars(double).update(values)
        monkeypatch.setitem(sys.modules, name, double)
    monkeypatch.delitem(sys.modules, "peloton.integrations.ray", raising=False)
    return import_module("peloton.integrations.ray")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(module, "Client", lambda address: fake)
    return fake


def provider_of(module: ModuleType) -> Any:
    return module.PelotonNodeProvider({"pool": POOL, "head_node_type": "head"}, "mine")


def test_nodes_come_and_go_by_batches(module: ModuleType, fake: FakeClient) -> None:
    """Twenty nodes are one call, and so is the end of five of them."""
    nodes = provider_of(module)
    created = nodes.create_node_with_resources_and_labels({"cpu": 2}, WORKER, 20, {"CPU": 2, "fast": 1}, {})
    assert ["Create"] == fake.calls
    assert {"head", *created} == set(nodes.non_terminated_nodes({}))
    assert "1" == nodes.node_tags(next(iter(created)))[REQUEST]

    nodes.terminate_nodes(list(created)[:5])
    assert 1 == fake.calls.count("Stop")
    assert {"head", *list(created)[5:]} == set(nodes.non_terminated_nodes({}))
    assert nodes.is_terminated(next(iter(created)))


def test_a_node_starts_with_its_name_and_resources(module: ModuleType, fake: FakeClient) -> None:
    """The autoscaler knows the node by the id of its pod, which the shell of the pod fills in."""
    provider_of(module).create_node_with_resources_and_labels({"cpu": 2}, WORKER, 1, {"CPU": 2, "fast": 1}, {})
    [config] = fake.jobs_seen.values()
    command = config.defaultConfig.command.value
    assert command.startswith("RAY_CLOUD_INSTANCE_ID=$PELOTON_TASK_ID RAY_NODE_TYPE_NAME=small exec ")
    assert "start --block --address=192.0.2.1:6379 --num-cpus=2" in command
    assert """--resources='{"fast": 1}'""" in command


def test_names_of_nodes_are_not_used_again(module: ModuleType, fake: FakeClient) -> None:
    """A node that ended is gone, and the next one has a number of its own."""
    nodes = provider_of(module)
    nodes.create_node({"cpu": 1}, WORKER, 2)
    job_id = next(iter(fake.jobs_seen))
    fake.move(job_id, "FAILED", 0)
    assert [f"{job_id}-2"] == list(nodes.create_node({"cpu": 1}, WORKER, 1))
    assert {"head", f"{job_id}-1", f"{job_id}-2"} == set(nodes.non_terminated_nodes({}))


def test_a_provider_that_starts_again_finds_its_nodes(module: ModuleType, fake: FakeClient) -> None:
    """The jobs have the names of the cluster and of the type as labels."""
    created = provider_of(module).create_node({"cpu": 1}, WORKER, 2)
    nodes = provider_of(module)
    assert {"head", *created} == set(nodes.non_terminated_nodes({}))
    assert set(created) == set(nodes.non_terminated_nodes({TYPE: "small"}))


def test_unknown_fields_of_a_node_are_refused(module: ModuleType, fake: FakeClient) -> None:
    """The error names the type and the field."""
    with pytest.raises(Exception, match=r"node_config of small: .*'cores'"):
        provider_of(module).create_node({"cores": 1}, WORKER, 2)
