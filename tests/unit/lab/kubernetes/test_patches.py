"""Patches of three kinds."""

from __future__ import annotations

from typing import Any

import pytest

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.patches import apply_json_patch, merge_patch, strategically_merged

NODE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1", "b": "2"}},
    "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]},
}


def test_a_merge_patch_replaces_lists_and_takes_nulls_away() -> None:
    """The patch follows RFC 7386."""
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"unschedulable": None, "taints": []}}

    assert merge_patch(NODE, patch) == {
        **NODE,
        "metadata": {"labels": {"b": "2", "c": "3"}},
        "spec": {"taints": []},
    }
    assert NODE["spec"]["unschedulable"] is True


def test_a_strategic_patch_merges_lists_by_their_keys() -> None:
    """Conditions are merged by type; taints are replaced; other directives are rejected."""
    patch = {
        "spec": {"taints": [{"key": "y"}]},
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "New"}],
            "conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "Disk", "$patch": "delete"},
                {"type": "New", "status": "True"},
            ],
        },
    }

    patched = strategically_merged(NODE, patch)

    assert patched["spec"] == {"taints": [{"key": "y"}], "unschedulable": True}
    assert patched["status"]["conditions"] == [
        {"type": "Ready", "status": "False"},
        {"type": "New", "status": "True"},
    ]
    with pytest.raises(ApiError, match=r"no patches with \$deleteFromPrimitiveList/finalizers"):
        strategically_merged(NODE, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"op": "add", "path": "/l/-", "value": 3}, {"l": [1, 2, 3], "m": {"a/b": 1}}),
        ({"op": "add", "path": "/l/0", "value": 0}, {"l": [0, 1, 2], "m": {"a/b": 1}}),
        ({"op": "replace", "path": "/l/1", "value": 9}, {"l": [1, 9], "m": {"a/b": 1}}),
        ({"op": "remove", "path": "/m/a~1b"}, {"l": [1, 2], "m": {}}),
        ({"op": "test", "path": "/l/0", "value": 1}, {"l": [1, 2], "m": {"a/b": 1}}),
    ],
)
def test_a_json_patch_does_its_steps(step: dict[str, Any], expected: dict[str, Any]) -> None:
    """The patch follows RFC 6902."""
    assert apply_json_patch({"l": [1, 2], "m": {"a/b": 1}}, [step]) == expected


@pytest.mark.parametrize(
    "step",
    [
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "test", "path": "/l/0", "value": 2},
        {"op": "add", "path": "/l/7", "value": 2},
        {"op": "grow", "path": "/l"},
        {"path": "/l"},
    ],
)
def test_a_step_that_cannot_be_done_is_refused(step: dict[str, Any]) -> None:
    """A faulty patch operation is rejected with 422, and the object stays unchanged."""
    with pytest.raises(ApiError) as refused:
        apply_json_patch({"l": [1]}, [step])
    assert refused.value.code == 422


def test_what_is_no_json_patch_is_a_bad_request() -> None:
    """A JSON patch must be a list of operations."""
    with pytest.raises(ApiError) as refused:
        apply_json_patch({}, {"op": "add"})
    assert refused.value.code == 400
