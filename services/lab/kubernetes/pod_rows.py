"""Row of a pod in a table, with its status in one word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.lab.kubernetes.pods import is_over
from services.lab.kubernetes.resources import Json

NONE = "<none>"


def pod_cells(pod: Json, created: str, age: Callable[[str], str]) -> list[Any]:
    """Return ready, status, restarts, age, address, node, nominated node, readiness gates."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    total = len(spec.get("containers") or ())
    ready = sum(bool(one.get("ready")) and "running" in (one.get("state") or {}) for one in containers)
    return [
        f"{ready}/{total}",
        _status(pod, spec, status, containers),
        _restarts(containers, age),
        created,
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _status(pod: Json, spec: Json, status: Json, containers: list[Json]) -> str:
    if "deletionTimestamp" in pod["metadata"] and not is_over(pod):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    if text := _of_init(spec, status):
        return text
    text = str(status.get("reason") or status.get("phase") or "")
    if spec.get("schedulingGates"):
        text = "SchedulingGated"
    is_running = False
    for one in reversed(containers):
        state = one.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            text = waiting["reason"]
        elif ended is not None:
            text = _ended(ended)
        elif one.get("ready") and "running" in state:
            is_running = True
    if text == "Completed" and is_running:
        ready = [one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"]
        return "Running" if ready == ["True"] else "NotReady"
    return text


def _of_init(spec: Json, status: Json) -> str:
    """Return the status of the init containers; empty when all have succeeded."""
    names = spec.get("initContainers") or ()
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        state = one.get("state") or {}
        waiting, ended = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if ended is not None:
            if not ended.get("exitCode"):
                continue
            return f"Init:{_ended(ended)}"
        return f"Init:{waiting}" if waiting and waiting != "PodInitializing" else f"Init:{index}/{len(names)}"
    return ""


def _ended(state: Json) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _restarts(containers: list[Json], age: Callable[[str], str]) -> str:
    count = sum(int(one.get("restartCount") or 0) for one in containers)
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in containers]
    last = max((end for end in ends if end), default="")
    return f"{count} ({age(last)} ago)" if count and last else str(count)
