"""Lists: selected by labels and fields, in pages of one state."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.lists import SNAPSHOTS_MAX
from services.lab.kubernetes.selectors import by_fields, by_labels, by_requirements
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

LABELS = {"app": "web", "tier": "2", "peloton.io/job": "j-1"}


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=1", True),
        ("app=db", False),
        ("missing!=x", True),
        ("app in (db, web)", True),
        ("app notin (db,web)", False),
        ("missing notin (x)", True),
        ("app", True),
        ("!app", False),
        ("!missing,peloton.io/job=j-1", True),
        ("app in (web),tier in (3)", False),
    ],
)
def test_label_selectors(selector: str, is_selected: bool) -> None:
    """A label selector compares values and sets, joined by commas."""
    assert by_labels(selector)({"metadata": {"labels": LABELS}}) is is_selected


@pytest.mark.parametrize("selector", ["a b", "in (x)", "=x", "a=b=c", "tier>1"])
def test_what_is_no_selector_is_a_bad_request(selector: str) -> None:
    """A malformed selector is rejected."""
    with pytest.raises(ApiError) as refused:
        by_labels(selector)
    assert refused.value.code == 400


def test_a_selector_object_selects_like_its_text() -> None:
    """A missing selector selects nothing, an empty one everything."""
    body = {"metadata": {"labels": LABELS}}
    expressions = [
        {"key": "app", "operator": "In", "values": ["web"]},
        {"key": "tier", "operator": "NotIn", "values": ["1"]},
        {"key": "app", "operator": "Exists"},
        {"key": "missing", "operator": "DoesNotExist"},
    ]

    assert by_requirements({"matchLabels": {"tier": "2"}, "matchExpressions": expressions})(body)
    assert not by_requirements({"matchLabels": {"tier": "3"}})(body)
    assert by_requirements({})(body)
    assert not by_requirements(None)(body)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("spec.nodeName=n1", ["a", "b"]),
        ("spec.nodeName!=", ["a", "b"]),
        ("spec.schedulerName=peloton,status.phase!=Running", ["a", "c"]),
        ("status.phase=Running", ["b"]),
    ],
)
def test_pods_are_selected_by_fields(cluster: Cluster, selector: str, names: list[str]) -> None:
    """Pods are selected by the fields that an apiserver supports."""
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "")):
        cluster.create(PODS, pod(name, node=node))
    cluster.patch(f"{PODS}/b/status", {"status": {"phase": "Running"}})

    listed = cluster.get(f"/api/v1/pods?fieldSelector={quote(selector)}")

    assert [one["metadata"]["name"] for one in listed.json["items"]] == names


def test_other_fields_cannot_be_selected_by() -> None:
    """The message names the field."""
    with pytest.raises(ApiError, match=r"field label not supported: spec\.priority"):
        by_fields("pods", "spec.priority=1")
    assert by_fields("nodes", "spec.unschedulable=false")({"spec": {}})


def test_a_list_names_its_kind_and_its_members_do_not(cluster: Cluster) -> None:
    """A list names its kind once, as an apiserver writes lists."""
    cluster.create(PODS, pod("a"))

    listed = cluster.get(PODS).json

    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    assert listed["items"][0]["metadata"]["name"] == "a"


def test_pages_are_of_one_state(cluster: Cluster) -> None:
    """An object that is written between two pages is in none of them."""
    for name in "abcde":
        cluster.create(PODS, pod(name))

    first = cluster.get(f"{PODS}?limit=2").json
    cluster.ask("DELETE", f"{PODS}/c?gracePeriodSeconds=0")
    cluster.create(PODS, pod("bb"))
    second = cluster.get(f"{PODS}?limit=2&continue={first['metadata']['continue']}").json
    third = cluster.get(f"{PODS}?limit=2&continue={second['metadata']['continue']}").json

    assert [first["metadata"]["remainingItemCount"], second["metadata"]["remainingItemCount"]] == [3, 1]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]
    names = [one["metadata"]["name"] for page in (first, second, third) for one in page["items"]]
    assert names == ["a", "b", "c", "d", "e"]


def test_a_token_expires(cluster: Cluster) -> None:
    """The oldest lists cannot be continued, and a text that is no token is rejected."""
    for name in "abc":
        cluster.create(PODS, pod(name))
    token = cluster.get(f"{PODS}?limit=1").json["metadata"]["continue"]
    for number in range(SNAPSHOTS_MAX):
        cluster.create(PODS, pod(f"x{number:03}"))
        cluster.get(f"{PODS}?limit=1")

    late = cluster.get(f"{PODS}?limit=2&continue={token}")

    assert (late.status, late.json["reason"]) == (410, "Expired")
    assert cluster.get(f"{PODS}?continue=x").status == 400
