"""Public services about hosts, implemented by the host managers of all clusters.

With one cluster, calls pass through byte for byte. With several, queries are sent to all and the answers merged; calls
that name hosts go to the clusters of these hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from peloton.api.v0.advice import advice_pb2 as advice
from peloton.api.v0.host.svc import host_svc_pb2 as hosts
from peloton.api.v0.maintenance import maintenance_pb2 as maintenance
from peloton.api.v0.rebalance import rebalance_pb2 as rebalance
from peloton.api.wire_faults import message_of
from peloton.errors import InvalidArgument, Unavailable
from services.access.caller import list_caller_headers
from services.api.channels import AsyncLeaderChannels
from services.api.forward import filter_metadata, refusal, relay
from services.servers.grpc_errors import fit_header

log = logging.getLogger(__name__)

QUERY_TIMEOUT_S = 10.0
"""Timeout per cluster of queries to all clusters."""
ClustersOfHosts = Callable[[Collection[str]], Mapping[str, str]]
"""Hosts -> their clusters, for known hosts. Lookups may block, so they are called in a thread."""

_ASKED_OF_ALL: dict[str, tuple[type[Message], type[Message]]] = {
    "QueryHosts": (hosts.QueryHostsRequest, hosts.QueryHostsResponse),
    "PlanRebalance": (rebalance.PlanRebalanceRequest, rebalance.PlanRebalanceResponse),
    "Advice": (advice.AdviceRequest, advice.AdviceResponse),
    "Query": (maintenance.QueryRequest, maintenance.QueryResponse),
}
_NAMES_HOSTS: dict[str, tuple[type[Message], type[Message]]] = {
    "StartMaintenance": (hosts.StartMaintenanceRequest, hosts.StartMaintenanceResponse),
    "CompleteMaintenance": (hosts.CompleteMaintenanceRequest, hosts.CompleteMaintenanceResponse),
    "ChangeHostPool": (hosts.ChangeHostPoolRequest, hosts.ChangeHostPoolResponse),
    "Move": (maintenance.MoveRequest, maintenance.MoveResponse),
    "Plan": (maintenance.PlanRequest, maintenance.PlanResponse),
    "Start": (maintenance.StartRequest, maintenance.StartResponse),
    "Complete": (maintenance.CompleteRequest, maintenance.CompleteResponse),
    "Cancel": (maintenance.CancelRequest, maintenance.CancelResponse),
    "Force": (maintenance.ForceRequest, maintenance.ForceResponse),
}


class ClusterServices(grpc.GenericRpcHandler):
    """Handler of ``services``, given as name -> name under which host managers serve it."""

    def __init__(
        self, services: Mapping[str, str], channels: AsyncLeaderChannels, clusters_of_hosts: ClustersOfHosts
    ) -> None:
        self._services = dict(services)
        self._channels = channels
        self._clusters_of_hosts = clusters_of_hosts

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        service, _, name = handler_call_details.method.removeprefix("/").rpartition("/")
        if service not in self._services:
            return None
        method = f"/{self._services[service]}/{name}"

        async def answer(request: bytes, context: Any) -> bytes:
            return await self.answer(method, request, context)

        handler: Any = grpc.unary_unary_rpc_method_handler(answer)
        return handler  # type: ignore[no-any-return]

    async def answer(self, method: str, request: bytes, context: Any) -> bytes:
        """Answer a call of ``method``, named as host managers serve it."""
        name = method.rpartition("/")[2]
        clusters = await self._channels.clusters()
        if len(clusters) > 1 and name in _ASKED_OF_ALL:
            return await self._ask_all(method, name, request, clusters, context)
        if len(clusters) > 1 and name in _NAMES_HOSTS:
            return await self._ask_clusters_of_hosts(method, name, request, clusters, context)
        cluster = _first(clusters)
        channel = await self._channels.to_cluster(cluster)
        return await relay(channel, method, request, context, _host_manager(cluster))

    async def _ask_all(
        self, method: str, name: str, request: bytes, clusters: Mapping[str, str], context: Any
    ) -> bytes:
        """Merge the answers of all clusters, with the names of silent ones. Raises Unavailable when all are silent."""

        async def ask(cluster: str) -> bytes | None:
            try:
                channel: Any = await self._channels.to_cluster(cluster)
                timeout_s = min(context.time_remaining() or QUERY_TIMEOUT_S, QUERY_TIMEOUT_S)
                answer: bytes = await channel.unary_unary(method)(request, timeout=timeout_s)
                return answer
            except (Unavailable, grpc.aio.AioRpcError) as error:
                if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    raise InvalidArgument(error.details() or "") from error  # every cluster would reject it
                log.debug("%s: cluster %s does not answer: %s", name, cluster, error)
                return None

        answers = dict(zip(clusters, await asyncio.gather(*map(ask, clusters)), strict=True))
        silent = [cluster for cluster, answer in answers.items() if answer is None]
        if len(silent) == len(clusters):
            raise Unavailable(f"no host manager answers, of the clusters {', '.join(silent)}")
        merged: Any = _ASKED_OF_ALL[name][1]()
        counts = [0, 0]
        for answer in answers.values():
            if answer is not None:
                merged.MergeFromString(answer)
                if name == "Query":
                    one = maintenance.QueryResponse.FromString(answer)
                    counts = [counts[0] + one.away_max, counts[1] + one.host_count]
        if name == "Query":
            merged.away_max, merged.host_count = counts
        merged.silent_clusters.extend(silent)
        return bytes(merged.SerializeToString())

    async def _ask_clusters_of_hosts(
        self, method: str, name: str, request: bytes, clusters: Mapping[str, str], context: Any
    ) -> bytes:
        """Send a call to the clusters of its hosts, for all hosts of a cluster or none.

        Nothing is done while one of the clusters has no host manager. Unknown hosts go to the first cluster, before all
        others, which rejects them.
        """
        whole: Any = message_of(_NAMES_HOSTS[name][0], request)
        is_list = not getattr(whole, "hostname", "") and hasattr(whole, "hostnames")
        named = list(whole.hostnames) if is_list else [whole.hostname]
        known = await asyncio.to_thread(self._clusters_of_hosts, named)
        first = _first(clusters)
        cluster_by_host = {host: known.get(host, first) for host in named}
        order = sorted(set(cluster_by_host.values()) or {first})
        if any(host not in known for host in named):
            order = [first, *(cluster for cluster in order if cluster != first)]
        channels = [(cluster, await self._channels.to_cluster(cluster)) for cluster in order]
        merged: Any = _NAMES_HOSTS[name][1]()
        done: list[str] = []
        for cluster, channel in channels:
            mine = [host for host in named if cluster_by_host[host] == cluster]
            part: Any = _NAMES_HOSTS[name][0].FromString(request)
            if is_list:
                part.ClearField("hostnames")
                part.hostnames.extend(mine)
            calls: Any = channel
            try:
                answer = await calls.unary_unary(method)(
                    part.SerializeToString(),
                    timeout=context.time_remaining(),
                    metadata=(*filter_metadata(context.invocation_metadata()), *list_caller_headers()),
                )
            except grpc.aio.AioRpcError as error:
                already = f" (done already: {', '.join(done)})" if done else ""
                await context.abort(
                    error.code(),
                    fit_header(f"{refusal(error, _host_manager(cluster))}{already}"),
                    filter_metadata(error.trailing_metadata()),
                )
                raise
            merged.MergeFromString(answer)
            done += mine
        return bytes(merged.SerializeToString())


def _host_manager(cluster: str) -> str:
    return f"the host manager of cluster {cluster}"


def _first(clusters: Mapping[str, str]) -> str:
    """Return the first cluster by name, preferring clusters with a host manager."""
    led: Sequence[str] = sorted(cluster for cluster, address in clusters.items() if address)
    return next(iter(led or sorted(clusters)), "")
