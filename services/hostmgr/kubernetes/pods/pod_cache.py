"""Peloton's pods, and the unacknowledged reports of each.

Kubernetes shows states and has no acknowledgements. So the book keeps the reports of a pod in their order until each is
acknowledged, even if the pod is gone by then. The module has no threads and no requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from peloton.model.ids import PodId
from peloton.model.pod import TERMINAL, Cause, PodState, PodStatus
from services.hostmgr.driver import PodReport
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pods.statuses import (
    find_refused_since,
    is_over,
    phase,
    pod_id_of,
    read_finished_s,
    report_of,
    stuck,
)

_ENDS = frozenset(state.value for state in TERMINAL)
_WAITING = PodState.LAUNCHED.value


@dataclass(slots=True)
class OwnPod:
    name: str
    uid: str
    node: str
    host_id: str
    pod: Json  # the newest object; empty for a pod that the apiserver rejected
    reports: deque[PodReport] = field(default_factory=deque)  # unacknowledged; the first one is delivered
    last: str = _WAITING  # state, health and wait of the last report
    refused_s: float = 0.0  # since when a registry has refused an image of it, 0 = none has
    has_run: bool = False
    has_ended: bool = False  # its end is reported
    is_stored: bool = False  # its end is acknowledged
    is_gone: bool = False  # the object no longer exists
    is_kill_asked: bool = False

    @property
    def is_over(self) -> bool:
        return bool(self.pod) and is_over(self.pod)

    @property
    def is_leaving(self) -> bool:
        """Return whether its deletion has started."""
        return bool(self.pod) and "deletionTimestamp" in self.pod["metadata"]


class Stored(NamedTuple):
    """A pod whose end is acknowledged."""

    pod: OwnPod
    ended_s: float  # since the epoch, 0 = unknown


class PodCache:
    """The pods. Not thread-safe: its owner has a lock, and delivers the reports that methods return."""

    def __init__(self) -> None:
        self.pods: dict[str, OwnPod] = {}
        self._on_node: dict[str, set[str]] = {}
        self._unacknowledged: dict[str, None] = {}  # pods with unacknowledged reports, the oldest first
        self._waiting: dict[str, None] = {}  # pods that wait for their containers
        self._kills: set[str] = set()  # pods to be killed that have not been seen yet

    # Events of the watch.

    def record_state(
        self, pod: Json, host_id: str, is_deleted: bool = False, is_listed: bool = False, may_move: bool = False
    ) -> PodReport | None:
        """Record a watched state. ``is_listed``: the pod was in this state before the watch started. A predecessor may
        have reported its start, so for a pod that has ended only the end is reported. ``may_move``: the node was a
        provisional one until a scheduler has bound the pod."""
        meta, node = pod["metadata"], pod.get("spec", {}).get("nodeName", "")
        name, uid = meta["name"], meta["uid"]
        own = self.pods.get(name)
        if own is None or (own.uid != uid and not is_deleted):
            own = self._put(OwnPod(name, uid, node, host_id, pod, is_kill_asked=name in self._kills))
            own.has_run = is_listed
        if own.uid != uid:
            return None  # the end of an object that another one has replaced
        own.pod = pod
        is_moved = may_move and bool(node) and own.node != node
        if is_moved:
            self._move(own, node, host_id)
        own.is_gone |= is_deleted
        if phase(pod) == "Pending" and not own.is_gone:
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)
        if own.has_ended:
            self._forget_if_done(own)
            return None
        report = report_of(pod, own.is_gone, own.is_kill_asked, own.host_id)
        *_, state = report.token
        if state == _WAITING and is_moved:
            return self._note(own, _report(own, PodState.LAUNCHED, 0, "", "", Cause.NO_ENDING))
        if state == _WAITING or own.last.startswith(state):  # no change since the last report
            return None
        own.last = state
        if report.state_text in _ENDS and not own.has_run and (began_ns := _began_ns(pod)):
            first = self._note(own, _running(own, began_ns))
            self._note(own, report)
            return first
        return self._note(own, report)

    def keep(self, there: Collection[str]) -> list[PodReport]:
        """Record all other pods as gone."""
        gone = [own for own in self.pods.values() if own.pod and own.name not in there]
        return [report for own in gone if (report := self.record_state(own.pod, own.host_id, is_deleted=True))]

    def end(self, name: str, state: PodState, cause: Cause, reason: str, message: str, now_ns: int) -> PodReport | None:
        """Report an end that the object does not show."""
        own = self.pods.get(name)
        if own is None or own.has_ended:
            return None
        return self._note(own, _report(own, state, now_ns, reason, message, cause))

    def report_refused(self, pod_id: PodId, node: str, host_id: str, message: str, now_ns: int) -> PodReport | None:
        """Report a pod that the apiserver rejects permanently."""
        own = self._put(OwnPod(str(pod_id), "", node, host_id, {}, is_gone=True))
        return self.end(own.name, PodState.FAILED, Cause.INVALID, "Invalid", message, now_ns)

    def stuck(self, now_s: float, image_timeout_s: float) -> list[PodReport]:
        """Return reports of the ends of pods whose containers cannot start."""
        found = []
        for name in list(self._waiting):
            own = self.pods[name]
            if own.has_ended:
                del self._waiting[name]
                continue
            if own.last == _WAITING:  # being started: no container has reported a wait that may be endless
                continue
            own.refused_s = find_refused_since(own.pod, own.refused_s, now_s)
            report = stuck(own.pod, now_s, image_timeout_s, own.host_id, own.refused_s)
            if report and (first := self._note(own, report)):
                found.append(first)
        return found

    def waiting(self, since_s: float) -> list[OwnPod]:
        """Return the pods that have waited for their containers since then, or for longer."""
        own = (self.pods[name] for name in self._waiting)
        return [
            one for one in own if not one.has_ended and not one.is_leaving and 0 < _read_accepted_s(one.pod) <= since_s
        ]

    def kill_asked(self, name: str) -> None:
        """Record a kill, for a pod that has not been seen yet until ``forget_kill``."""
        if (own := self.pods.get(name)) is not None:
            own.is_kill_asked = True
        else:
            self._kills.add(name)

    def forget_kill(self, name: str) -> None:
        self._kills.discard(name)

    # Reports.

    def _note(self, own: OwnPod, report: PodReport) -> PodReport | None:
        """Queue a report; return it if no earlier one is unacknowledged."""
        own.reports.append(report)
        own.has_run |= report.state_text == PodState.RUNNING.value
        own.has_ended |= report.state_text in _ENDS
        self._unacknowledged[own.name] = None
        return report if len(own.reports) == 1 else None

    def acknowledge(self, token: tuple[str, ...]) -> tuple[PodReport | None, Stored | None]:
        """Acknowledge a report; return the next one, or the pod whose end was acknowledged."""
        own = self.pods.get(token[1])
        if own is None or not own.reports or own.reports[0].token != token:
            return None, None
        report = own.reports.popleft()
        if own.reports:
            return own.reports[0], None
        del self._unacknowledged[own.name]
        if report.state_text not in _ENDS:
            return None, None
        own.is_stored = True
        self._forget_if_done(own)
        return None, Stored(own, read_finished_s(own.pod))

    def list_unacknowledged(self) -> list[PodReport]:
        return [self.pods[name].reports[0] for name in self._unacknowledged]

    def answer(self, name: str) -> PodReport | None:
        """Return the answer to reconciliation; None for an unknown pod."""
        own = self.pods.get(name)
        if own is None:
            return None
        if own.reports:  # later reports follow its acknowledgement
            first = own.reports[0]
            return PodReport(first.pod, first.state_text, first.read, is_answer=True)
        report = report_of(own.pod, own.is_gone, own.is_kill_asked, own.host_id)
        return PodReport(report.pod, report.state_text, report.read, is_answer=True)

    # Queries.

    def on_node(self, node: str) -> list[OwnPod]:
        return [self.pods[name] for name in sorted(self._on_node.get(node, ()))]

    def nodes(self) -> Iterator[str]:
        """Yield the nodes with Peloton's pods."""
        return iter(list(self._on_node))

    def _move(self, own: OwnPod, node: str, host_id: str) -> None:
        """Record that a scheduler has bound the pod to another node than the one where it was to fit."""
        self._leave_node(own)
        own.node, own.host_id = node, host_id
        self._on_node.setdefault(node, set()).add(own.name)

    def _leave_node(self, own: OwnPod) -> None:
        names = self._on_node[own.node]
        names.discard(own.name)
        if not names:
            del self._on_node[own.node]

    def _put(self, own: OwnPod) -> OwnPod:
        if (before := self.pods.get(own.name)) is not None:
            self._forget(before)
        self.pods[own.name] = own
        self._kills.discard(own.name)
        self._on_node.setdefault(own.node, set()).add(own.name)
        return own

    def _forget_if_done(self, own: OwnPod) -> None:
        if own.is_gone and own.is_stored:
            self._forget(own)

    def _forget(self, own: OwnPod) -> None:
        del self.pods[own.name]
        self._unacknowledged.pop(own.name, None)
        self._waiting.pop(own.name, None)
        self._leave_node(own)


def _read_accepted_s(pod: Json) -> float:
    """Return when its kubelet accepted the pod, since the epoch; 0: not yet."""
    text = pod.get("status", {}).get("startTime")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _began_ns(pod: Json) -> int:
    """Return when the first of its ended containers had started; 0: none had."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    ended = (entry.get("state", {}).get("terminated") or {} for entry in statuses)
    texts = [text for each in ended if (text := each.get("startedAt") or "") and not text.startswith("1970-01-01")]
    return int(datetime.fromisoformat(min(texts)).timestamp() * 1e9) if texts else 0


def _running(own: OwnPod, began_ns: int) -> PodReport:
    """Return a report that the pod was running, for a pod that had ended when it was seen."""
    return _report(own, PodState.RUNNING, began_ns, "", "", Cause.NO_ENDING)


def _report(own: OwnPod, state: PodState, time_ns: int, reason: str, message: str, cause: Cause) -> PodReport:
    pod_id = pod_id_of(own.name)
    status = None
    if pod_id is not None:
        status = PodStatus(
            pod_id, state, time_ns, own.node, agent_id=own.host_id, message=message, reason=reason, cause=cause
        )
    return PodReport(own.name, state.value, lambda: status, ("", own.name, own.uid, f"{state.value}!"))
