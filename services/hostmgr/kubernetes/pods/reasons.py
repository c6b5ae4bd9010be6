"""The reasons that Kubernetes 1.36 gives for the end of a pod, for rejected pods and for pods that cannot start, mapped
to causes. ``peloton/lifecycle/endings.py`` decides which party is responsible for a cause, and whether the pod runs
again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from peloton.model.pod import Cause

OOM_KILLED = "OOMKilled"
OUT_OF = "OutOf"
"""Prefix of the reason of a pod whose node lacks a resource: OutOfcpu, OutOfmemory, OutOfpods, OutOfnvidia.com/gpu."""

CONTAINER_CAUSES: dict[str, Cause] = {
    "Completed": Cause.PROGRAM,
    "Error": Cause.PROGRAM,
    OOM_KILLED: Cause.MEMORY,
    "DeadlineExceeded": Cause.TIME,
    "StartError": Cause.CONTAINER,
    "ContainerCannotRun": Cause.CONTAINER,
    "ContainerStatusUnknown": Cause.EXECUTOR,  # the kubelet found no trace of it any more
}
"""Causes by the reason of a terminated container."""

POD_CAUSES: dict[str, Cause] = {
    "DeadlineExceeded": Cause.TIME,
    "Evicted": Cause.PREEMPTED,  # except when the pod itself used too much
    "Preempting": Cause.PREEMPTED,
    "Terminated": Cause.HOST_DRAINED,
    "Shutdown": Cause.HOST_DRAINED,
    # Rejections by a kubelet: the pod fitted when it was placed, and no longer does.
    "NodeAffinity": Cause.RESOURCES_GONE,
    "NodeName": Cause.RESOURCES_GONE,
    "NodePorts": Cause.RESOURCES_GONE,
    "NodeShutdown": Cause.RESOURCES_GONE,
    "NodeUnschedulable": Cause.RESOURCES_GONE,
    "TaintToleration": Cause.RESOURCES_GONE,
    "TopologyAffinityError": Cause.RESOURCES_GONE,
    "UnexpectedAdmissionError": Cause.RESOURCES_GONE,
    "VolumeAttachmentLimitExceeded": Cause.RESOURCES_GONE,
}
"""Causes by the reason of the pod itself, which it has when the reason of a container would be incomplete."""

OWN_USE = ("ephemeral local storage", "local ephemeral storage", "EmptyDir volume")
"""Texts in eviction messages of pods that exceeded their disk limit."""

DISRUPTIONS: dict[str, Cause] = {
    "EvictionByEvictionAPI": Cause.HOST_DRAINED,
    "DeletionByTaintManager": Cause.HOST_DRAINED,  # of a pod that the node never ended: the node is lost
    "DeletionByPodGC": Cause.HOST_GONE,
    "PreemptionByScheduler": Cause.PREEMPTED,
    "TerminationByKubelet": Cause.PREEMPTED,
}
"""Causes by the reason of the condition DisruptionTarget."""


INVALID_IMAGE_NAME = "InvalidImageName"
PULL_BACK_OFF = "ImagePullBackOff"
PULL_REFUSED_S = 120.0
"""Seconds after which a refusal by a registry, over about four pulls, is permanent: the image was not pushed just
before. Failures that may pass have the timeout for images."""


class Pull(Enum):
    """The state of a pull that a container waits for."""

    NONE = ""  # it waits for something other than a pull
    FAILING = "pull fails"  # the registry cannot be reached, or is overloaded
    REFUSED = "pull refused"  # the registry has no such image, or denies access to it
    UNEXPLAINED = "pull"  # a back-off without a cause from the kubelet; the first state of the others


_BACK_OFF = re.compile(
    r'Back-off pulling image "[^"]*"(?:: (?:ErrImagePull|RegistryUnavailable): (?P<why>.*))?', re.DOTALL
)
_LATER = re.compile(r"toomanyrequests|: (?:429|5\d\d) |i/o timeout|no such host|connection refused", re.IGNORECASE)
"""Patterns in messages of containerd and CRI-O about pulls that may succeed later, whatever the rest of the message."""
_REFUSED = re.compile(
    r": not found\b|: 40[134] |pull access denied|insufficient_scope|authorization failed|manifest unknown"
    r"|\bunauthorized: |\bdenied: |access to the resource is denied|authentication required|no basic auth credentials",
    re.IGNORECASE,
)
_PULLS = frozenset(("ErrImagePull", PULL_BACK_OFF, "RegistryUnavailable"))


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """The maximum wait of a pod for a reason: the timeout for images, or ``at_most_s`` if that is less."""

    at_most_s: float = float("inf")

    def seconds(self, image_timeout_s: float) -> float:
        return min(self.at_most_s, image_timeout_s)


WAIT_LIMITS: dict[str, WaitLimit] = {
    INVALID_IMAGE_NAME: WaitLimit(0.0),
    "ErrImageNeverPull": WaitLimit(0.0),
    "ImageInspectError": WaitLimit(),
    "ErrImagePull": WaitLimit(),
    "ImagePullBackOff": WaitLimit(),
    "RegistryUnavailable": WaitLimit(),
    "SignatureValidationFailed": WaitLimit(),
    "CreateContainerConfigError": WaitLimit(60.0),  # a missing Secret
    "CreateContainerError": WaitLimit(60.0),
    "CreatePodSandboxError": WaitLimit(),
    "RunContainerError": WaitLimit(60.0),
    "PreCreateHookError": WaitLimit(60.0),
    "PreStartHookError": WaitLimit(60.0),
}
"""Maximum waits by the reason of a waiting container. Other reasons (ContainerCreating, PodInitializing) mean that it
is starting."""
SHOWN = WAIT_LIMITS.keys() | {"CrashLoopBackOff"}
"""Reasons of waits that are shown as the pod's; the last one is a sidecar's, which may wait indefinitely."""


def pull_of(reason: str, message: str) -> Pull:
    if reason not in _PULLS:
        return Pull.NONE
    back_off = _BACK_OFF.fullmatch(message) if reason == PULL_BACK_OFF else None
    if back_off and back_off["why"] is None:
        return Pull.UNEXPLAINED
    return Pull.REFUSED if _REFUSED.search(message) and not _LATER.search(message) else Pull.FAILING


def wait_text(reason: str, message: str) -> str:
    """Return the message of a wait; a back-off has the message of the pull before it."""
    back_off = _BACK_OFF.fullmatch(message) if reason == PULL_BACK_OFF else None
    return (back_off and back_off["why"]) or message or reason


_INVALID = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_QUOTA = re.compile(r"(?<![\w-])quota(?![\w-])")
"""The word itself, not a part of a name: webhooks also reject for quotas."""


def container_cause(reason: str) -> Cause:
    """Return the cause; an unknown reason, as of a later Kubernetes, counts as no reason."""
    return CONTAINER_CAUSES.get(reason, Cause.PROGRAM)


def pod_cause(reason: str, message: str) -> Cause | None:
    """Return the cause; None when the reason is a container's."""
    if reason.startswith(OUT_OF):
        return Cause.RESOURCES_GONE
    if reason == "Evicted" and any(text in message for text in OWN_USE):
        return Cause.DISK
    return POD_CAUSES.get(reason)


def refusal_cause(http_status: int, message: str) -> Cause:
    """Return the cause of an apiserver's rejection of a pod. A pod that a quota forbids now may be allowed later."""
    is_invalid = http_status in _INVALID and not _QUOTA.search(message)
    return Cause.INVALID if is_invalid else Cause.RESOURCES_GONE
