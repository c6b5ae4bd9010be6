"""Launches: the request for a pod, and the meaning of the apiserver's answer."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import NamedTuple
from weakref import WeakKeyDictionary

import orjson

from peloton.model.host_pool import Factors
from peloton.model.pod import Cause
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.apiserver.wire import Answer, Json, Request
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from services.hostmgr.kubernetes.pods.reasons import refusal_cause
from services.hostmgr.kubernetes.pods.statuses import ports, revocable_cpu_milli, sum_occupied
from services.hostmgr.kubernetes.pods.volumes import volume_id_of
from services.hostmgr.kubernetes.preparation import is_unprepared
from services.hostmgr.kubernetes.settings import KubernetesSettings

SCHEDULER_NAME = "peloton"
"""The ``schedulerName`` of every pod of Peloton, and of external pods for Peloton to place."""
RUN = "peloton.io/run-of"
"""Annotation of an external pod that Peloton has bound or admitted: the id of the run."""
HELD = "peloton.io/held-by"
"""Annotation of owners and of pod templates, which the admission policies set: how their pods wait."""
BY_SUSPEND, BY_GATE, BY_OWNER = "suspend", "gate", "owner"
"""Values: the owner is suspended, the pods are gated, or an owner above is held."""


class Outcome(Enum):
    TAKEN = "taken"
    EXISTS = "a pod of this name is there"
    REFUSED = "certainly not taken"
    INVALID = "never to be taken"
    UNKNOWN = "it may have been taken"


class Verdict(NamedTuple):
    outcome: Outcome
    why: str = ""


def verdict_of(answer: Answer | OSError) -> Verdict:
    """Return the result of a POST of a pod. A 5xx may follow after the pod was stored."""
    if isinstance(answer, OSError):
        return Verdict(Outcome.UNKNOWN, str(answer))
    if answer.is_ok:
        return Verdict(Outcome.TAKEN)
    if answer.status == HTTPStatus.CONFLICT and answer.reason == "AlreadyExists":
        return Verdict(Outcome.EXISTS)
    if answer.status >= 500:
        return Verdict(Outcome.UNKNOWN, answer.message)
    if not is_unprepared(answer) and refusal_cause(answer.status, answer.message) is Cause.INVALID:
        return Verdict(Outcome.INVALID, answer.message)
    return Verdict(Outcome.REFUSED, answer.message)


def demand_of(pod: Json) -> Demand:
    """Return the demand of any pod on a node. A pod that another scheduler has bound is foreign, unless Peloton has
    admitted it or its owner."""
    is_bound_by_others = pod.get("spec", {}).get("schedulerName") != SCHEDULER_NAME
    marks = pod["metadata"].get("annotations") or {}
    is_foreign = is_bound_by_others and RUN not in marks and marks.get(HELD) != BY_SUSPEND
    volume = "" if is_bound_by_others else volume_id_of(pod)
    return Demand(sum_occupied(pod), revocable_cpu_milli(pod), tuple(sorted(ports(pod))), is_foreign, volume)


class _Rendered:
    def __init__(self, template: PodTemplate, settings: KubernetesSettings, factors: Factors) -> None:
        self.manifest = PodManifest(template, settings, factors)
        self._demand: Demand | None = None

    def demand(self, pod: PodLaunch) -> Demand:
        """Return the demand, computed from the request so that it equals the watched one."""
        if self._demand is None:
            found = demand_of(orjson.loads(self.manifest.body(pod, "")))
            self._demand = found._replace(ports=tuple(port for port in found.ports if port not in pod.ports))
        found = self._demand
        if pod.volume is not None:
            found = found._replace(volume=pod.volume.volume_id)
        return found._replace(ports=(*found.ports, *pod.ports)) if pod.ports else found


class Manifests:
    """Cached manifests. Used by one thread at a time: the owner has a lock."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._path = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._rendered: WeakKeyDictionary[PodTemplate, dict[Factors, _Rendered]] = WeakKeyDictionary()

    def _render(self, pod: PodLaunch) -> _Rendered:
        known = self._rendered.setdefault(pod.template, {})
        found = known.get(pod.factors)
        if found is None:
            found = known[pod.factors] = _Rendered(pod.template, self._settings, pod.factors)
        return found

    def demand(self, pod: PodLaunch) -> Demand:
        """Return the demand. Raises InvalidArgument for a pod that Kubernetes cannot run."""
        return self._render(pod).demand(pod)

    def request(self, pod: PodLaunch, node: str, is_volume_new: bool) -> Request:
        return Request("POST", self._path, self._render(pod).manifest.body(pod, node, is_volume_new))
