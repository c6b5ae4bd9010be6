"""Launched pods that no watch has shown yet hold resources until the apiserver reports their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import Claim, PodReport
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.nodes.nodes import Node
from services.hostmgr.kubernetes.pods.deletions import Deletions
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

SETTINGS = KubernetesSettings("", cluster="west")
JOB = "00000000-0000-4000-8000-000000000001"
NAME = f"{JOB}-3-2"
OWN, EXTERNAL = f"peloton/{NAME}", "team/web-1"
ONE = Demand(Resources.of(1, 100))


def a_pod(phase: str) -> Json:
    labels = {"peloton.io/cluster": "west", "peloton.io/job": JOB}
    metadata = {"name": NAME, "namespace": "peloton", "uid": "u", "labels": labels}
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
    spec = {"nodeName": "n1", "schedulerName": "peloton", "containers": [container]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


class World:
    def __init__(self) -> None:
        self.reported: list[PodReport] = []
        self.asked: list[str] = []
        self.serve: Callable[[Asked], bytes] = lambda _: answer(404, status(404, "NotFound"))
        self.view = ClusterView(SETTINGS, self.reported.extend, lambda: None)
        known: dict[str, Any] = {"uid": "uid-n1", "ip": "", "capacity": Resources.of(4, 1_000), "pods_max": 10}
        self.view.ledger.put_node(Node(name=Hostname("n1"), labels={}, **known))
        self.deletions: Deletions

    def answer(self, asked: Asked) -> Iterator[bytes]:
        self.asked.append(asked.path)
        yield self.serve(asked)

    def launch(self, *keys: str) -> None:
        [on_node] = self.view.ledger.changes().announced
        claim = Claim(on_node.hostname, on_node.host_id, (on_node.resources_id,))
        assert {} == self.view.ledger.use(claim, [(key, ONE) for key in keys])

    @property
    def held(self) -> list[str]:
        return sorted(self.view.ledger.pods_on("n1"))


@contextmanager
def a_world() -> Iterator[World]:
    world = World()
    with run_scripted(world.answer) as server, api_of(server) as api:
        world.deletions = Deletions(api, SETTINGS, world.view, world.reported.extend)
        yield world


def test_a_launched_pod_that_a_new_list_lacks_is_fetched() -> None:
    """The pod holds its resources until it is queried; a missing pod is lost."""
    with a_world() as world:
        world.launch(OWN)
        world.view.pods_replaced([])
        assert [OWN] == world.held
        world.deletions.run_periodic()
        assert ([], [(NAME, "LOST")]) == (world.held, [(one.pod, one.state_text) for one in world.reported])
        assert [f"/api/v1/namespaces/peloton/pods/{NAME}"] == world.asked


def test_a_pod_of_others_is_not_fetched_among_ours() -> None:
    """The name of an external pod is no pod id: a report of it could not be parsed."""
    with a_world() as world:
        world.launch(EXTERNAL, "peloton/web-2")
        world.view.pods_replaced([])
        world.deletions.run_periodic()
        assert ([], []) == (world.asked, world.reported)


def test_what_a_watch_shows_is_newer_than_what_was_fetched_before() -> None:
    """The pod ended while the answer was on its way: its resources are free, and its state stays."""
    with a_world() as world:
        world.launch(OWN)
        world.view.pods_replaced([])

        def answer_late(_: Asked) -> bytes:
            world.view.pod_changed(a_pod("Succeeded"), is_deleted=False)
            return answer(200, a_pod("Running"))

        world.serve = answer_late
        world.deletions.run_periodic()
        own = world.view.own(NAME)
        assert own is not None
        assert ([], True) == (world.held, own.is_over)


def test_a_pod_that_is_fetched_and_found_counts() -> None:
    """The pod counts before the watch shows it."""
    with a_world() as world:
        world.launch(OWN)
        world.view.pods_replaced([])
        world.serve = lambda _: answer(200, a_pod("Running"))
        world.deletions.run_periodic()
        assert (["RUNNING"], [OWN]) == ([one.state_text for one in world.reported], world.held)
