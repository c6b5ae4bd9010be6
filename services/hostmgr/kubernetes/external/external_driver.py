"""The driver of a Kubernetes cluster in which other users create pods for Peloton to admit: a launch of such a pod is a
binding or the removal of its gate, and a kill an eviction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from peloton.model.ids import PodId
from peloton.model.job import JobType
from peloton.model.pod import Cause, PodState, PodStatus
from services.hostmgr.driver import DriverEvents, HostLaunch, PodOnHost, PodReport, Token
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.cluster_view import key_of
from services.hostmgr.kubernetes.driver import OVER, PERIODIC_S, REPEAT_S, KubernetesDriver
from services.hostmgr.kubernetes.external.external_pods import CausesOf, ExternalPods, UidsOf
from services.hostmgr.kubernetes.external.external_requests import get_request, is_launched_as, read_answer
from services.hostmgr.kubernetes.external.gate import is_stand_in
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.pods.launches import SCHEDULER_NAME, demand_of
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.suspend.held_owners import HeldOwners, PodsOfHeld
from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds

EXTERNAL_PODS = (
    f"/api/v1/pods?fieldSelector=spec.schedulerName%3D{SCHEDULER_NAME}&labelSelector=%21peloton.io%2Fcluster"
)
"""Pods for Peloton to place; pods that Peloton creates carry the label."""
GATED_PODS = (
    f"/api/v1/pods?fieldSelector=spec.schedulerName%21%3D{SCHEDULER_NAME}"
    "&labelSelector=peloton.io%2Fpool%2C%21peloton.io%2Fcluster"
)
"""Pods of other schedulers with the label of a pool, which the admission policy gives to gated ones."""


class ExternalPodsDriver(KubernetesDriver):
    def __init__(
        self, settings: KubernetesSettings, uids_of: UidsOf, causes_of: CausesOf, refusal: Callable[[], str] = str
    ) -> None:
        super().__init__(settings, refusal)
        gone = self.view.external_pod_gone
        kinds = read_kinds(settings.owner_kinds)
        self._owners = HeldOwners(self.api, self.view.stand_in_placed, kinds, self.view.drop_unseen_pod)
        self.external = ExternalPods(
            self.api,
            settings.cluster,
            self._host_id,
            self._publish,
            uids_of,
            gone=gone,
            fits=self.view.external_pod_fits,
            taints=self.view.taints,
            owners=self._owners,
            causes_of=causes_of,
        )
        self._owners.pass_to(self.external.add_source())
        self.capabilities = replace(self.capabilities, external_pods=self.external)
        of_gated = PodsOfHeld(self._owners, self.external.add_source())
        self._external_news = [
            Reflector(self.api, EXTERNAL_PODS, self.external.add_source()),
            Reflector(self.api, GATED_PODS, of_gated),
        ]
        self._resent_at_s = 0.0

    def start(self, events: DriverEvents) -> None:
        super().start(events)
        for reflector in self._external_news:
            reflector.start()

    def _stop_watching(self) -> None:
        for reflector in self._external_news:
            reflector.stop()
        self._owners.stop()
        super()._stop_watching()

    def _host_id(self, name: str) -> str:
        with self.view.lock:
            node = self.view.ledger.node(name)
        return node.uid if node is not None else ""

    # Launches.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        others = [each for each in launches if _is_external(each)]
        if not others:
            return super().launch(launches)
        return [*super().launch([each for each in launches if not _is_external(each)]), *self._launch(others)]

    def _launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        runs = [pod.pod_id for each in launches for pod in each.pods]
        if not self.is_connected:
            return [(run, OVER) for run in runs]
        pods = self.external.pods_of(runs)
        failed: list[tuple[PodId, str]] = []
        sent: list[tuple[PodId, Json, str]] = []
        with self.view.lock:
            for claim, wanted in launches:
                there = {run.pod_id: pod for run in wanted if (pod := pods.get(run.pod_id))}
                failed += [(pod.pod_id, "its pod is gone") for pod in wanted if pod.pod_id not in there]
                refused = self.view.ledger.use(claim, [(key_of(pod), _demand_of(pod)) for pod in there.values()])
                failed += [(run, refused[key_of(pod)]) for run, pod in there.items() if key_of(pod) in refused]
                sent += [(run, pod, claim.hostname) for run, pod in there.items() if key_of(pod) not in refused]
        self._wake()
        refusals = self.external.launch(sent)
        with self.view.lock:
            for run, pod, _ in sent:
                if run in refusals:
                    self.view.ledger.drop_pod(key_of(pod))
        self._wake()
        return [*failed, *refusals.items()]

    # Pods.

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        own, others = self._split(pods)
        launched = self._confirm_launched(others)
        if own:
            super().kill(own)
        self.external.evict(launched)

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        super().acknowledge(tokens)
        self._publish([report for token in tokens if (report := self.external.acknowledge(token)) is not None])

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        self._check()
        if not pods:
            super().reconcile(pods)
            self._answer(self.external.all_runs())
            return
        own, others = self._split(pods)
        if own:
            super().reconcile(own)
        self._answer(self._confirm_launched(others))

    def _answer(self, runs: Sequence[str]) -> None:
        self._publish([report for run in runs if (report := self.external.answer(run)) is not None])

    def _split(self, pods: Sequence[PodOnHost]) -> tuple[list[PodOnHost], dict[PodId, Json]]:
        """Split runs into pods that Peloton creates, and external ones with their known objects. Raises OSError while
        external pods are not known, and what storage raises."""
        runs = [pod.pod_id for pod in pods]
        others: dict[PodId, Json] = {run: {} for run in runs if self.external.has(str(run))}
        others |= self.external.pods_of([run for run in runs if run not in others])
        return [pod for pod in pods if pod.pod_id not in others], others

    def _confirm_launched(self, others: Mapping[PodId, Json]) -> list[str]:
        """Return the runs that are launched. Asks the apiserver about the others, whose launch may not have arrived;
        runs that were not launched are reported as lost. Raises OSError."""
        launched = [str(run) for run in others if self.external.has(str(run))]
        doubtful = [(run, pod) for run, pod in others.items() if not self.external.has(str(run))]
        asked = [(run, pod) for run, pod in doubtful if pod]
        lost = [_unknown(run) for run, pod in doubtful if not pod]
        for (run, pod), now in zip(asked, self._read_now([pod for _, pod in asked]), strict=True):
            if now and is_launched_as(now, run, pod["metadata"]["uid"]):
                self.external.look(now)
                launched.append(str(run))
                continue
            lost.append(_unknown(run))
            if not now.get("spec", {}).get("nodeName"):
                with self.view.lock:
                    self.view.ledger.drop_pod(key_of(pod))
        self._publish(lost)
        return launched

    def _read_now(self, pods: Sequence[Json]) -> list[Json]:
        """Return the pods as the apiserver has them now; empty for one that is gone. Raises OSError."""
        now = self._owners.read_now([pod for pod in pods if is_stand_in(pod)])
        real = [pod for pod in pods if not is_stand_in(pod)]
        for pod, answer in zip(real, self.api.ask_all([get_request(pod) for pod in real]), strict=True):
            now[pod["metadata"]["uid"]] = read_answer(answer) or {}
        return [now.get(pod["metadata"]["uid"], {}) for pod in pods]

    # Periodic tasks.

    def run_periodic(self) -> None:
        super().run_periodic()
        try:
            self._owners.run_periodic()
        finally:  # an owner whose change is refused stops no eviction
            self._run_external()

    def _run_external(self) -> None:
        self.external.evict_again()
        self.external.put_back_jobs.resume_due()
        now_s = time.monotonic()
        if now_s - self._resent_at_s >= REPEAT_S:
            self._resent_at_s = now_s
            self._publish(self.external.list_unacknowledged())
            self.external.put_back(self._settings.admission_timeout_s)
        self.external.write_events()

    @property
    def next_run_in_s(self) -> float:
        return PERIODIC_S if self.external.has_events else super().next_run_in_s


def _is_external(launch: HostLaunch) -> bool:
    return bool(launch.pods) and launch.pods[0].template.job.type is JobType.EXTERNAL


def _demand_of(pod: Json) -> Demand:
    """Return the demand of a pod that is being launched: it is Peloton's from then on."""
    return demand_of(pod)._replace(is_foreign=False)


def _unknown(run: PodId) -> PodReport:
    """Return the answer for a run without a launched pod."""
    message = "no pod was launched as this run"
    status = PodStatus(run, PodState.LOST, 0, message=message, cause=Cause.NO_ENDING)
    return PodReport(str(run), PodState.LOST.value, lambda: status, is_answer=True)
