"""The namespace of a driver's pods is deleted while it runs them."""

from __future__ import annotations

import http.client
from pathlib import Path

from peloton.model.pod import Cause
from services.hostmgr.driver import HostLaunch
from tests.conformance.driver.kubernetes import Kubernetes, SharedPlane
from tests.conformance.driver.lab import END_STATES, Lab
from tests.kubernetes.fixtures import REAL_KUBERNETES

pytestmark = REAL_KUBERNETES


def test_pods_end_with_their_namespace_and_others_run_when_it_is_back(kubernetes: Path, tmp_path: Path) -> None:
    """Launches are refused during and after the deletion of the namespace, to an account that may not create it. Once
    the manifests are applied again launches succeed, in the same session.
    """
    shared = SharedPlane(kubernetes, tmp_path)
    cluster = Kubernetes(shared)
    lab = Lab(cluster)
    path = f"/api/v1/namespaces/{cluster.namespace}"
    try:
        pods = [lab.running() for _ in range(2)]
        sessions = lab.events.sessions

        cluster.client.ask("DELETE", path)

        assert not try_launch(lab)
        statuses = [lab.wait_for(pod, *END_STATES).status for pod in pods]
        assert [Cause.REMOVED] * 2 == [status.cause for status in statuses if status is not None]
        lab.wait(lambda: cluster.client.ask("GET", path).status == http.client.NOT_FOUND, "no namespace")
        assert not try_launch(lab)
        shared.driver_kubeconfig(cluster.namespace)
        lab.wait(lambda: try_launch(lab), "its roles to hold")
        lab.running()
        lab.wait(lambda: not lab.driver.unready, "a driver that is ready")
        assert sessions == lab.events.sessions
    finally:
        cluster.tear_down()
        lab.close()
        cluster.close()


def try_launch(lab: Lab) -> bool:
    """Return whether one more pod is launched."""
    return not lab.driver.launch([HostLaunch(lab.claim_of(cpu=0.5), [lab.pod(lab.template())])])
