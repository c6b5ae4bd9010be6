"""Kills, acknowledgements and queries of pods, and the deletion of pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http import HTTPStatus

from peloton.model.ids import PodId
from peloton.model.pod import Cause, PodState, PodStatus
from services.hostmgr.driver import PodOnHost, PodReport, Token
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Request, fault_of
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.pods.pod_cache import Stored
from services.hostmgr.kubernetes.pods.removals import Removal, Removals, delete_request
from services.hostmgr.kubernetes.settings import KubernetesSettings

DELETED_BY_NODE_S = 5.0
"""Seconds within which a kubelet deletes a pod that it has ended on request."""
REMOVAL_RETRY_S = 5.0
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Answers to a deletion: the pod is gone, or its name belongs to a later pod."""


class Deletions:
    """Deletes pods. Any thread may call. Each pod is deleted by its uid once it has been seen, so that no other pod
    with its name is deleted."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        view: ClusterView,
        publish: Callable[[Sequence[PodReport]], None],
    ) -> None:
        self._api, self._view, self._publish = api, view, publish
        self._namespace = settings.namespace
        self._log_retention_s = settings.log_retention_s
        self._removals = Removals()
        self._kill_after: set[str] = set()  # pods being created, to be killed once their creation ends

    # Kills.

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        """Kill pods. Raises OSError when it is unknown whether all are being deleted."""
        view, deletions = self._view, []
        reports: list[PodReport] = []
        with view.lock:
            for name in dict.fromkeys(str(pod.pod_id) for pod in pods):
                own = view.own(name)
                view.cache.kill_asked(name)
                if own is None and name in view.creating:
                    self._kill_after.add(name)
                elif own is None:
                    deletions.append((name, ""))
                elif own.has_ended:
                    answer = view.cache.answer(name)
                    reports += [answer] if answer is not None else []
                elif not own.is_leaving:
                    deletions.append((name, own.uid))
        self._publish(reports)
        self._delete(deletions)

    def end_creation(self, names: Sequence[str]) -> None:
        """Handle the end of the creation of pods. Raises OSError when a pod that must end may stay alive."""
        with self._view.lock:
            self._view.creating.difference_update(names)
            kills = sorted(self._kill_after.intersection(names))
            self._kill_after.difference_update(kills)
        self._delete([(name, "") for name in kills])

    def _delete(self, pods: Sequence[tuple[str, str]]) -> None:
        answers = self._api.ask_all([delete_request(self._namespace, name, uid) for name, uid in pods])
        failed: list[str] = []
        absent: list[str] = []
        for (name, uid), answer in zip(pods, answers, strict=True):
            if why := fault_of(answer, *_GONE):
                failed.append(why)
            elif isinstance(answer, Answer) and answer.status == HTTPStatus.NOT_FOUND:
                absent += [] if uid else [name]  # the watch shows the end of a pod that existed
        self._report_absent(absent)
        if failed:
            raise OSError(f"{len(failed)} of {len(pods)} pods not deleted: {failed[0]}")

    # Queries.

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        """Answer from the watched state; only pods that were launched and not seen yet are read directly."""
        view = self._view
        reports: list[PodReport] = []
        doubtful: list[str] = []
        with view.lock:
            names = [str(pod.pod_id) for pod in pods] or [o.name for o in view.cache.pods.values() if not o.is_stored]
            for name in names:
                if (answer := view.cache.answer(name)) is not None:
                    reports.append(answer)
                elif view.ledger.is_expected(view.key(name)):
                    doubtful.append(name)
                else:
                    reports.append(_unknown(name))
        self._publish(reports)
        self.confirm(doubtful)

    def confirm(self, names: Sequence[str]) -> None:
        """Read pods directly, and reports them. Raises OSError."""
        for name, found in zip(names, self.fetch(names), strict=True):
            if isinstance(found, OSError):
                raise found
            if found is not None:
                self._view.pod_found(found)
            else:
                self._report_absent([name])

    def fetch(self, names: Sequence[str]) -> list[Json | OSError | None]:
        """Read pods directly; None for each that does not exist."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        found: list[Json | OSError | None] = []
        for answer in self._api.ask_all([Request("GET", f"{path}/{name}") for name in names]):
            if isinstance(answer, OSError):
                found.append(answer)
            elif answer.status == HTTPStatus.NOT_FOUND:
                found.append(None)
            else:
                found.append(answer.json() if answer.is_ok else OSError(answer.message))
        return found

    def _report_absent(self, names: Sequence[str]) -> None:
        """Report pods that do not exist by an answer of the apiserver."""
        view, reports = self._view, []
        with view.lock:
            for name in names:
                if view.own(name) is None and name not in view.creating:
                    view.ledger.drop_pod(view.key(name))
                    view.unconfirmed.discard(name)
                    view.cache.forget_kill(name)
                    reports.append(_unknown(name))
        self._publish(reports)

    # Acknowledgements, and the deletion of pods whose end is stored.

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        reports = []
        with self._view.lock:
            for token in tokens:
                report, stored = self._view.cache.acknowledge(token)
                reports += [report] if report is not None else []
                if stored is not None and (removal := self._removal_of(stored)) is not None:
                    self._removals.add(removal)
        self._publish(reports)

    def _removal_of(self, stored: Stored) -> Removal | None:
        """Return the removal of a pod whose end is stored. The caller holds the lock."""
        own, ended_s = stored
        if own.is_gone:
            return None
        now_s = time.time()
        if not own.is_over:  # lost, or never to start: it has no more output to read
            return Removal(now_s, own.name, own.uid, is_forced=not self._view.is_node_there(own.node))
        if own.is_leaving:
            return Removal(now_s + DELETED_BY_NODE_S, own.name, own.uid)
        return Removal(min(ended_s or now_s, now_s) + self._log_retention_s, own.name, own.uid)

    def run_periodic(self) -> None:
        """Delete due pods, and read pods that may not exist. Raises OSError."""
        view = self._view
        with view.lock:
            doubtful = sorted(view.unconfirmed - view.creating)
            view.unconfirmed.difference_update(doubtful)
            due = self._removals.take(time.time())
        try:
            self.confirm(doubtful)
        except OSError:
            with view.lock:
                view.unconfirmed.update(doubtful)
            raise
        finally:
            self._remove(due)

    def _remove(self, due: Sequence[Removal]) -> None:
        with self._view.lock:
            there = [each for each in due if (own := self._view.own(each.name)) is not None and own.uid == each.uid]
        requests = [delete_request(self._namespace, each.name, each.uid, each.is_forced) for each in there]
        answers = self._api.ask_all(requests)
        again = [each for each, answer in zip(there, answers, strict=True) if fault_of(answer, *_GONE)]
        with self._view.lock:
            for each in again:
                self._removals.add(each._replace(due_s=time.time() + REMOVAL_RETRY_S))

    @property
    def due_in_s(self) -> float:
        with self._view.lock:
            return 0.0 if self._view.unconfirmed else self._removals.due_in_s(time.time())


def _unknown(name: str) -> PodReport:
    """Return the answer for a pod that is unknown to the cluster."""

    def read() -> PodStatus:
        message = "the cluster does not know the pod"
        return PodStatus(PodId.parse(name), PodState.LOST, 0, message=message, cause=Cause.NO_ENDING)

    return PodReport(name, PodState.LOST.value, read, is_answer=True)
