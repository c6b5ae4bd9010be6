"""Tables as kubectl asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from services.lab.kubernetes.pod_rows import pod_cells
from services.lab.kubernetes.tables import age
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (3599, "59m"),
        (4 * 3600 + 300, "4h5m"),
        (30 * 3600, "30h"),
        (50 * 3600, "2d2h"),
        (100 * 86400, "100d"),
        (3 * 365 * 86400, "3y"),
    ],
)
def test_ages_have_at_most_two_units(seconds: int, text: str) -> None:
    """The smaller unit is shown only while it is significant."""
    assert age("1970-01-01T00:00:00Z", float(seconds)) == text


def row(status: dict[str, Any], **metadata: Any) -> list[Any]:
    spec = {"containers": [{}, {}], "initContainers": [{}, {}]}
    cells = pod_cells({"metadata": metadata, "spec": spec, "status": status}, "5s", lambda moment: "3m")
    return cells[:3]


def container(ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"ready": ready, "restartCount": restarts, "state": state}


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ({"phase": "Pending"}, ["0/2", "Pending", "0"]),
        (
            {
                "phase": "Running",
                "containerStatuses": [container(True, 1, running={}), container(waiting={"reason": "ErrImagePull"})],
            },
            ["1/2", "ErrImagePull", "1"],
        ),
        (
            {"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 3})]},
            ["0/2", "ExitCode:3", "0"],
        ),
        ({"phase": "Failed", "reason": "OutOfcpu"}, ["0/2", "OutOfcpu", "0"]),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container(terminated={"exitCode": 0}), container(running={})],
            },
            ["0/2", "Init:1/2", "0"],
        ),
        (
            {"phase": "Failed", "initContainerStatuses": [container(terminated={"exitCode": 5, "reason": "Error"})]},
            ["0/2", "Init:Error", "0"],
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [container(terminated={"reason": "Completed"}), container(True, running={})],
            },
            ["1/2", "NotReady", "0"],
        ),
    ],
)
def test_a_pod_is_told_in_one_word(status: dict[str, Any], cells: list[str]) -> None:
    """The status is the most specific reason: of an init container, of a container, of the pod, or its phase."""
    assert row(status) == cells


def test_a_pod_that_goes_is_terminating() -> None:
    """A pod with a deletionTimestamp shows as terminating until it has ended; its restarts show the time of the last
    one.
    """
    last = {**container(True, 2, running={}), "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}}}

    assert row({"phase": "Running", "containerStatuses": [last]}, deletionTimestamp="x") == [
        "1/2",
        "Terminating",
        "2 (3m ago)",
    ]
    assert row({"phase": "Failed"}, deletionTimestamp="x")[1] == "Failed"


def test_a_watch_of_tables_names_its_columns_once(cluster: Cluster) -> None:
    """Each event is a table of one row; the query chooses the part of the object that it includes."""
    cluster.create(PODS, pod("a"))
    with cluster.watch(f"{PODS}?watch=1&includeObject=Object", Accept=TABLE) as watch:
        cluster.create(PODS, pod("b"))
        (first_kind, first), (_, second) = watch.take(2)

    assert (first_kind, first["kind"]) == ("ADDED", "Table")
    assert [one["name"] for one in first["columnDefinitions"]][:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert second["columnDefinitions"] is None
    assert (second["rows"][0]["cells"][0], second["rows"][0]["object"]["kind"]) == ("b", "Pod")


@pytest.mark.parametrize(
    ("path", "body", "cells"),
    [
        (
            "/api/v1/nodes",
            {"metadata": {"name": "n"}, "spec": {"unschedulable": True}},
            ["n", "Unknown,SchedulingDisabled"],
        ),
        ("/api/v1/namespaces", {"metadata": {"name": "n"}}, ["n", "Active"]),
        ("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "n"}, "data": {"a": "b"}}, ["n", 1]),
        ("/api/v1/namespaces/default/secrets", {"metadata": {"name": "n"}}, ["n", "Opaque"]),
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "n"}}, ["n"]),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"metadata": {"name": "n"}, "spec": {"minAvailable": 2, "selector": {}}},
            ["n", "2", "N/A", 0],
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "n"}, "value": 5}, ["n", 5, "false"]),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            {"metadata": {"name": "n"}, "spec": {"holderIdentity": "me"}},
            ["n", "me"],
        ),
        (
            "/api/v1/namespaces/default/events",
            {"metadata": {"name": "n"}, "reason": "Killing", "involvedObject": {"kind": "Pod", "name": "a"}},
            ["", "Killing", "pod/a"],
        ),
        ("/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "n"}, "spec": {"hard": {}}}, ["n", "", ""]),
    ],
)
def test_every_kind_has_a_row(cluster: Cluster, path: str, body: dict[str, Any], cells: list[Any]) -> None:
    """A row has as many cells as its table has columns."""
    cluster.create(path, body)

    table = cluster.get(f"{path}/n", Accept=TABLE).json

    found = table["rows"][0]["cells"]
    assert len(found) == len(table["columnDefinitions"])
    first = 1 if path.endswith("events") else 0  # the first cell of an event is its age
    assert found[first : first + len(cells)] == cells
