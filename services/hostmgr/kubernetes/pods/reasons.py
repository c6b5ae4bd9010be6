"""The reasons that Kubernetes 1.36 gives for the end of a pod, and for pods that it does not take or cannot start, as
our causes. Who answers for a cause, and whether the pod runs again, is in ``peloton/lifecycle/endings.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from peloton.model.pod import Cause

OOM_KILLED = "OOMKilled"
OUT_OF = "OutOf"
"""Begins the reason of a pod whose node lacks something: OutOfcpu, OutOfmemory, OutOfpods, OutOfnvidia.com/gpu."""

CONTAINER_CAUSES: dict[str, Cause] = {
    "Completed": Cause.PROGRAM,
    "Error": Cause.PROGRAM,
    OOM_KILLED: Cause.MEMORY,
    "DeadlineExceeded": Cause.TIME,
    "StartError": Cause.CONTAINER,
    "ContainerCannotRun": Cause.CONTAINER,
    "ContainerStatusUnknown": Cause.EXECUTOR,  # the kubelet found no trace of it any more
}
"""By the reason of a container that has terminated."""

POD_CAUSES: dict[str, Cause] = {
    "DeadlineExceeded": Cause.TIME,
    "Evicted": Cause.PREEMPTED,  # except when the pod itself used too much
    "Preempting": Cause.PREEMPTED,
    "Terminated": Cause.HOST_DRAINED,
    "Shutdown": Cause.HOST_DRAINED,
    # A kubelet's refusals: what fitted when the pod was placed does not fit any more.
    "NodeAffinity": Cause.ROOM_GONE,
    "NodeName": Cause.ROOM_GONE,
    "NodePorts": Cause.ROOM_GONE,
    "NodeShutdown": Cause.ROOM_GONE,
    "NodeUnschedulable": Cause.ROOM_GONE,
    "TaintToleration": Cause.ROOM_GONE,
    "TopologyAffinityError": Cause.ROOM_GONE,
    "UnexpectedAdmissionError": Cause.ROOM_GONE,
    "VolumeAttachmentLimitExceeded": Cause.ROOM_GONE,
}
"""By the reason of the pod itself, which it has when a container's would not say all."""

OWN_USE = ("ephemeral local storage", "local ephemeral storage", "EmptyDir volume")
"""In messages of evictions of pods that used more of their disk than they may."""

DISRUPTIONS: dict[str, Cause] = {
    "EvictionByEvictionAPI": Cause.HOST_DRAINED,
    "DeletionByTaintManager": Cause.HOST_DRAINED,  # of a pod that the node never ended: the node is lost
    "DeletionByPodGC": Cause.HOST_GONE,
    "PreemptionByScheduler": Cause.PREEMPTED,
    "TerminationByKubelet": Cause.PREEMPTED,
}
"""By the reason of the condition DisruptionTarget."""


INVALID_IMAGE_NAME = "InvalidImageName"
PULL_BACK_OFF = "ImagePullBackOff"
PULL_REFUSED_S = 120.0
"""A registry that refuses an image for so long, over about four pulls, refuses it for ever: it was not pushed a moment
ago. Failures that may pass have the time-out for images."""


class Pull(Enum):
    """The state of a pull that a container waits for."""

    NONE = ""  # it waits for something else
    FAILING = "pull fails"  # the registry cannot be reached, or is too busy
    REFUSED = "pull refused"  # the registry has no such image, or does not give it to us
    UNTOLD = "pull"  # a back-off of which the kubelet does not say the cause; the start of the others


_BACK_OFF = re.compile(
    r'Back-off pulling image "[^"]*"(?:: (?:ErrImagePull|RegistryUnavailable): (?P<why>.*))?', re.DOTALL
)
_LATER = re.compile(r"toomanyrequests|: (?:429|5\d\d) |i/o timeout|no such host|connection refused", re.IGNORECASE)
"""In messages of containerd and CRI-O about pulls that may succeed later, whatever else they say."""
_REFUSED = re.compile(
    r": not found\b|: 40[134] |pull access denied|insufficient_scope|authorization failed|manifest unknown"
    r"|\bunauthorized: |\bdenied: |access to the resource is denied|authentication required|no basic auth credentials",
    re.IGNORECASE,
)
_PULLS = frozenset(("ErrImagePull", PULL_BACK_OFF, "RegistryUnavailable"))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a pod may wait for a reason: the time-out for images, or ``at_most_s`` if that is less."""

    at_most_s: float = float("inf")

    def seconds(self, image_timeout_s: float) -> float:
        return min(self.at_most_s, image_timeout_s)


PATIENCE: dict[str, Patience] = {
    INVALID_IMAGE_NAME: Patience(0.0),
    "ErrImageNeverPull": Patience(0.0),
    "ImageInspectError": Patience(),
    "ErrImagePull": Patience(),
    "ImagePullBackOff": Patience(),
    "RegistryUnavailable": Patience(),
    "SignatureValidationFailed": Patience(),
    "CreateContainerConfigError": Patience(60.0),  # a Secret that is not there
    "CreateContainerError": Patience(60.0),
    "CreatePodSandboxError": Patience(),
    "RunContainerError": Patience(60.0),
    "PreCreateHookError": Patience(60.0),
    "PreStartHookError": Patience(60.0),
}
"""By the reason of a container that waits. Others (ContainerCreating, PodInitializing) say that it is being started."""
SHOWN = PATIENCE.keys() | {"CrashLoopBackOff"}
"""Reasons of waits that become the pod's own; the last one is that of a sidecar, which may wait for any time."""


def pull_of(reason: str, message: str) -> Pull:
    if reason not in _PULLS:
        return Pull.NONE
    back_off = _BACK_OFF.fullmatch(message) if reason == PULL_BACK_OFF else None
    if back_off and back_off["why"] is None:
        return Pull.UNTOLD
    return Pull.REFUSED if _REFUSED.search(message) and not _LATER.search(message) else Pull.FAILING


def wait_text(reason: str, message: str) -> str:
    """The message of a wait; a back-off has that of the pull before it."""
    back_off = _BACK_OFF.fullmatch(message) if reason == PULL_BACK_OFF else None
    return (back_off and back_off["why"]) or message or reason


_INVALID = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_QUOTA = re.compile(r"(?<![\w-])quota(?![\w-])")
"""The word, and not a part of a name: webhooks refuse for quotas, too."""


def container_cause(reason: str) -> Cause:
    """Reasons of a later Kubernetes count as none."""
    return CONTAINER_CAUSES.get(reason, Cause.PROGRAM)


def pod_cause(reason: str, message: str) -> Cause | None:
    """None: the reason is that of a container."""
    if reason.startswith(OUT_OF):
        return Cause.ROOM_GONE
    if reason == "Evicted" and any(text in message for text in OWN_USE):
        return Cause.DISK
    return POD_CAUSES.get(reason)


def refusal_cause(http_status: int, message: str) -> Cause:
    """Of an apiserver that does not take a pod. What a quota forbids now may be allowed later."""
    is_invalid = http_status in _INVALID and not _QUOTA.search(message)
    return Cause.INVALID if is_invalid else Cause.ROOM_GONE
