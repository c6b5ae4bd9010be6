"""Secrets of jobs as Kubernetes Secrets: created before the pods that use them, deleted soon after.

The name of a Secret identifies its data, and it is never changed. The live pods show which Secrets are in use, so
nothing is stored about them; a new leader lists the existing ones.
"""

from __future__ import annotations

import logging
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

import orjson

from peloton.errors import Unavailable
from peloton.model.ids import PodId
from peloton.model.secret import IMAGE, Secret
from services.hostmgr.driver import HostLaunch
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request, fault_of
from services.hostmgr.kubernetes.cluster_view import SecretUse
from services.hostmgr.kubernetes.pods.volumes import SECRET_KEY, secret_name
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import CLUSTER_LABEL, JOB_LABEL, KubernetesSettings

log = logging.getLogger(__name__)

UNUSED_S, UNSEEN_S = 15.0, 120.0
"""Seconds after which an unused Secret is deleted; longer after a launch without an observed pod."""
SWEEP_S = 5.0
MANAGED_LABEL = "peloton.io/secret"


@dataclass(slots=True)
class _Known:
    job_id: str
    used_s: float
    is_seen: bool = False  # an event of a pod with it arrived since the last launch


class PodSecrets:
    """Secrets of one cluster. Any thread may call. One lock is held during requests as well, so that no launch relies
    on a Secret that is being deleted."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        in_use: Callable[[], SecretUse],
        preparation: Preparation,
    ) -> None:
        self._api, self._in_use, self._cluster, self._preparation = api, in_use, settings.cluster, preparation
        self._path = f"/api/v1/namespaces/{settings.namespace}/secrets"
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._is_listed = False
        self._swept_s = 0.0

    def make(self, launches: Sequence[HostLaunch]) -> tuple[Sequence[HostLaunch], list[tuple[PodId, str]]]:
        """Create Secrets. Returns the launches without the pods whose Secrets failed, and those pods with the
        reason."""
        wanted = {
            secret_name(self._cluster, secret): (pod.template.job.job_id, secret)
            for each in launches
            for pod in each.pods
            for secret in pod.template.secrets
        }
        if not wanted:
            return launches, []
        with self._lock:
            refusals = self._create(wanted)
        failed: list[tuple[PodId, str]] = []
        kept: list[HostLaunch] = []
        for each in launches:
            whys = {
                pod: why
                for pod in each.pods
                for one in pod.template.secrets
                if (why := refusals.get(secret_name(self._cluster, one)))
            }
            failed += [(pod.pod_id, why) for pod, why in whys.items()]
            kept.append(each._replace(pods=[pod for pod in each.pods if pod not in whys]))
        return kept, failed

    def _create(self, wanted: Mapping[str, tuple[str, Secret]]) -> dict[str, str]:
        """Create Secrets; return the failures by name."""
        now_s = time.monotonic()
        requests = [Request("POST", self._path, self._body(name, *one)) for name, one in wanted.items()]
        refusals: dict[str, str] = {}
        for (name, (job_id, secret)), answer in zip(
            wanted.items(), self._preparation.create_all(requests), strict=True
        ):
            if why := fault_of(answer, HTTPStatus.CONFLICT):
                refusals[name] = f"the secret at {secret.path} was not made: {why}"
            else:
                self._known[name] = _Known(job_id, now_s)
        return refusals

    def _body(self, name: str, job_id: str, secret: Secret) -> bytes:
        labels = {CLUSTER_LABEL: self._cluster, JOB_LABEL: job_id, MANAGED_LABEL: secret.secret_id}
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "labels": labels},
                "immutable": True,
                **_encode_data(b64encode(secret.data).decode(), secret),
            }
        )

    def run_periodic(self) -> None:
        """Delete Secrets that no live pod uses. The pods must be known. Raises OSError."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._swept_s < SWEEP_S:
                return
            self._swept_s = now_s
            if not self._is_listed:
                self._list(now_s)
            if not self._known:
                return
            used = self._in_use()
            unused = []
            for name, one in self._known.items():
                one.is_seen |= name in used.seen
                if name in used.live or one.job_id in used.jobs:
                    one.used_s = now_s
                elif now_s - one.used_s >= (UNUSED_S if one.is_seen else UNSEEN_S):
                    unused.append(name)
            answers = self._api.ask_all([Request("DELETE", f"{self._path}/{name}") for name in unused])
            for name, answer in zip(unused, answers, strict=True):
                if isinstance(answer, OSError):
                    raise answer
                if answer.is_ok or answer.status == HTTPStatus.NOT_FOUND:
                    del self._known[name]

    def _list(self, now_s: float) -> None:
        """Read the Secrets that a predecessor has created."""
        selector = quote(f"{MANAGED_LABEL},{CLUSTER_LABEL}={self._cluster}")
        answer = self._api.ask(Request("GET", f"{self._path}?labelSelector={selector}"))
        if answer.status == HTTPStatus.FORBIDDEN:
            log.info(
                "access to Secrets is forbidden: jobs with secrets cannot run in cluster %s",
                self._cluster,
            )
        elif not answer.is_ok:
            raise Unavailable(f"list of Secrets: {answer.message}")
        else:
            for item in answer.json()["items"]:
                meta = item["metadata"]
                self._known.setdefault(meta["name"], _Known(meta["labels"].get(JOB_LABEL, ""), now_s, is_seen=True))
        self._is_listed = True


def _encode_data(data: str, secret: Secret) -> Json:
    """Return the data of a Secret, and its type where a kubelet wants one."""
    if secret.path.startswith(IMAGE):
        return {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}}
    return {"data": {SECRET_KEY: data}}
