"""Pods on nodes whose resources are announced with overcommit factors."""

from __future__ import annotations

from typing import Any

import orjson

from peloton.model.host_pool import Factors
from peloton.model.ids import PodId
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from tests.unit.hostmgr.kubernetes.test_manifests import JOB, SETTINGS, template

Json = dict[str, Any]


def test_of_a_node_that_is_announced_with_a_factor_a_pod_requests_less() -> None:
    """A pod on an overcommitted node requests less than its limit; a pod without demand requests
    less of the minimum.
    """
    factors = Factors(160, 200, 125)
    resource = {"cpuLimit": 1, "memLimitMb": 100, "diskLimitMb": 100, "gpuLimit": 1}
    asking, least = template({"resource": resource}), template({})

    def resources(made: PodTemplate) -> Json:
        body: Json = orjson.loads(PodManifest(made, SETTINGS, factors).body(PodLaunch(PodId(JOB, 3, 2), made, ()), "n"))
        found: Json = body["spec"]["containers"][0]["resources"]
        return found

    assert resources(asking) == {
        "requests": {"cpu": "625m", "memory": "50Mi", "ephemeral-storage": "80Mi", "nvidia.com/gpu": "1"},
        "limits": {"cpu": "1000m", "memory": "100Mi", "ephemeral-storage": "100Mi", "nvidia.com/gpu": "1"},
    }
    assert resources(least) == {"requests": {"cpu": "6m"}}
