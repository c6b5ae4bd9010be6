"""Malformed bodies are rejected, and the server continues."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "1Gi",
    [],
    [None],
    [[]],
    ["x"],
    {},
    {"x": 1},
    {"": None},
)
FAULTS_MAX = 400
GROUPS = {"poddisruptionbudgets": "policy/v1", "priorityclasses": "scheduling.k8s.io/v1", "deployments": "apps/v1"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


def path_of(resource: str) -> str:
    namespace = "" if resource == "priorityclasses" else "namespaces/default/"
    return f"/apis/{GROUPS[resource]}/{namespace}{resource}"


def spoilt(body: Any, chance: random.Random) -> Any:
    """Return the body with one value somewhere in it replaced."""
    if isinstance(body, dict) and body and chance.random() < 0.8:
        key = chance.choice(list(body))
        return {**body, key: spoilt(body[key], chance)}
    if isinstance(body, list) and body and chance.random() < 0.8:
        return [spoilt(body[0], chance), *body[1:]]
    return chance.choice(STRANGE)


SOUND: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "POST",
        PODS,
        pod("a", tolerations=[{"key": "x"}], volumes=[{"name": "v", "secret": {}}], nodeSelector={"a": "b"}),
    ),
    ("PUT", f"{PODS}/kept", pod("kept")),
    ("PUT", f"{PODS}/kept/status", {"metadata": {}, "status": {"phase": "Running", "conditions": [{"type": "x"}]}}),
    ("POST", f"{PODS}/kept/binding", {"metadata": {"name": "kept"}, "target": {"name": "n"}}),
    ("POST", f"{PODS}/gone/eviction", {"deleteOptions": {"preconditions": {"uid": "x"}}}),
    ("DELETE", f"{PODS}/kept", {"preconditions": {"uid": "x"}, "gracePeriodSeconds": 1}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "b"}]}}),
    (
        "POST",
        path_of("poddisruptionbudgets"),
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a"}]}}},
    ),
    ("POST", "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "9"}}}),
    ("POST", path_of("priorityclasses"), {"metadata": {"name": "p"}, "value": 1}),
    (
        "POST",
        path_of("deployments"),
        {"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {}, "template": TEMPLATE}},
    ),
    ("PATCH", f"{PODS}/kept", {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}),
)


@pytest.mark.parametrize("seed", range(2))
def test_strange_bodies_are_answered(cluster: Cluster, seed: int) -> None:
    """Every malformed body is answered with 2xx or 4xx, and sound objects can be created and listed afterwards."""
    chance = random.Random(seed)
    cluster.create(PODS, pod("kept"))
    for _ in range(FAULTS_MAX):
        method, path, body = chance.choice(SOUND)
        kind = {"Content-Type": "application/strategic-merge-patch+json"} if method == "PATCH" else {}
        answer = cluster.ask(method, path, spoilt(body, chance), kind)
        assert 200 <= answer.status < 500, (method, path, answer)
    assert cluster.create(PODS, pod("sound")).status == 201
    for listed in (PODS, "/api/v1/nodes", *map(path_of, GROUPS)):
        assert cluster.get(listed).status == 200
