"""Aurora's API on the whole system, by clients of each encoding."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from services.aurorabridge.thrift import api
from tests.e2e.shared import THREE_HOSTS, Lend
from tests.unit.aurorabridge.calling import ENCODINGS, details_of

pytestmark = [pytest.mark.xdist_group("batch")]


def test_clients_of_each_encoding_are_answered(lend: Lend) -> None:
    """A method that answers by itself, one that is refused by role api, and one that the original lacks, too."""
    job = api.JobKey(role="web", environment="test", name="nothing")
    with lend(THREE_HOSTS) as cluster:
        address = urlsplit(cluster.local.bridge_url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
        for used in ENCODINGS.values():
            found = []
            for method, arguments in (("getTierConfigs", {}), ("killTasks", {"job": job}), ("getQuota", {})):
                connection.request("POST", address.path, used.write(method, **arguments), used.headers(method))
                answer = connection.getresponse()
                found.append((answer.status, answer.read()))
            (_, tiers), (_, killed), (status, refused) = found
            response = used.read("getTierConfigs", tiers)

            assert (api.ResponseCode.OK, ["getTierConfigs"]) == details_of(response)
            assert "preemptible" == response.result.getTierConfigResult.defaultTierName
            code, details = details_of(used.read("killTasks", killed))
            assert (api.ResponseCode.ERROR, "killTasks") == (code, details[0])
            assert (200 if used.has_messages else 500) == status
            assert "rpc is unimplemented" in (
                used.read("getQuota", refused).message if used.has_messages else refused.decode()
            )
        connection.close()
