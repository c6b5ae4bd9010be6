"""Faults of the apiserver that tests inject."""

from __future__ import annotations

from pathlib import Path

from services.lab.kubernetes.faults import FAULTS
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod


def test_a_busy_apiserver_answers_with_a_text(cluster: Cluster) -> None:
    """The given number of requests is answered with 429 without a Status, and with a retry delay."""
    cluster.create(FAULTS, {"refuse": 2, "retry_after_s": 3})

    answers = [cluster.get(PODS) for _ in range(3)]

    assert [answer.status for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "3"
    assert answers[0].headers["content-type"].startswith("text/plain")


def test_connections_are_dropped(cluster: Cluster) -> None:
    """All connections but that of the caller are dropped: a watch ends without an event."""
    with cluster.watch(f"{PODS}?watch=1&resourceVersion=1") as watch:
        assert cluster.create(FAULTS, {"drop": True}).status == 200
        assert watch.is_cut()


def test_events_are_forgotten(cluster: Cluster) -> None:
    """Events are forgotten as by a restart: a watch from an earlier version has to list again."""
    version = cluster.create(PODS, pod("a")).json["metadata"]["resourceVersion"]
    cluster.create(PODS, pod("b"))
    cluster.create(FAULTS, {"forget_events": True})

    with cluster.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
        assert watch.next()[1]["code"] == 410


def test_only_who_has_the_token_may_break_things(tmp_path: Path) -> None:
    """Faults require the token and valid numbers."""
    with Cluster(tmp_path, token="secret") as cluster:
        assert cluster.ask("POST", FAULTS, {"refuse": 1}, {"Authorization": ""}).status == 401
        assert cluster.create(FAULTS, {"refuse": -1}).status == 400
        assert cluster.get(FAULTS).status == 405
        assert cluster.get(PODS).status == 200
