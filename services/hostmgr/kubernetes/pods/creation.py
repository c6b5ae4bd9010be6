"""Launches: each pod is one POST, bound to its node. Its name makes the request safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from peloton.errors import InvalidArgument
from peloton.model.ids import PodId
from services.hostmgr.driver import HostLaunch, PodLaunch, PodReport
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.pods.deletions import Deletions
from services.hostmgr.kubernetes.pods.launches import Manifests, Outcome, Verdict, verdict_of
from services.hostmgr.kubernetes.pods.volume_folders import NOT_KEPT, VolumeFolders
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import KubernetesSettings

Failed = list[tuple[PodId, str]]


class Creation:
    """Creates pods. Any thread may call."""

    def __init__(
        self,
        settings: KubernetesSettings,
        view: ClusterView,
        deletions: Deletions,
        preparation: Preparation,
        folders: VolumeFolders,
        publish: Callable[[Sequence[PodReport]], None],
    ) -> None:
        self._view, self._deletions, self._preparation, self._publish = view, deletions, preparation, publish
        self._namespace, self._folders = settings.namespace, folders
        self._keeps_volumes = bool(settings.volumes)
        self._manifests = Manifests(settings)

    def launch(self, launches: Sequence[HostLaunch]) -> Failed:
        """Create pods; return the ones that were certainly not created. Raises OSError when the result of a pod is
        unknown."""
        failed: Failed = []
        sent: list[tuple[PodLaunch, HostLaunch]] = []
        with self._view.lock:
            for each in launches:
                taken, refused = self._use(each)
                sent += [(pod, each) for pod in taken]
                failed += refused
            self._view.creating.update(str(pod.pod_id) for pod, _ in sent)
        unknown = ""
        try:
            reserved, unmade = self._folders.reserve([pod for pod, _ in sent])
            for pod, each, verdict in self._create(sent, unmade):
                outcome, why = self._settle(pod, each, verdict)
                if outcome is Outcome.REFUSED and pod.volume is not None and pod.pod_id in reserved:
                    outcome = Outcome.UNKNOWN if self._folders.give_back(pod.volume) else outcome
                if outcome is Outcome.REFUSED:
                    failed.append((pod.pod_id, why))
                elif outcome is Outcome.UNKNOWN:
                    unknown = unknown or why
        finally:
            self._deletions.end_creation([str(pod.pod_id) for pod, _ in sent])
        if unknown:
            raise OSError(unknown)
        return failed

    def _create(
        self, sent: Sequence[tuple[PodLaunch, HostLaunch]], unmade: Mapping[PodId, Verdict]
    ) -> Iterator[tuple[PodLaunch, HostLaunch, Verdict]]:
        """Yield the result of each pod; pods without their volume are not sent."""
        ready = [(pod, each) for pod, each in sent if pod.pod_id not in unmade]
        with self._view.lock:
            requests = [
                self._manifests.request(pod, each.claim.hostname, self._folders.is_new(pod.volume))
                for pod, each in ready
            ]
        for (pod, each), answer in zip(ready, self._preparation.create_all(requests), strict=True):
            yield pod, each, verdict_of(answer)
        yield from ((pod, each, unmade[pod.pod_id]) for pod, each in sent if pod.pod_id in unmade)

    def _use(self, launch: HostLaunch) -> tuple[list[PodLaunch], Failed]:
        """Return the pods that fit in the claimed resources, and the others. The caller holds the lock."""
        demands = {}
        failed: Failed = []
        for pod in launch.pods:
            if pod.template.volume is not None and (pod.volume is None or not self._keeps_volumes):
                failed.append((pod.pod_id, NOT_KEPT))
                continue
            try:
                demands[pod] = self._manifests.demand(pod)
            except InvalidArgument as error:
                self._refuse(pod, launch, str(error))
        keys = {pod: self._view.key(str(pod.pod_id)) for pod in demands}
        volumes = {key: pod.volume for pod, key in keys.items() if pod.volume is not None}
        refused = self._view.ledger.use(launch.claim, [(keys[pod], demand) for pod, demand in demands.items()], volumes)
        taken = [pod for pod, key in keys.items() if key not in refused]
        return taken, [*failed, *((pod.pod_id, refused[key]) for pod, key in keys.items() if key in refused)]

    def _settle(self, pod: PodLaunch, launch: HostLaunch, verdict: Verdict) -> Verdict:
        name, view = str(pod.pod_id), self._view
        outcome, why = verdict
        if outcome is Outcome.EXISTS:
            outcome, why = self._resolve_existing(name)
        if outcome in (Outcome.REFUSED, Outcome.INVALID):
            with view.lock:
                view.ledger.drop_pod(view.key(name))
        if outcome is Outcome.INVALID:
            self._refuse(pod, launch, why)
        if outcome is Outcome.UNKNOWN:
            with view.lock:
                if view.own(name) is None:
                    view.unconfirmed.add(name)
        return Verdict(outcome, why)

    def _refuse(self, pod: PodLaunch, launch: HostLaunch, why: str) -> None:
        """Report a pod that Kubernetes rejects permanently."""
        claim = launch.claim
        with self._view.lock:
            reports = self._view.cache.report_refused(pod.pod_id, claim.hostname, claim.host_id, why, time.time_ns())
        self._publish([reports] if reports is not None else [])

    def _resolve_existing(self, name: str) -> tuple[Outcome, str]:
        """Return the result for a name that exists: the pod is Peloton's, from an earlier attempt, unless another user
        created it."""
        with self._view.lock:
            if self._view.own(name) is not None:
                return Outcome.TAKEN, ""
        [found] = self._deletions.fetch([name])
        if isinstance(found, OSError):
            return Outcome.UNKNOWN, str(found)
        if found is None or self._view.is_managed(found):
            return Outcome.TAKEN, ""
        return Outcome.REFUSED, f"namespace {self._namespace} has a pod {name} that Peloton does not manage"
