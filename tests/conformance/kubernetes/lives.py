"""Lives of pods: what they run, what is done to them, and the states that a watch shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.kubernetes.client import Client, Json

RECORDED: dict[str, list[Json]] = orjson.loads((Path(__file__).parent / "lives.json").read_bytes())
"""The states of a real kubelet, each with its phase, its reason, and its containers with theirs."""
PODS = "/api/v1/namespaces/default/pods"
IMAGE = "busybox:stable"
TIMEOUT_S = 180.0
_POLL_S = 0.05


class Life(NamedTuple):
    spec: Json
    """The spec of the pod, with its containers."""
    ending: Callable[[Client, str], object] | None = None
    """The action taken as soon as the pod has reported that it is ready."""


def _main(script: str, **more: Any) -> Json:
    return {"containers": [_container("main", script)], **more}


def _container(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], **more}


def _delete(query: str = "") -> Callable[[Client, str], object]:
    return lambda client, name: client.ask("DELETE", f"{PODS}/{name}{query}")


def _evict(client: Client, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    assert client.ask("POST", f"{PODS}/{name}/eviction", body).status == 201


HUGE = {"resources": {"requests": {"cpu": "999"}}}
SMALL = {"resources": {"limits": {"memory": "64Mi"}}}
READY = "echo ready"
TERMINATED = f"trap 'exit {{}}' TERM; {READY}; while :; do sleep 0.1; done"
GREEDY = "tail /dev/zero; sleep 2; exit 137"
"""A script that outlives the process that the kernel kills, so that the runtime sees that kill before the script
ends."""
IGNORED = f"trap '' TERM; {READY}; while :; do sleep 1; done"
LIVES = {
    "ok": Life(_main("sleep 0.2")),
    "fail": Life(_main("sleep 0.2; exit 3")),
    "nocmd": Life({"containers": [{"name": "main", "image": IMAGE, "command": ["/no/such/command"]}]}),
    "outofcpu": Life({"containers": [_container("main", "true", **HUGE)]}),
    "selector": Life(_main("true", nodeSelector={"nobody": "has"})),
    "deadline": Life(_main(IGNORED, activeDeadlineSeconds=5, terminationGracePeriodSeconds=1)),
    "initfail": Life(_main("true", initContainers=[_container("init", "exit 5")])),
    "two": Life({"containers": [_container("main", "sleep 0.2"), _container("side", "sleep 1; exit 4")]}),
    "term-handled": Life(_main(TERMINATED.format(0), terminationGracePeriodSeconds=10), _delete()),
    "term-ignored": Life(_main(IGNORED, terminationGracePeriodSeconds=3), _delete()),
    "evict": Life(_main(TERMINATED.format(7), terminationGracePeriodSeconds=5), _evict),
    "force": Life(_main(f"{READY}; sleep 300"), _delete("?gracePeriodSeconds=0")),
}
IN_CONTAINERS = {
    "oom": Life({"containers": [_container("main", GREEDY, **SMALL)]}),
    "noimage": Life({"containers": [_container("main", "true", imagePullPolicy="Never") | {"image": "nobody/has:1"}]}),
}
"""The lives of pods, by name."""


def play(client: Client, node: str, lives: Mapping[str, Life]) -> dict[str, list[Json]]:
    """The states of all of them, which live at the same time, until each has come to its end."""
    seen: dict[str, list[Json]] = {name: [] for name in lives}
    ended: set[str] = set()
    until_s = time.monotonic() + TIMEOUT_S
    with client.watch(f"{PODS}?watch=1&timeoutSeconds={TIMEOUT_S:.0f}") as watch:
        for name, life in lives.items():
            body = {"metadata": {"name": name}, "spec": {"nodeName": node, "restartPolicy": "Never", **life.spec}}
            assert client.ask("POST", PODS, body).status == 201
        for event in watch:
            name, state = event["object"]["metadata"]["name"], _state(event)
            if name not in lives:
                continue
            states, life = seen[name], lives[name]
            if not states or states[-1] != state:
                states.append(state)
            if state["phase"] == "Running" and life.ending is not None and name not in ended:
                ended.add(name)
                _await_ready(client, name)
                life.ending(client, name)
            if (
                all(states and _is_over(states[-1], lives[name]) for name, states in seen.items())
                or time.monotonic() > until_s
            ):
                break
    return seen


def _await_ready(client: Client, name: str) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while b"ready" not in client.ask("GET", f"{PODS}/{name}/log").body:
        assert time.monotonic() < until_s, name
        time.sleep(_POLL_S)


def _is_over(state: Json, life: Life) -> bool:
    """Return whether the pod has come to its end, also as one that waits for an image which cannot come."""
    if life.ending is not None:
        return "deleted" in state
    reasons = {one[-1] for one in state.get("containers", {}).values()}
    return state["phase"] in ("Succeeded", "Failed") or "ErrImageNeverPull" in reasons


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
