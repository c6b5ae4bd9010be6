"""What the kinds of clusters do not have in common."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.pod import PodState
from services.hostmgr.driver import HostLaunch, PodOnHost
from tests.conformance.driver.lab import Lab

ONLY_ELSEWHERE: dict[str, dict[str, Any]] = {
    "mesos": {"otherContainers": [{"name": "proxy", "command": {"value": "true"}}]},
    "kubernetes": {
        "container": {"type": "DOCKER", "docker": {"image": "app", "parameters": [{"key": "cap-add", "value": "ALL"}]}}
    },
}


def test_what_only_another_kind_can_run_does_not_start(lab: Lab) -> None:
    """Not even a part of it."""
    asked = ONLY_ELSEWHERE.get(lab.driver.capabilities.kind)
    if asked is None:
        pytest.skip("this cluster reads nothing of what a pod is")
    pod = lab.pod(lab.template(**asked))

    failed = lab.driver.launch([HostLaunch(lab.claim(lab.room_of(cpu=0.5)), [pod])])

    assert pod.pod_id in dict(failed) or lab.wait_end(PodOnHost(pod.pod_id)) is PodState.FAILED
    assert PodState.RUNNING not in lab.states(PodOnHost(pod.pod_id))
