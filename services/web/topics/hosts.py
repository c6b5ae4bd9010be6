"""Topics of hosts: lists of all of them, and one host with its pods."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.errors import NotFound
from peloton.model.text import shorten
from services.web.api import TIMEOUT_S, Api

EVENTS_SHOWN = 50


async def read_names(api: Api, _: str) -> Any:
    """Return ``maps`` by cluster: host names and host pools, which change rarely, with the ``version`` of the names."""
    answer = await _maps(api)
    return {
        "maps": [
            {
                "cluster": one.cluster,
                "version": _version(one),
                "hostnames": list(one.hostnames),
                "hostPools": list(one.host_pools),
                "hostPoolNames": list(one.host_pool_names),
            }
            for one in answer.maps
        ]
    }


async def read_map(api: Api, _: str) -> Any:
    """Return ``maps`` by cluster: changing values of each host in the order of the names of ``version``.

    Lists of bytes are base64. ``silent`` lists clusters that do not answer.
    """
    answer = await _maps(api)
    found = []
    for one in answer.maps:
        version = _version(one)
        for field in ("version", "hostnames", "host_pools", "host_pool_names"):
            one.ClearField(field)
        found.append({**MessageToDict(one), "version": version})
    return {"maps": found, "silent": list(answer.silent_clusters)}


async def read_host(api: Api, hostname: str) -> Any:
    """Return ``host``, its ``pods``, and its ``maintenance``, if any."""
    queried = host_svc_pb2.QueryHostsRequest(hostnames=[hostname])
    hosts, pods, drains = await asyncio.gather(
        api.hosts.QueryHosts(queried, timeout=TIMEOUT_S),
        api.overview.GetHostPods(overview_pb2.GetHostPodsRequest(hostname=hostname), timeout=TIMEOUT_S),
        api.maintenance.Query(maintenance_pb2.QueryRequest(hostnames=[hostname]), timeout=TIMEOUT_S),
    )
    if not hosts.host_infos:
        raise NotFound(f"host {shorten(hostname)} is not known to the clusters that answer")
    return {
        "host": MessageToDict(hosts.host_infos[0]),
        "pods": MessageToDict(pods),
        "maintenance": MessageToDict(drains.hosts[0]) if drains.hosts else None,
    }


async def read_events(api: Api, hostname: str) -> Any:
    """Return ``events`` of a host, which may be gone, or of all hosts without a name, newest first.

    ``hasMore``: there are older events.
    """
    asked = overview_pb2.ListHostEventsRequest(hostname=hostname, limit=EVENTS_SHOWN)
    found = await api.overview.ListHostEvents(asked, timeout=TIMEOUT_S)
    return {"events": [MessageToDict(event) for event in found.events], "hasMore": found.has_more}


async def _maps(api: Api) -> overview_pb2.GetHostMapResponse:
    return await api.overview.GetHostMap(overview_pb2.GetHostMapRequest(), timeout=TIMEOUT_S)


def _version(one: overview_pb2.HostMap) -> str:
    return blake2b("\0".join(one.hostnames).encode(), digest_size=8).hexdigest()
