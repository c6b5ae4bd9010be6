"""Watches: the beginning, the events and the end of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod


def make_labelled_object(name: str, **labels: str) -> dict[str, Any]:
    body = pod(name)
    body["metadata"]["labels"] = labels
    return body


def test_a_watch_without_a_version_begins_with_all_objects(cluster: Cluster) -> None:
    """The stream begins with all objects; events follow. Clients that want a list in a stream know to list first."""
    cluster.create(PODS, pod("a"))
    with cluster.watch("/api/v1/pods?watch=true&allowWatchBookmarks=true") as watch:
        assert watch.named(1) == [("ADDED", "a")]
        cluster.create(PODS, pod("b"))
        assert watch.named(1) == [("ADDED", "b")]
    assert cluster.get("/api/v1/pods?watch=1&sendInitialEvents=true").status == 422


def test_a_watch_resumes_from_a_version(cluster: Cluster) -> None:
    """The watch has all events after the version, and none before."""
    version = cluster.create(PODS, pod("a")).json["metadata"]["resourceVersion"]
    cluster.create(PODS, pod("b"))
    cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")

    with cluster.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
        assert watch.named(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_version_from_before_the_window_is_too_old(tmp_path: Path) -> None:
    """The answer is 200 with one event, an ERROR of code 410."""
    with Cluster(tmp_path, events_max=2) as cluster:
        version = cluster.create(PODS, pod("a")).json["metadata"]["resourceVersion"]
        oldest = cluster.create(PODS, pod("b")).json["metadata"]["resourceVersion"]
        for name in "cd":
            cluster.create(PODS, pod(name))

        with cluster.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            assert watch.status == 200
            assert watch.next() == (
                "ERROR",
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "message": f"too old resource version: {version} ({oldest})",
                    "reason": "Expired",
                    "code": 410,
                },
            )
            assert watch.has_ended()
        with cluster.watch(f"{PODS}?watch=1&resourceVersion={oldest}") as watch:
            assert watch.named(2) == [("ADDED", "c"), ("ADDED", "d")]


def test_after_a_restart_every_earlier_version_is_too_old(tmp_path: Path) -> None:
    """The events are gone with the process, as the watch cache of a real apiserver."""
    with Cluster(tmp_path) as cluster:
        version = cluster.create(PODS, pod("a")).json["metadata"]["resourceVersion"]
        current = cluster.create(PODS, pod("b")).json["metadata"]["resourceVersion"]
    with Cluster(tmp_path) as cluster:
        with cluster.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            assert watch.next()[1]["message"] == f"too old resource version: {version} ({current})"
        with cluster.watch(f"{PODS}?watch=1&resourceVersion={current}") as watch:
            cluster.create(PODS, pod("c"))
            assert watch.named(1) == [("ADDED", "c")]


def test_a_version_of_the_future_is_waited_for(cluster: Cluster) -> None:
    """A watch of a future version is silent until the version has passed, a list of it is answered with 504."""
    current = int(cluster.create(PODS, pod("a")).json["metadata"]["resourceVersion"])

    with cluster.watch(f"{PODS}?watch=1&resourceVersion={current + 1}") as watch:
        for name in "bc":
            cluster.create(PODS, pod(name))
        assert watch.named(1) == [("ADDED", "c")]
    listed = cluster.get(f"{PODS}?resourceVersion=999999")
    assert listed.status == 504
    assert listed.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_an_object_that_is_selected_no_longer_is_deleted_for_the_watcher(cluster: Cluster) -> None:
    """An object is deleted for the watcher when the selector no longer matches it, and added when it matches."""
    cluster.create(PODS, make_labelled_object("a", job="x"))
    cluster.create(PODS, make_labelled_object("b", job="y"))
    with cluster.watch(f"{PODS}?watch=1&labelSelector=job%3Dx") as watch:
        assert watch.named(1) == [("ADDED", "a")]
        cluster.patch(f"{PODS}/b", {"metadata": {"labels": {"job": "x"}}})
        version = cluster.patch(f"{PODS}/a", {"metadata": {"labels": {"job": "z"}}}).json["metadata"]["resourceVersion"]
        (added, _), (gone, last) = watch.take(2)

    assert (added, gone) == ("ADDED", "DELETED")
    assert (last["metadata"]["labels"], last["metadata"]["resourceVersion"]) == ({"job": "x"}, version)


def test_a_watch_ends_after_its_time(cluster: Cluster) -> None:
    """A watch ends in order after its timeout, with a last bookmark."""
    with cluster.watch(f"{PODS}?watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=0") as watch:
        assert watch.next()[0] == "BOOKMARK"
        assert watch.has_ended()


def test_bookmarks_come_without_events(tmp_path: Path) -> None:
    """Bookmarks have the current version, even if a write to other resources moved it."""
    with (
        Cluster(tmp_path, bookmark_s=0.01) as cluster,
        cluster.watch("/api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=1") as watch,
    ):
        watch.next()
        made = cluster.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}}).json
        version, seen = int(made["metadata"]["resourceVersion"]), 0
        while seen < version:
            kind, body = watch.next()
            assert kind == "BOOKMARK"
            seen = int(body["metadata"]["resourceVersion"])


def test_one_namespace_and_one_name_can_be_watched(cluster: Cluster) -> None:
    """Events of others are left out."""
    cluster.create(PODS, pod("a"))
    with (
        cluster.watch("/api/v1/namespaces/kube-system/pods?watch=1") as system,
        cluster.watch("/api/v1/namespaces/default/pods/b?watch=1") as one,
    ):
        cluster.create(PODS, pod("b"))
        cluster.create("/api/v1/namespaces/kube-system/pods", pod("c"))
        assert system.named(1) == [("ADDED", "c")]
        assert one.named(1) == [("ADDED", "b")]
