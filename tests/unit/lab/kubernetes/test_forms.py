"""Malformed bodies are rejected, and the server continues."""

from __future__ import annotations

import random
from typing import Any

import pytest

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.forms import check_object
from services.lab.kubernetes.resources import PODS as POD_RESOURCE
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

STRANGE = (None, True, 0, -1, 2**70, 1.5, "", "x", "1Gi", [], [None], [[]], ["x"], {}, {"x": 1}, {"": None})
FAULTS_MAX = 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata.labels", {"a": 1}),
        ("metadata.finalizers", "x"),
        ("spec", []),
        ("spec.containers", {}),
        ("spec.tolerations", [1]),
        ("status.conditions", [{"type": "Ready"}]),
    ],
)
def test_a_body_of_another_form_names_its_field(field: str, value: Any) -> None:
    """A malformed body is rejected with 400 before any other check."""
    body: Any = value
    for step in reversed(field.split(".")):
        body = {step: body}

    with pytest.raises(ApiError, match=field.partition(".")[0]) as refused:
        check_object(POD_RESOURCE, body)
    assert refused.value.code == 400


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
    ("POST", f"{PODS}/kept/eviction?dryRun=All", {"deleteOptions": {"preconditions": {"uid": "x"}}}),
    ("DELETE", f"{PODS}/kept?dryRun=All", {"preconditions": {"uid": "x"}, "gracePeriodSeconds": 1}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "b"}]}}),
    (
        "POST",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a"}]}}},
    ),
    (
        "POST",
        "/api/v1/namespaces/default/resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "100"}, "scopeSelector": {"matchExpressions": [{}]}}},
    ),
    ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "p"}, "value": 1}),
    ("PATCH", f"{PODS}/kept", {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}),
)


@pytest.mark.parametrize("seed", range(2))
def test_strange_bodies_are_answered(cluster: Cluster, seed: int) -> None:
    """Every malformed body is answered with 2xx or 4xx, and stored objects can be listed and shown in tables."""
    chance = random.Random(seed)
    cluster.create(PODS, pod("kept"))
    for _ in range(FAULTS_MAX):
        method, path, body = chance.choice(SOUND)
        kind = {"Content-Type": "application/strategic-merge-patch+json"} if method == "PATCH" else {}
        answer = cluster.ask(method, path, spoilt(body, chance), kind)
        assert 200 <= answer.status < 500, (method, path, answer)
    for listed in (PODS, "/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets", "/api/v1/resourcequotas"):
        assert cluster.get(listed).status == 200
        assert cluster.get(listed, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").status == 200
