"""The permissions of the chart are those that a host manager uses: the audit log of a real apiserver says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peloton.errors import PelotonError
from peloton.model.ids import JobId, PodId
from services.hostmgr.driver import CommandStart, Exchange
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request
from services.hostmgr.kubernetes.cluster_view import ClusterView, SecretUse
from services.hostmgr.kubernetes.external.gate import admission_request
from services.hostmgr.kubernetes.external.pod_groups import PLUGINS_LABEL, VOLCANO_ANNOTATION, group_of
from services.hostmgr.kubernetes.external.put_back import JobKey, suspend
from services.hostmgr.kubernetes.nodes.use import NodeUse
from services.hostmgr.kubernetes.output.command_sessions import CommandSessions
from services.hostmgr.kubernetes.output.logs import PodLogs
from services.hostmgr.kubernetes.permissions import PERMISSIONS
from services.hostmgr.kubernetes.pods import gang_services, pod_secrets
from services.hostmgr.kubernetes.pods.disruption_budgets import DisruptionBudgets
from services.hostmgr.kubernetes.pods.gang_services import GangServices
from services.hostmgr.kubernetes.pods.missing_folders import MissingFolders
from services.hostmgr.kubernetes.pods.pod_cache import OwnPod
from services.hostmgr.kubernetes.pods.pod_secrets import PodSecrets
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.suspend.held_owner import (
    HeldOwner,
    collection_of,
    condition_request,
    suspension_request,
)
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS
from tests.kubernetes.client import Client, login_of
from tests.kubernetes.fixtures import running_control_plane
from tests.nightly import NIGHTLY

ROOT = Path(__file__).parents[2]
STORIES = (
    *("tests/conformance/driver", "tests/e2e/test_real_kubernetes.py", "tests/e2e/test_pools_for_kubectl.py"),
    *("tests/kubernetes/test_external_pods.py", "tests/kubernetes/test_own_kubernetes.py"),
    "tests/kubernetes/test_pool_objects.py",
)
"""Tests of host managers on the apiserver that PELOTON_TEST_KUBERNETES names."""
TIMEOUT_S = 1_200.0
AGENT = "peloton"
Used = tuple[str, str, str]
"""Group, resource with its subresource, verb."""
OF_ADMINISTRATORS: set[Used] = {
    ("", "namespaces", "create"),  # the chart makes both
    ("scheduling.k8s.io", "priorityclasses", "create"),
    ("", "nodes/proxy", "get"),  # instead of metrics.k8s.io, for those who grant it
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),  # every user may
}


NEVER_ASKED: set[Used] = {("", "pods/exec", "create"), ("peloton.io", "admissions", "grant")}
"""The verb that apiservers since 1.35 require, besides ``get``, of a GET that becomes a WebSocket, and the one
that the admission policies of the gate require: both are in no audit log."""


GROUPS: list[Json] = [
    {"spec": {"schedulingGroup": {"podGroupName": "gang"}}},
    {"labels": {PLUGINS_LABEL: "gang"}},
    {"annotations": {VOLCANO_ANNOTATION: "gang"}},
]


@NIGHTLY
def test_each_permission_is_used_and_none_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host managers send requests of each verb of the table, and no other, in their tests on a real apiserver and in
    what those leave to emulated ones."""
    with running_control_plane(is_audited=True) as plane:
        environment = {**os.environ, "PELOTON_TEST_KUBERNETES": str(plane.kubeconfig)}
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not emulated", *STORIES]
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        _use_rarer(plane.kubeconfig, monkeypatch)
        used = _read(plane.audit_log) | NEVER_ASKED
    assert 0 == done.returncode, done.stdout[-5_000:]
    granted = {(one.group, one.resource, verb) for one in PERMISSIONS for verb in one.verbs}

    assert ([], []) == (sorted(granted - used), sorted(used - granted - OF_ADMINISTRATORS))


def _use_rarer(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts of a driver send what needs kubelets, volumes, or minutes."""
    monkeypatch.setattr(pod_secrets, "SWEEP_S", 0.0)
    monkeypatch.setattr(pod_secrets, "UNUSED_S", 0.0)
    monkeypatch.setattr(gang_services, "UNUSED_S", 0.0)
    settings = KubernetesSettings(str(kubeconfig), cluster="rarer", namespace="rarer", gang_services=True)
    job = JobId("00000000-0000-4000-8000-000000000001")
    labels = {"peloton.io/cluster": "rarer", "peloton.io/secret": "1", "peloton.io/job": job}
    with Client(login_of(kubeconfig)) as client:
        assert 201 == client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "rarer"}}).status
        secret = {"metadata": {"name": "old", "labels": labels}}
        assert 201 == client.ask("POST", "/api/v1/namespaces/rarer/secrets", secret).status
        gang = {"metadata": {"name": "old", "labels": {**labels, "peloton.io/gang": "true"}}}
        gang["spec"] = {"clusterIP": "None"}
        assert 201 == client.ask("POST", "/api/v1/namespaces/rarer/services", gang).status
    api = ApiServer(read_access(str(kubeconfig)))
    try:
        budgets = DisruptionBudgets(api, settings)
        for minimums in ({job: 1}, {job: 2}, dict[JobId, int]()):
            budgets.set(minimums)
        secrets = PodSecrets(api, settings, lambda: SecretUse(set(), set(), set()), Preparation(api, settings))
        secrets.run_periodic()
        GangServices(api, settings, set, Preparation(api, settings)).run_periodic()
        missing = MissingFolders(api, settings, cast(ClusterView, None), list[Any]().append)
        assert "" == missing._why_missing(cast(OwnPod, SimpleNamespace(uid="1", name="x")), "x")
        with pytest.raises(OSError, match="404"):  # the plane has no metrics-server
            NodeUse(api, "rarer", lambda node: ()).samples_of("x")
        _use_gate(api)
        _use_owners(api)
        start = CommandStart("main", ("ls",), False, False)
        with pytest.raises((PelotonError, OSError)):
            CommandSessions(api, PodLogs(api, "rarer")).exchange("x", Exchange("one", 0, start))
    finally:
        api.close()


def _use_gate(api: ApiServer) -> None:
    """Send what admission by gate does, whose tests have control planes of their own."""
    pod = {"metadata": {"namespace": "rarer", "name": "x", "uid": "1"}}
    api.ask(admission_request(pod, PodId(JobId("00000000-0000-4000-8000-000000000001"), 0, 1), "node"))
    suspend(api, {JobKey("rarer", "x", "1")})
    for declared in GROUPS:
        key = group_of({"metadata": {"namespace": "rarer", **declared}, "spec": declared.get("spec", {})})
        assert key is not None
        api.ask(Request("GET", key.path))


def _use_owners(api: ApiServer) -> None:
    """Send what admission by suspend does, to kinds that the plane may not have."""
    for kind in KINDS:
        meta = {"namespace": "rarer", "name": "x", "uid": "1", "resourceVersion": "1"}
        owner = HeldOwner(kind, {"metadata": meta})
        paths = collection_of(kind), f"{collection_of(kind)}?watch=1&timeoutSeconds=1", owner.path
        api.ask_all([*(Request("GET", path) for path in paths), suspension_request(owner)])
        api.ask(condition_request(owner, "PelotonQueued", "it waits"))
    for path in ("clustertrainingruntimes/x", "namespaces/rarer/trainingruntimes/x"):
        api.ask(Request("GET", f"/apis/trainer.kubeflow.org/v1alpha1/{path}"))


def _read(log: Path) -> set[Used]:
    """Return what host managers have asked for."""
    used: set[Used] = set()
    with log.open(encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            if event.get("userAgent") == AGENT and (asked := event.get("objectRef")):
                resource = "/".join(filter(None, (asked["resource"], asked.get("subresource", ""))))
                used.add((asked.get("apiGroup", ""), resource, event["verb"]))
    return used
