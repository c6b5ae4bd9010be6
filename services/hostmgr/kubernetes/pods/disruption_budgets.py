"""PodDisruptionBudgets of services, so that `kubectl drain` respects their SLAs.

Pods without a Kubernetes controller require a whole number in ``minAvailable``. There is one budget for each service
with a limit and with pods in the cluster; only differences are written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from urllib.parse import quote

import orjson

from peloton.model.ids import JobId
from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, Answer, ApiServer, Json, Refused, Request, fault_of
from services.hostmgr.kubernetes.settings import CLUSTER_LABEL, JOB_LABEL, KubernetesSettings, own_name

CHANGES_MAX = 500
"""Limit per call; the next call continues."""
PAGE = 500
RELIST_S = 300.0
"""Seconds between lists, as other users may change or delete budgets."""
FORBIDDEN_REST_S = 300.0
"""Seconds of pause after a 403."""

Change = tuple[str, int | None, Request]
"""A change of a job's budget: its number, None for no budget."""


class DisruptionBudgets:
    """Budgets of one cluster. Used by one thread at a time."""

    def __init__(
        self, api: ApiServer, settings: KubernetesSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._cluster, self._clock = api, settings.cluster, clock
        self._path = f"/apis/policy/v1/namespaces/{settings.namespace}/poddisruptionbudgets"
        self._known: dict[str, int] = {}  # job -> number, as in the cluster
        self._list_at_s = self._rests_until_s = float("-inf")

    def set(self, minimums: Mapping[JobId, int]) -> None:
        """Write at most CHANGES_MAX differences; none for a while after a 403. Raises OSError."""
        now_s = self._clock()
        if now_s < self._rests_until_s:
            return
        if now_s >= self._list_at_s:
            self._known = self._list()
            self._list_at_s = now_s + RELIST_S
        changes = list(islice(self._changes(minimums), CHANGES_MAX))
        answers = self._api.ask_all([request for *_, request in changes])
        failed = [
            why
            for (job_id, number, _), answer in zip(changes, answers, strict=True)
            if (why := self._note(job_id, number, answer))
        ]
        if failed:
            raise OSError(f"{len(failed)} of {len(changes)} changes were not made: {failed[0]}")

    def _changes(self, minimums: Mapping[JobId, int]) -> Iterator[Change]:
        for job_id, number in minimums.items():
            known = self._known.get(job_id)
            if known is None:
                yield job_id, number, Request("POST", self._path, orjson.dumps(self._body(job_id, number)))
            elif known != number:
                patch = orjson.dumps({"spec": {"minAvailable": number, "maxUnavailable": None}})
                yield job_id, number, Request("PATCH", f"{self._path}/{self._name(job_id)}", patch, MERGE_PATCH)
        for ended in sorted(self._known.keys() - minimums.keys()):
            yield ended, None, Request("DELETE", f"{self._path}/{self._name(ended)}")

    def _name(self, job_id: str) -> str:
        return f"{own_name(self._cluster)}-{job_id}"

    def _body(self, job_id: str, number: int) -> Json:
        labels = {CLUSTER_LABEL: self._cluster, JOB_LABEL: job_id}
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": self._name(job_id), "labels": labels},
            "spec": {
                "minAvailable": number,
                "selector": {"matchLabels": labels},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",  # a pod that is unhealthy may be evicted
            },
        }

    def _note(self, job_id: str, number: int | None, answer: Answer | OSError) -> str:
        """Record the result of a change; return why it failed, or empty."""
        fine = () if number is not None else (HTTPStatus.NOT_FOUND,)
        if why := fault_of(answer, *fine):
            self._list_at_s = float("-inf")  # it may have been made, or another user has created or deleted it
            if isinstance(answer, Answer):
                self._rest_if_forbidden(answer)
            return why
        self._known.pop(job_id, None)
        if number is not None:
            self._known[job_id] = number
        return ""

    def _rest_if_forbidden(self, answer: Answer) -> None:
        if answer.status == HTTPStatus.FORBIDDEN:
            self._rests_until_s = self._clock() + FORBIDDEN_REST_S

    def _list(self) -> dict[str, int]:
        """Return Peloton's budgets in the cluster by job. A ``minAvailable`` that is no number counts as -1."""
        selector = quote(f"{CLUSTER_LABEL}={self._cluster},{JOB_LABEL}", safe="")
        found: dict[str, int] = {}
        try:
            for _, items in pages(self._api, f"{self._path}?labelSelector={selector}", PAGE):
                for item in items:
                    number = item["spec"].get("minAvailable")
                    found[item["metadata"]["labels"][JOB_LABEL]] = number if isinstance(number, int) else -1
        except Refused as refused:
            self._rest_if_forbidden(refused.answer)
            raise
        return found
