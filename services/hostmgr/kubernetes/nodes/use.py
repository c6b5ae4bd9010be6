"""Resource use of pods, from the kubelet of their node or, where access to kubelets is forbidden, from
metrics.k8s.io."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from peloton.model.ids import PodId
from services.hostmgr.driver import UseSample
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Refused, Request
from services.hostmgr.kubernetes.pods.quantities import MIB, amount

METRICS = "/apis/metrics.k8s.io/v1beta1/pods"
METRICS_AGE_MAX_S = 10.0
"""Maximum age in seconds of the metrics, which are read for all pods at once."""
REFUSAL_KEPT_S = 300.0
"""Seconds for which no kubelet is asked after the apiserver has forbidden it, and none that does not serve
statistics."""
ANSWER_TIMEOUT_S = 10.0
_FORBIDDEN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NOT_SERVED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""Statuses for a rejection that concerns all nodes, and for one of this node's kubelet, which may be a virtual one."""
_ALL = ""
PodKey = tuple[str, str]
"""Namespace and name."""


class _Metric(NamedTuple):
    at_s: float
    cpu_s: float  # since the first sample: the integral of the rates of metrics.k8s.io
    memory_mib: int


class NodeUse:
    """Samples of nodes. Thread-safe."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        pods_on: Callable[[str], Collection[PodKey]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``namespace`` is that of Peloton's pods. ``pods_on`` returns all pods on a node."""
        self._api = api
        self._namespace = namespace
        self._pods_on = pods_on
        self._clock = clock
        self._lock = threading.Lock()
        self._metrics: dict[PodKey, _Metric] = {}
        self._metrics_at_s = float("-inf")
        self._metrics_error: OSError | None = None
        self._refused_until_s: dict[str, float] = {}  # by node; _ALL: for all of them

    def samples_of(self, node: str) -> list[UseSample]:
        """Return samples of all pods on the node. Raises OSError, and ValueError for a malformed answer."""
        if not self._is_refused(node):
            path = f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary"
            answer = self._api.ask(Request("GET", path), ANSWER_TIMEOUT_S)
            if answer.is_ok:
                return self._samples_from_summary(answer.json())
            if answer.status not in (*_FORBIDDEN, *_NOT_SERVED):
                raise Refused(answer)
            self._note_refusal(_ALL if answer.status in _FORBIDDEN else node)
        return self._samples_from_metrics(node)

    def _is_refused(self, node: str) -> bool:
        now_s = self._clock()
        with self._lock:
            return any(self._refused_until_s.get(key, now_s) > now_s for key in (node, _ALL))

    def _note_refusal(self, key: str) -> None:
        now_s = self._clock()
        with self._lock:
            kept = {other: until_s for other, until_s in self._refused_until_s.items() if until_s > now_s}
            self._refused_until_s = {**kept, key: now_s + REFUSAL_KEPT_S}

    def _samples_from_summary(self, summary: Json) -> list[UseSample]:
        try:
            return [self._sample_of_pod(pod) for pod in summary.get("pods") or () if _list_measured(pod)]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a summary of a kubelet that cannot be read: {error!r}") from None

    def _sample_of_pod(self, pod: Json) -> UseSample:
        parts = _list_measured(pod)
        cpu_s = sum(int(part["cpu"]["usageCoreNanoSeconds"]) for part in parts) / 1e9
        at_s = min(_time(part["cpu"]["time"]) for part in parts)
        memory = sum(int((part.get("memory") or {}).get("workingSetBytes") or 0) for part in parts)
        namespace, name = pod["podRef"]["namespace"], pod["podRef"]["name"]
        return UseSample(f"{namespace}/{name}", self._own(namespace, name), cpu_s, at_s, memory // MIB)

    def _samples_from_metrics(self, node: str) -> list[UseSample]:
        with self._lock:
            if self._clock() - self._metrics_at_s >= METRICS_AGE_MAX_S:
                self._read_metrics()
            if self._metrics_error is not None:
                raise self._metrics_error
            metrics = self._metrics
        found = [(key, metrics[key]) for key in self._pods_on(node) if key in metrics]
        return [
            UseSample("/".join(key), self._own(*key), each.cpu_s, each.at_s, each.memory_mib) for key, each in found
        ]

    def _read_metrics(self) -> None:
        """Read the metrics of all pods; an error counts for all nodes as well."""
        try:
            answer = self._api.ask(Request("GET", METRICS), ANSWER_TIMEOUT_S)
            self._metrics_error = None if answer.is_ok else Refused(answer)
        except OSError as error:
            self._metrics_error = error
        if self._metrics_error is not None:
            self._metrics_at_s = self._clock()
            return
        try:
            items = answer.json().get("items") or ()
            self._metrics = {
                (item["metadata"]["namespace"], item["metadata"]["name"]): self._next(item) for item in items
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"metrics of pods that cannot be read: {error!r}") from None
        self._metrics_at_s = self._clock()

    def _next(self, item: Json) -> _Metric:
        """Return the next metric; its rate covers the time since the previous one."""
        at_s = _time(item["timestamp"])
        uses = [container["usage"] for container in item["containers"]]
        cpu = float(sum(amount(use["cpu"]) for use in uses))
        memory_mib = int(sum(amount(use["memory"]) for use in uses)) // MIB
        old = self._metrics.get((item["metadata"]["namespace"], item["metadata"]["name"]))
        if old is None:
            return _Metric(at_s, 0.0, memory_mib)
        return _Metric(at_s, old.cpu_s + cpu * max(at_s - old.at_s, 0.0), memory_mib)

    def _own(self, namespace: str, name: str) -> PodId | None:
        if namespace != self._namespace:
            return None
        try:
            return PodId.parse(name)
        except ValueError:
            return None


def _list_measured(pod: Json) -> list[Json]:
    """Return the measured parts: the pod as a whole, or its containers."""
    parts = [pod] if pod.get("cpu") else pod.get("containers") or []
    return [part for part in parts if (part.get("cpu") or {}).get("usageCoreNanoSeconds") is not None]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
