"""Pods on emulated nodes go through the states that a real kubelet was seen to report (lives.json)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from tests.conformance.kubernetes.emulated import EmulatedKubernetes
from tests.kubernetes.client import Client, Json

pytestmark = pytest.mark.xdist_group("lives")
RECORDED: dict[str, list[Json]] = orjson.loads((Path(__file__).parent / "lives.json").read_bytes())
NOT_EMULATED = {
    "oom": "processes of emulated nodes have no limit on memory",
    "noimage": "images are always there, or come",
}
ANOTHER_WAY = {
    "nocmd": "the phase is Running as soon as a container has ended",
    "deadline": "the reason is seen before the container has ended",
    "two": "containers are reported one by one",
}
"""Lives whose end alone is the recorded one."""
PODS = "/api/v1/namespaces/default/pods"
NODE = "node-0"
PATIENCE_S = 180.0


class Life(NamedTuple):
    spec: Json
    """What its containers have, by name, and what the pod has beside them."""
    ending: Callable[[Client, str], object] | None = None
    """What is done to it as soon as it has said that it is ready."""


def _main(script: str, **more: Any) -> Json:
    return {"containers": [_container("main", script)], **more}


def _container(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], **more}


def _delete(query: str = "") -> Callable[[Client, str], object]:
    return lambda client, name: client.ask("DELETE", f"{PODS}/{name}{query}")


def _evict(client: Client, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    assert client.ask("POST", f"{PODS}/{name}/eviction", body).status == 201


HUGE = {"resources": {"requests": {"cpu": "999"}}}
READY = "echo ready"
TERMINATED = f"trap 'exit {{}}' TERM; {READY}; while :; do sleep 0.1; done"
IGNORED = f"trap '' TERM; {READY}; while :; do sleep 1; done"
LIVES = {
    "ok": Life(_main("sleep 0.2")),
    "fail": Life(_main("sleep 0.2; exit 3")),
    "nocmd": Life({"containers": [{"name": "main", "image": "busybox", "command": ["/no/such/command"]}]}),
    "outofcpu": Life({"containers": [_container("main", "true", **HUGE)]}),
    "selector": Life(_main("true", nodeSelector={"nobody": "has"})),
    "deadline": Life(_main(IGNORED, activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)),
    "initfail": Life(_main("true", initContainers=[_container("init", "exit 5")])),
    "two": Life({"containers": [_container("main", "sleep 0.2"), _container("side", "sleep 1; exit 4")]}),
    "term-handled": Life(_main(TERMINATED.format(0), terminationGracePeriodSeconds=10), _delete()),
    "term-ignored": Life(_main(IGNORED, terminationGracePeriodSeconds=3), _delete()),
    "evict": Life(_main(TERMINATED.format(7), terminationGracePeriodSeconds=5), _evict),
    "force": Life(_main(f"{READY}; sleep 300"), _delete("?gracePeriodSeconds=0")),
}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Json]]]:
    """The states of all of them, which live at the same time."""
    with (
        EmulatedKubernetes(tmp_path_factory.mktemp("lives"), nodes=1) as cluster,
        Client(cluster.login) as client,
        client.watch(f"{PODS}?watch=1&timeoutSeconds={PATIENCE_S:.0f}") as watch,
    ):
        for name, life in LIVES.items():
            body = {"metadata": {"name": name}, "spec": {"nodeName": NODE, "restartPolicy": "Never", **life.spec}}
            assert client.ask("POST", PODS, body).status == 201
        seen: dict[str, list[Json]] = {name: [] for name in LIVES}
        ended: set[str] = set()
        until_s = time.monotonic() + PATIENCE_S
        for event in watch:
            name, state = event["object"]["metadata"]["name"], _state(event)
            states = seen[name]
            if not states or states[-1] != state:
                states.append(state)
            life = LIVES[name]
            if state["phase"] == "Running" and life.ending is not None and name not in ended:
                ended.add(name)
                _await_ready(client, name)
                life.ending(client, name)
            if all(_is_over(name, states) for name, states in seen.items()) or time.monotonic() > until_s:
                break
        yield seen


def _await_ready(client: Client, name: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while b"ready" not in client.ask("GET", f"{PODS}/{name}/log").body:
        assert time.monotonic() < until_s, name
        time.sleep(0.05)


def _is_over(name: str, states: list[Json]) -> bool:
    if not states:
        return False
    return "deleted" in states[-1] if LIVES[name].ending else states[-1]["phase"] in ("Succeeded", "Failed")


def _state(event: Json) -> Json:
    metadata, status = event["object"]["metadata"], event["object"]["status"]
    found: Json = {"phase": status["phase"]}
    if "reason" in status:
        found["reason"] = status["reason"]
    if "deletionTimestamp" in metadata:
        found["grace"] = metadata["deletionGracePeriodSeconds"]
    if statuses := status.get("containerStatuses"):
        found["containers"] = {one["name"]: _container_state(one["state"]) for one in statuses}
    if event["type"] == "DELETED":
        found["deleted"] = True
    return found


def _container_state(state: Json) -> list[Any]:
    [(name, values)] = state.items()
    return [name, *(values[key] for key in ("exitCode", "reason") if key in values)]


@pytest.mark.parametrize("name", LIVES)
def test_a_life(name: str, lives: dict[str, list[Json]]) -> None:
    """The states are those of the recording, in the same order, but for those that come to the same end."""
    if name in ANOTHER_WAY:
        assert RECORDED[name][-1] == lives[name][-1]
    else:
        assert RECORDED[name] == lives[name]


def test_every_recorded_life_is_lived_or_says_why_not() -> None:
    """No recording is left out silently."""
    assert set(RECORDED) == {*LIVES, *NOT_EMULATED}
