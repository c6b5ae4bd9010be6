"""Images that cannot be pulled, as kubelets report them: an emulated one, and with PELOTON_TEST_KUBELET a real one."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.pod import Cause, PodState, PodStatus
from services.hostmgr.driver import PodOnHost
from tests.conformance.driver.lab import END_STATES, Lab
from tests.kubernetes.fixtures import MUST_HAVE_KUBELET

pytestmark = pytest.mark.parametrize("lab", ["kubernetes", *(["kubelet"] if MUST_HAVE_KUBELET else [])], indirect=True)


def container(image: str) -> dict[str, Any]:
    return {"type": "DOCKER", "docker": {"image": image}}


def status_in(lab: Lab, pod: PodOnHost, *states: PodState) -> PodStatus:
    status = lab.wait_for(pod, *states).status
    assert status is not None
    return status


def test_a_pull_that_fails_is_reported_while_the_pod_waits(lab: Lab) -> None:
    """The report has the image and the words of the kubelet, and the neighbour of the pod runs."""
    pod = lab.launch(container=container("localhost:1/absent:7"))
    waits = status_in(lab, pod, PodState.LAUNCHED)
    lab.running()

    assert (True, Cause.NO_ENDING, True) == (waits.waits, waits.cause, "localhost:1/absent:7" in waits.message)
    assert waits.reason in ("ErrImagePull", "ImagePullBackOff")
    assert [PodState.LAUNCHED] == lab.states(pod)


def test_an_image_name_that_is_none_fails_at_once(lab: Lab) -> None:
    """The request is at fault, not the host."""
    pod = lab.launch(container=container("Not An Image"))
    end = status_in(lab, pod, *END_STATES)

    assert (PodState.FAILED, Cause.IMAGE, "InvalidImageName") == (end.state, end.cause, end.reason)
    assert "container main cannot be started: InvalidImageName" in end.message
