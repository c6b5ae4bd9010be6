"""Offers of host pools with factors, and the drivers that reduce a pod's share of the cluster by them."""

from __future__ import annotations

from peloton.model.host_pool import Factors
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from services.hostmgr.driver import HostLaunch, PodOnHost
from tests.conformance.driver.lab import Lab


def test_a_pod_takes_less_of_a_host_that_is_announced_with_a_factor(lab: Lab) -> None:
    """A pod takes less of its host by the factor of each kind."""
    host = lab.host_with_free()
    before = lab.free(host)
    pod = lab.pod(lab.template(cpu=1))._replace(factors=Factors(160, 200))

    assert [] == lab.driver.launch([HostLaunch(lab.claim(host), [pod])])
    lab.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)

    lab.wait(lambda: lab.free(host) == before - Resources(625, 16), "the remaining free resources")
