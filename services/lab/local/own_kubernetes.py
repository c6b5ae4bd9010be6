"""A Kubernetes cluster of the user, which the roles of a local cluster manage: ``peloton up --kubeconfig``."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from peloton.errors import InvalidArgument, Unavailable
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request
from services.hostmgr.kubernetes.nodes.nodes import node_of
from services.hostmgr.kubernetes.permissions import find_missing
from services.hostmgr.kubernetes.settings import KubernetesSettings, own_name
from services.role_settings import read_kubernetes_settings
from services.settings import Settings

CHECK_TIMEOUT_S = 15.0
PAGE = 500
"""Nodes and pods that one answer has."""
SHOWN = 5
_END_AT_ONCE = b'{"gracePeriodSeconds":0,"propagationPolicy":"Background"}'


@dataclass(frozen=True)
class OwnKubernetes:
    kubeconfig: Path
    context: str = ""  # empty: the current one

    @property
    def cluster(self) -> str:
        """Return the name of the cluster: that of the user, for an installation in the cluster has another one, and
        two host managers of one name would end each other's pods."""
        return "laptop-" + (re.sub("[^a-z0-9]", "", getpass.getuser().lower())[:40] or "user")

    def environment(self) -> dict[str, str]:
        """Return the environment of its host manager."""
        return {
            "PELOTON_CLUSTER": self.cluster,
            "PELOTON_KUBERNETES": str(self.kubeconfig),
            "PELOTON_KUBERNETES_CONTEXT": self.context,
            "PELOTON_KUBERNETES_GANG_SERVICES": "true",
            "PELOTON_PREFETCH_URL": "",
        }

    def settings(self, loaded: Settings) -> KubernetesSettings:
        """Return the settings of its host manager."""
        kubeconfig = str(self.kubeconfig)
        mine = replace(loaded, cluster=self.cluster, kubernetes=kubeconfig, kubernetes_context=self.context)
        return read_kubernetes_settings(mine)

    def check(self, settings: KubernetesSettings, report: Callable[[str], None]) -> None:
        """Report what will not work. ``settings``: those of its host manager. Raises InvalidArgument and Unavailable
        for a cluster that cannot be used, naming file and address, and the permission or the nodes."""
        api = ApiServer(read_access(str(self.kubeconfig), self.context))
        try:
            version = self._ask(api, "/version").get("gitVersion")
            missing = find_missing(api, settings.namespace)
            if needed := [one for one in missing if one.permission.is_needed]:
                raise InvalidArgument(
                    f"{self._where(api)}: this user may not " + "; ".join(map(str, needed)) + ". See "
                    "docs/kubernetes/operations.md#permissions"
                )
            ready, why = _count_nodes(api, settings)
            if not ready:
                raise Unavailable(f"{self._where(api)} has no node for pods: {why}")
            others = _find_others(api, settings)
        except OSError as error:
            raise Unavailable(f"{self._where(api)}: {error}: is the cluster up, and reachable from here?") from None
        finally:
            api.close()
        report(f"Kubernetes {version} at {api.access.server}, {ready} nodes for pods; its cluster is {self.cluster}")
        for one in missing:
            report(f"this user may not {one}")
        if others:
            report(f"another Peloton manages this cluster, too ({others}): external pods may go to either")

    def remove_pods(self, namespace: str) -> int:
        """End all pods of this cluster, whose records leave with the data folder. Return their number. Raises
        OSError and InvalidArgument."""
        api = ApiServer(read_access(str(self.kubeconfig), self.context))
        try:
            selector = quote(f"peloton.io/cluster={self.cluster}", safe="")
            pods = _list(api, f"/api/v1/pods?labelSelector={selector}")
            names = [one["metadata"] for one in pods if one["metadata"]["namespace"] == namespace]
            path = f"/api/v1/namespaces/{namespace}/pods"
            api.ask_all([Request("DELETE", f"{path}/{one['name']}", _END_AT_ONCE) for one in names])
            return len(names)
        finally:
            api.close()

    def _where(self, api: ApiServer) -> str:
        context = f", context {self.context}" if self.context else ""
        return f"{self.kubeconfig}{context} ({api.access.server})"

    def _ask(self, api: ApiServer, path: str) -> Json:
        answer = api.ask(Request("GET", path), CHECK_TIMEOUT_S)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise InvalidArgument(
                f"{self._where(api)}: the apiserver does not take these credentials: {answer.message}"
            )
        if not answer.is_ok:
            raise ConnectionError(answer.message)
        return answer.json()


def _count_nodes(api: ApiServer, settings: KubernetesSettings) -> tuple[int, str]:
    """Return how many nodes take pods, and why the others do not."""
    nodes = [node for one in _list(api, "/api/v1/nodes") if (node := node_of(one, settings)) is not None]
    whys = {node.name: node.withdrawn or ("" if node.is_ready else "it is not ready") for node in nodes}
    refusing = [f"{name}: {why}" for name, why in sorted(whys.items()) if why]
    return len(whys) - len(refusing), ", ".join(refusing[:SHOWN]) or "there are none, or none has the labels to use"


def _find_others(api: ApiServer, settings: KubernetesSettings) -> str:
    """Return the leases of other host managers in the namespace of the pods, or ""."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
    names = {one["metadata"]["name"] for one in _list(api, path)} - {own_name(settings.cluster)}
    return ", ".join(sorted(name for name in names if name.startswith("peloton-")))


def _list(api: ApiServer, path: str) -> list[Json]:
    return [one for _, page in pages(api, path, PAGE) for one in page]
