"""Kubernetes pods in Peloton's terms. The object alone determines the state: there are no steps to follow.

A pod that is being deleted has a ``deletionTimestamp``, the time of the request plus the grace period: a container that
ended before the request ended by itself.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial

from peloton.lifecycle.pod import HEALTH_CHECK_REASON
from peloton.model.ids import PodId, parse_job_id
from peloton.model.pod import Cause, ContainerState, ContainerStatus, PodState, PodStatus
from peloton.model.resources import EXTENDED_KINDS_MAX, Extended, Resources, is_license, to_extended
from services.hostmgr.driver import PodReport
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pods.quantities import KNOWN_MAX, amount, mib, milli
from services.hostmgr.kubernetes.pods.reasons import (
    DISRUPTIONS,
    INVALID_IMAGE_NAME,
    PULL_REFUSED_S,
    SHOWN,
    WAIT_LIMITS,
    Pull,
    container_cause,
    pod_cause,
    pull_of,
    wait_text,
)

FORCED = "the pod was deleted without its end being known"
MESSAGE_MAX = 1_000
"""Limit in characters of a message of Kubernetes that is kept."""
GPU = "nvidia.com/gpu"
REVOCABLE_CPU = "peloton.io/revocable-cpu"
"""Annotation with the cpu of a pod that borrows cpu and requests none."""
_NO_TIME = "1970-01-01T00:00:00Z"
_MORE_THAN_CONTAINERS = frozenset(("initContainers", "overhead", "resources"))
"""Fields of a pod with which it takes more of its node than its containers do."""


def report_of(pod: Json, deleted: bool, kill_asked: bool, host_id: str = "") -> PodReport:
    """Return the report of a pod. ``deleted``: the object is gone, and this was its last state. ``kill_asked``:
    Peloton requested its end. ``host_id`` of its node is stored with it."""
    meta = pod["metadata"]
    state, _ = _state(pod, deleted, kill_asked)
    steps = "" if state is PodState.LAUNCHED else f"{_health(pod)}{_steps(pod)}"
    news = f"{state}{steps}{_wait_news(pod)}"
    token = (meta.get("namespace", ""), meta["name"], meta.get("uid", ""), news)
    return PodReport(meta["name"], state.value, partial(_pod_status, pod, deleted, kill_asked, host_id), token)


def stuck(
    pod: Json, now_s: float, image_timeout_s: float, host_id: str = "", refused_s: float = 0.0
) -> PodReport | None:
    """Return the end of a pod whose containers have waited for longer than their reason allows; None if it may wait
    further. The driver must delete the pod, as it must for any stored end. ``refused_s`` is the time since when a
    registry has refused an image of it; 0: none has."""
    if phase(pod) != "Pending" or not (began := pod.get("status", {}).get("startTime")):
        return None
    for name, waiting in _waiting(pod):
        reason, text = waiting.get("reason", ""), waiting.get("message", "")
        if (limit := WAIT_LIMITS.get(reason)) is None:
            continue
        is_refused = refused_s > 0 and pull_of(reason, text) in (Pull.REFUSED, Pull.UNEXPLAINED)
        if is_refused and now_s - refused_s >= (bound_s := min(PULL_REFUSED_S, image_timeout_s)):
            how = f"container {name} cannot be started, its registry has refused the image for {bound_s:g} s: {reason}"
        elif now_s - _seconds(began) >= limit.seconds(image_timeout_s):
            how = f"container {name} cannot be started: {reason}"
        else:
            continue
        cause = Cause.IMAGE if is_refused or reason == INVALID_IMAGE_NAME else Cause.CONTAINER
        message = f"{how}{': ' if text else ''}{text}"[:MESSAGE_MAX]
        meta = pod["metadata"]
        token = (meta.get("namespace", ""), meta["name"], meta.get("uid", ""), reason)
        end = (PodState.FAILED, cause)
        return PodReport(
            meta["name"],
            end[0].value,
            partial(_make_end, pod, *end, message, reason, host_id=host_id, ended_s=now_s),
            token,
        )
    return None


def find_refused_since(pod: Json, before_s: float, now_s: float) -> float:
    """Return since when a registry has refused an image of the pod, 0 if none does; ``before_s`` is the previous
    result."""
    pulls = {pull_of(waiting.get("reason", ""), waiting.get("message", "")) for _, waiting in _waiting(pod)}
    if Pull.REFUSED in pulls:
        return before_s or now_s
    return before_s if Pull.UNEXPLAINED in pulls else 0.0


def phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def is_over(pod: Json) -> bool:
    """Return whether the whole pod has ended, and takes no resources of its node."""
    return phase(pod) in ("Succeeded", "Failed")


def sum_occupied(pod: Json) -> Resources:
    """Return the requested resources of its node: of its containers and sidecars, or of an init container with the
    sidecars before it."""
    spec = pod.get("spec", {})
    if len(spec.get("containers", ())) == 1 and spec.keys().isdisjoint(_MORE_THAN_CONTAINERS):
        return _requests(spec["containers"][0])
    total = main = sum((_requests(container) for container in spec.get("containers", ())), Resources())
    others = Resources()
    for container in spec.get("initContainers", ()):
        own = _requests(container)
        if _is_sidecar(container):
            others += own
            own = Resources()
        total = Resources.each(max, total, others + own)
    whole = _requests(spec)  # of the pod as a whole, if set
    total = Resources.each(lambda own, found: own or found, whole, Resources.each(max, total, main + others))
    return total + _amounts(spec.get("overhead", {}))


def revocable_cpu_milli(pod: Json) -> int:
    """Return the cpu that the pod borrows of other pods' unused requests; none if the annotation is malformed."""
    text = pod["metadata"].get("annotations", {}).get(REVOCABLE_CPU, "")
    with suppress(ValueError):
        return max(milli(amount(text), up=True), 0) if text else 0
    return 0


def ports(pod: Json) -> frozenset[int]:
    """Return the ports of its node that the pod takes."""
    spec = pod.get("spec", {})
    sidecars = filter(_is_sidecar, spec.get("initContainers", ()))
    return frozenset(
        port["hostPort"]
        for container in (*spec.get("containers", ()), *sidecars)
        for port in container.get("ports", ())
        if port.get("hostPort")
    )


# -- amounts -------------------------------------------------------------------------------------------------------


def _is_sidecar(init_container: Json) -> bool:
    """Return whether it keeps running alongside later containers."""
    return bool(init_container.get("restartPolicy") == "Always")


def _requests(container: Json) -> Resources:
    """Return the requests; a limit without a request is also a request."""
    asked = container.get("resources") or {}
    return _amounts({**asked.get("limits", {}), **asked.get("requests", {})})


def _amounts(texts: Json) -> Resources:
    own = _resources(texts.get("cpu", 0), texts.get("memory", 0), texts.get("ephemeral-storage", 0), texts.get(GPU, 0))
    extended = read_extended(texts)
    return replace(own, extended=extended) if extended else own


def is_extended(name: str) -> bool:
    """Return whether a resource of Kubernetes is an extended one: they have names with a prefix of their own."""
    prefix, slash, _ = name.partition("/")
    return bool(slash) and name != GPU and not prefix.endswith("kubernetes.io") and not is_license(name)


def read_extended(texts: Json) -> Extended:
    """Return the extended resources among these amounts, which have qualified names; at most EXTENDED_KINDS_MAX."""
    amounts = {name: int(amount(text)) for name, text in texts.items() if "/" in name and is_extended(name)}
    return to_extended(amounts)[:EXTENDED_KINDS_MAX] if amounts else ()


@lru_cache(maxsize=KNOWN_MAX)
def _resources(cpu: str, memory: str, disk: str, gpu: str) -> Resources:
    """Return a cached value: pods of one kind have equal requests, repeated in every change of their status."""
    return Resources(
        milli(amount(cpu), up=True),
        mib(amount(memory), up=True),
        mib(amount(disk), up=True),
        milli(amount(gpu), up=True),
    )


# -- states --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=KNOWN_MAX)
def pod_id_of(name: str) -> PodId | None:
    """Return None for a name that is no id of a run."""
    try:
        pod_id = PodId.parse(name)
        parse_job_id(pod_id.job_id)
    except ValueError:
        return None
    return pod_id


def _state(pod: Json, deleted: bool, kill_asked: bool) -> tuple[PodState, Cause]:
    """Return the state, and the cause of an end."""
    if is_over(pod):
        return _end(pod, kill_asked)
    if deleted:
        return _classify_forced_end(pod, kill_asked)
    if phase(pod) == "Running":
        return PodState.RUNNING, Cause.NO_ENDING
    return PodState.STARTING if _has_begun(pod) else PodState.LAUNCHED, Cause.NO_ENDING


def _end(pod: Json, kill_asked: bool) -> tuple[PodState, Cause]:
    """Return the end of a pod whose containers have ended, or that its node rejected."""
    status = pod["status"]
    own = pod_cause(status.get("reason", ""), status.get("message", ""))
    if own is Cause.RESOURCES_GONE and not _has_begun(pod):
        return PodState.LOST, own
    if own is not None:
        return PodState.FAILED, own
    if not _has_ended_by_itself(pod):
        why = _disruption(pod)
        if kill_asked:
            return PodState.KILLED, Cause.PROGRAM
        if why is Cause.HOST_GONE:
            return PodState.LOST, why
        return PodState.KILLED, why or Cause.REMOVED
    if phase(pod) == "Succeeded":
        return PodState.SUCCEEDED, Cause.PROGRAM
    failed = _first_failed(pod)
    return PodState.FAILED, container_cause(failed[1].get("reason", "")) if failed else Cause.PROGRAM


def _classify_forced_end(pod: Json, kill_asked: bool) -> tuple[PodState, Cause]:
    """Return the end of a pod that was deleted before its containers were seen to end."""
    if kill_asked:
        return PodState.KILLED, Cause.PROGRAM
    why = _disruption(pod)
    if why is Cause.HOST_DRAINED and _disruption_reason(pod) == "DeletionByTaintManager":
        why = Cause.HOST_LOST
    if why is None:
        why = Cause.REMOVED if _has_begun(pod) else Cause.NOT_STARTED
    return PodState.LOST, why


def _has_ended_by_itself(pod: Json) -> bool:
    """Return whether its containers ended before its deletion was requested. Times are in whole seconds, and the
    kubelet replaces the time of the request when all containers have ended. In doubt the answer is no, so that no
    unfinished work counts."""
    meta = pod["metadata"]
    if not (text := meta.get("deletionTimestamp")):
        return _disruption(pod) is None
    if not (grace_s := meta.get("deletionGracePeriodSeconds", 0)):
        return False
    ends = [_seconds(ended["finishedAt"]) for _, ended in _list_terminated(pod) if ended.get("finishedAt")]
    return bool(ends) and max(ends) < _seconds(text) - grace_s


def _disruption_reason(pod: Json) -> str:
    condition = _condition(pod, "DisruptionTarget")
    return str(condition.get("reason", "")) if condition.get("status") == "True" else ""


def _disruption(pod: Json) -> Cause | None:
    return DISRUPTIONS.get(_disruption_reason(pod))


def _condition(pod: Json, kind: str) -> Json:
    conditions: list[Json] = pod.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


# -- containers ----------------------------------------------------------------------------------------------------


def _statuses(pod: Json) -> Iterator[tuple[str, Json]]:
    """Yield the states of all its containers, init containers first."""
    status = pod.get("status", {})
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            yield each["name"], each.get("state") or {}


def _waiting(pod: Json) -> list[tuple[str, Json]]:
    return [(name, state["waiting"]) for name, state in _statuses(pod) if "waiting" in state]


def _list_terminated(pod: Json) -> list[tuple[str, Json]]:
    return [(name, state["terminated"]) for name, state in _statuses(pod) if "terminated" in state]


def _has_begun(pod: Json) -> bool:
    """Return whether a container has run, or may have."""
    return phase(pod) == "Running" or any(
        "running" in state or state.get("terminated", {}).get("startedAt", _NO_TIME) != _NO_TIME
        for _, state in _statuses(pod)
    )


def _first_failed(pod: Json) -> tuple[str, Json] | None:
    """Return the container that failed first; sidecars are ended after all others, and do not decide the end."""
    sidecars = {each["name"] for each in filter(_is_sidecar, pod.get("spec", {}).get("initContainers") or ())}
    failed = [(name, ended) for name, ended in _list_terminated(pod) if ended.get("exitCode")]
    return min(failed, key=lambda each: (each[0] in sidecars, each[1].get("finishedAt") or ""), default=None)


def _health(pod: Json) -> str:
    """Return ``+`` for ready, ``-`` for no longer ready; empty without checks, or while the result is unknown."""
    containers: list[Json] = pod.get("spec", {}).get("containers") or []
    if phase(pod) != "Running" or not any("readinessProbe" in container for container in containers):
        return ""
    ready = _condition(pod, "Ready")
    if ready.get("status") == "True":
        return "+"
    starts = [state["running"].get("startedAt", "") for _, state in _statuses(pod) if "running" in state]
    # Ready is False from the creation on, which is meaningless until the first success of the check.
    return "-" if starts and ready.get("lastTransitionTime", "") > max(starts) else ""


def _has_several(pod: Json) -> bool:
    spec = pod.get("spec", {})
    return len(spec.get("containers") or ()) + len(spec.get("initContainers") or ()) > 1


def _steps(pod: Json) -> str:
    """Return the progress of several containers: the first letters of their states."""
    if not _has_several(pod):
        return ""
    return " " + "".join(next(iter(state), "waiting")[0] for _, state in _statuses(pod))


def _containers(pod: Json) -> tuple[ContainerStatus, ...]:
    """Return the statuses of a pod's containers if it has several."""
    if not _has_several(pod):
        return ()
    inits = {container["name"] for container in pod["spec"].get("initContainers") or ()}
    return tuple(_container(name, state, name in inits) for name, state in _statuses(pod))


def _container(name: str, state: Json, is_init: bool) -> ContainerStatus:
    if running := state.get("running"):
        began_ns = _nanoseconds(_seconds(running.get("startedAt", "")))
        return ContainerStatus(name, ContainerState.RUNNING, is_init, started_ns=began_ns)
    ended = state.get("terminated")
    details = ended or state.get("waiting") or {}
    reason, message = details.get("reason", ""), details.get("message", "")[:MESSAGE_MAX]
    if ended is None:
        return ContainerStatus(name, ContainerState.PENDING, is_init, reason, message)
    code = int(ended.get("exitCode", 0))
    times = [_nanoseconds(_seconds(ended.get(key) or "")) for key in ("startedAt", "finishedAt")]
    result = ContainerState.FAILED if code else ContainerState.SUCCEEDED
    return ContainerStatus(
        name, result, is_init, reason, message, exit_code=code, started_ns=times[0], completed_ns=times[1]
    )


def _shown_wait(pod: Json) -> tuple[str, Json] | None:
    """Return the first container whose wait may be endless."""
    if phase(pod) != "Pending":
        return None
    return next(((name, each) for name, each in _waiting(pod) if each.get("reason") in SHOWN), None)


def _wait_news(pod: Json) -> str:
    """Return a text that changes with the container and the kind of its wait, but not with each pull, nor with numbers
    in messages."""
    if (found := _shown_wait(pod)) is None:
        return ""
    name, waiting = found
    reason = waiting["reason"]
    return f" {name}: {pull_of(reason, waiting.get('message', '')).value or reason}"


def _wait_words(pod: Json) -> tuple[str, str]:
    """Return reason and message of a wait; empty without one."""
    if (found := _shown_wait(pod)) is None:
        return "", ""
    name, waiting = found
    text = wait_text(waiting["reason"], waiting.get("message", ""))
    return waiting["reason"], (f"container {name}: {text}" if _has_several(pod) else text)[:MESSAGE_MAX]


# -- stored statuses -----------------------------------------------------------------------------------------------


def _pod_status(pod: Json, deleted: bool, kill_asked: bool, host_id: str) -> PodStatus | None:
    """Return None for a pod whose name is no id of a run, and for one that has not started yet."""
    state, cause = _state(pod, deleted, kill_asked)
    pod_id = pod_id_of(pod["metadata"]["name"])
    wait, why = _wait_words(pod)
    if pod_id is None or (state is PodState.LAUNCHED and not wait):
        return None
    if cause is not Cause.NO_ENDING:
        reason, message = _end_words(pod, state, cause, deleted)
        return _make_end(pod, state, cause, message, reason=reason, host_id=host_id, ended_s=read_finished_s(pod))
    health = _health(pod)
    return PodStatus(
        pod_id,
        state,
        _nanoseconds(_seconds(_read_start(pod))) if state is PodState.RUNNING and not health else 0,
        host=pod.get("spec", {}).get("nodeName", ""),
        agent_id=host_id,
        message=why,
        reason=wait or (HEALTH_CHECK_REASON if health else ""),
        healthy=health == "+" if health else None,
        cause=cause,
        containers=_containers(pod),
        waits=bool(wait),
    )


def _make_end(
    pod: Json, state: PodState, cause: Cause, message: str, reason: str, host_id: str, ended_s: float
) -> PodStatus | None:
    pod_id = pod_id_of(pod["metadata"]["name"])
    if pod_id is None:
        return None
    host = pod.get("spec", {}).get("nodeName", "")
    ended_ns, containers = _nanoseconds(ended_s), _containers(pod)
    return PodStatus(
        pod_id,
        state,
        ended_ns,
        host,
        agent_id=host_id,
        message=message,
        reason=reason,
        cause=cause,
        containers=containers,
    )


def _end_words(pod: Json, state: PodState, cause: Cause, deleted: bool) -> tuple[str, str]:
    """Return reason and message of an end."""
    status = pod.get("status", {})
    if state is PodState.SUCCEEDED:
        return "", ""
    if deleted and not is_over(pod):
        reason = _disruption_reason(pod) or "Deleted"
        return reason, f"{FORCED}: {_condition(pod, 'DisruptionTarget').get('message') or cause}"
    failed = _first_failed(pod)
    if status.get("reason"):
        return status["reason"], (status.get("message") or str(cause))[:MESSAGE_MAX]
    reason = _disruption_reason(pod)
    if reason:
        return reason, (_condition(pod, "DisruptionTarget").get("message") or str(cause))[:MESSAGE_MAX]
    if failed is None:
        return "", "Command exited with status 0" if state is PodState.KILLED else str(cause)
    return failed[1].get("reason", ""), _exit_text(pod, *failed)


def _exit_text(pod: Json, name: str, ended: Json) -> str:
    """Return the text in Mesos's wording, from which the exit code and the signal are parsed."""
    code = int(ended["exitCode"])
    text = f"Command exited with status {code}"
    if len(list(_statuses(pod))) > 1:
        text += f" in container {name}"
    if (reason := ended.get("reason", "")) not in ("Error", ""):
        text += f" ({reason})"
    if ended.get("message"):
        text += f": {ended['message'].strip()}"
    number = int(ended.get("signal") or 0) or (code - 128 if 128 < code <= 128 + 31 else 0)
    killer = signal.strsignal(number) if number else None
    # The last part: the text after the word is the signal's name.
    return text[:MESSAGE_MAX] + (f", terminated with signal {killer}" if killer else "")


# -- times ---------------------------------------------------------------------------------------------------------


def _read_start(pod: Json) -> str:
    starts = [state["running"].get("startedAt", "") for _, state in _statuses(pod) if "running" in state]
    return min(filter(None, starts), default="")


def read_finished_s(pod: Json) -> float:
    """Return when the last container ended; 0: unknown."""
    if not is_over(pod):
        return 0.0
    return max((_seconds(ended.get("finishedAt") or "") for _, ended in _list_terminated(pod)), default=0.0)


def _seconds(text: str) -> float:
    """Return seconds since the epoch; 0 for an empty text."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
