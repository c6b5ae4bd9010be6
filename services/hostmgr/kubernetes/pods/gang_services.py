"""Headless Services of gangs, which give their pods DNS names: made before the pods, deleted some time after them.

The pods show which Services are in use, so nothing is stored about them; a new leader lists the existing ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import quote

import orjson

from peloton.lifecycle.discovery import INSTANCE, JOB
from peloton.model.ids import PodId
from services.hostmgr.driver import HostLaunch, PodTemplate
from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Refused, Request, fault_of
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import CLUSTER_LABEL, JOB_LABEL, KubernetesSettings

log = logging.getLogger(__name__)

PREFIX = "gang-"
"""Prefix of the names of Services: the id of the job follows."""
UNUSED_S = 120.0
"""Seconds after which a Service without pods is deleted: more than from a launch to the first pod that is seen."""
SWEEP_S, LIST_S = 15.0, 300.0
"""Seconds between checks, and between lists, as other users may delete Services."""
CHANGES_MAX = 500
"""Limit of changes per check; the next one continues."""
PAGE = 500
GANG_LABEL = "peloton.io/gang"


def service_name(job_id: str) -> str:
    return f"{PREFIX}{job_id}"


def host_label(instance_id: str) -> str:
    """Return the host name of a pod, which is the first label of its DNS name."""
    return f"instance-{instance_id}"


def address_pattern(namespace: str) -> str:
    """Return the DNS name of a pod, with INSTANCE and JOB for its own. Resolvers in pods add the cluster's domain."""
    return f"{host_label(INSTANCE)}.{service_name(JOB)}.{namespace}.svc"


def has_service(template: PodTemplate, settings: KubernetesSettings) -> bool:
    return settings.gang_services and template.job.gang_size > 1


class GangServices:
    """Services of one cluster. Any thread may call. One lock is held during requests as well, so that no launch relies
    on a Service that is being deleted."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        in_use: Callable[[], set[str]],
        preparation: Preparation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``in_use`` returns the jobs whose pods have such a DNS name."""
        self._api, self._settings, self._in_use, self._preparation = api, settings, in_use, preparation
        self._path = f"/api/v1/namespaces/{settings.namespace}/services"
        self._clock = clock
        self._lock = threading.Lock()
        self._used_s: dict[str, float] = {}  # by job with a Service
        self._sweep_at_s = self._list_at_s = float("-inf")

    def make(self, launches: Sequence[HostLaunch]) -> tuple[Sequence[HostLaunch], list[tuple[PodId, str]]]:
        """Create Services. Returns the launches without the pods of gangs whose Service failed, and those pods with
        the reason."""
        if not self._settings.gang_services:
            return launches, []
        templates = {pod.template for each in launches for pod in each.pods}
        jobs = {template.job.job_id for template in templates if has_service(template, self._settings)}
        if not jobs:
            return launches, []
        with self._lock:
            now_s = self._clock()
            self._used_s |= dict.fromkeys(jobs & self._used_s.keys(), now_s)
            refusals = self._create(sorted(jobs - self._used_s.keys()), now_s)
        if not refusals:
            return launches, []
        whys = {pod: refusals.get(pod.template.job.job_id, "") for each in launches for pod in each.pods}
        kept = [each._replace(pods=[pod for pod in each.pods if not whys[pod]]) for each in launches]
        return kept, [(pod.pod_id, why) for pod, why in whys.items() if why]

    def _create(self, jobs: Sequence[str], now_s: float) -> dict[str, str]:
        """Create the Services of jobs; return the failures by job."""
        requests = [Request("POST", self._path, self._body(job_id)) for job_id in jobs]
        refusals: dict[str, str] = {}
        for job_id, answer in zip(jobs, self._preparation.create_all(requests), strict=True):
            if why := fault_of(answer, HTTPStatus.CONFLICT):
                refusals[job_id] = f"Service {service_name(job_id)} of the gang was not made: {why}"
            else:
                self._used_s[job_id] = now_s
        return refusals

    def _body(self, job_id: str) -> bytes:
        labels = {CLUSTER_LABEL: self._settings.cluster, JOB_LABEL: job_id, GANG_LABEL: "true"}
        spec = {
            "clusterIP": "None",
            "selector": {JOB_LABEL: job_id},
            "publishNotReadyAddresses": True,  # members meet before their checks succeed
        }
        metadata = {"name": service_name(job_id), "labels": labels}
        return orjson.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})

    def run_periodic(self) -> None:
        """Delete Services without pods, and create those again that others have deleted. The pods must be known.
        Raises OSError."""
        now_s = self._clock()
        if not self._settings.gang_services or now_s < self._sweep_at_s:
            return
        with self._lock:
            self._sweep_at_s = now_s + SWEEP_S
            if now_s >= self._list_at_s:
                listed = self._list()
                self._list_at_s = now_s + LIST_S
                self._used_s = {job_id: self._used_s.get(job_id, now_s) for job_id in listed}
                absent = sorted(self._in_use() - listed)[:CHANGES_MAX]
                for why in self._create(absent, now_s).values():
                    log.warning("%s", why)
            if self._used_s:
                self._delete_unused(now_s)

    def _delete_unused(self, now_s: float) -> None:
        self._used_s |= dict.fromkeys(self._in_use() & self._used_s.keys(), now_s)
        unused = [job_id for job_id, used_s in self._used_s.items() if now_s - used_s >= UNUSED_S][:CHANGES_MAX]
        for job_id in unused:  # whatever the answers: the next list finds those that are still there
            del self._used_s[job_id]
        answers = self._api.ask_all([Request("DELETE", f"{self._path}/{service_name(job_id)}") for job_id in unused])
        for job_id, answer in zip(unused, answers, strict=True):
            if why := fault_of(answer, HTTPStatus.NOT_FOUND):
                log.warning("Service %s was not deleted: %s", service_name(job_id), why)

    def _list(self) -> set[str]:
        """Return the jobs with a Service; none if they may not be listed."""
        selector = quote(f"{GANG_LABEL},{CLUSTER_LABEL}={self._settings.cluster}", safe="")
        try:
            found = pages(self._api, f"{self._path}?labelSelector={selector}", PAGE)
            return {item["metadata"]["labels"][JOB_LABEL] for _, items in found for item in items}
        except Refused as refused:
            if refused.answer.status != HTTPStatus.FORBIDDEN:
                raise
            log.info("access to Services is forbidden: gangs cannot run in cluster %s", self._settings.cluster)
            return set()
