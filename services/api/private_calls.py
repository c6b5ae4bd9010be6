"""Refusals of the original's private calls by their names: their messages are no part of its public API.

Scripts of operators and tests of the original make some of them: each refusal names what serves the same purpose here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from peloton.errors import Unimplemented

DAEMONS = "it was a call between the daemons of the original"
_HOSTS = "`peloton host query` (QueryHosts of HostService) shows hosts with their free resources"
_HOLDS = f"{DAEMONS}; workers lease hosts"
REFUSED: Mapping[str, Mapping[str, str]] = {
    "peloton.private.hostmgr.hostsvc.InternalHostService": {
        "GetHostsByQuery": _HOSTS,
        "GetOutstandingOffers": f"offers are joined to the free resources of hosts; {_HOSTS}",
        "WatchEventStreamEvent": "`peloton watch pod` (Watch of WatchService) follows the states of pods",
        "WatchHostSummaryEvent": "`peloton host events` (ListHostEvents of OverviewService) lists changes of hosts",
        "CancelWatchEvent": "a watch ends with its call; Cancel of WatchService cancels another one's",
        "GetHosts": _HOSTS,
        "ClusterCapacity": "`peloton overview` (GetOverview of OverviewService) shows the capacity",
        "GetMesosMasterHostPort": "BrowsePodSandbox of PodService answers the address of the Mesos master",
        "GetMesosAgentInfo": "QueryHosts of HostService shows the addresses and labels of hosts",
        "GetDrainingHosts": "`peloton host query -s DRAINING` lists them",
        "GetHostPoolCapacity": "`peloton host pool list` (ListHostPools of HostService) shows host pools",
        "MarkHostDrained": f"{DAEMONS}; `peloton host drain` waits until a host is drained",
        **dict.fromkeys(("AcquireHostOffers", "ReleaseHostOffers", "ReleaseHostsHeldForTasks"), _HOLDS),
        "LaunchTasks": f"{DAEMONS}; a pod is launched by its job",
        **dict.fromkeys(
            ("KillTasks", "KillAndReserveTasks", "ShutdownExecutors"),
            f"{DAEMONS}; `peloton pod stop` (StopPod of PodService) ends a pod",
        ),
        **dict.fromkeys(
            ("ReserveHosts", "GetCompletedReservations"), f"{DAEMONS}; the host manager reserves hosts by itself"
        ),
        **dict.fromkeys(
            (
                *("ReserveResources", "UnreserveResources", "CreateVolumes", "DestroyVolumes", "OfferOperations"),
                "GetTasksByHostState",
            ),
            "the original did not implement it either",
        ),
    },
    "peloton.private.hostmgr.v1alpha.svc.HostManagerService": {
        "GetHostCache": _HOSTS,
        "ClusterCapacity": "`peloton overview` (GetOverview of OverviewService) shows the capacity",
        "GetEvents": "`peloton watch pod` (Watch of WatchService) follows the states of pods",
        **dict.fromkeys(("AcquireHosts", "TerminateLeases", "LaunchPods"), _HOLDS),
        **dict.fromkeys(
            ("KillPods", "KillAndHoldPods"), f"{DAEMONS}; `peloton pod stop` (StopPod of PodService) ends a pod"
        ),
    },
    "peloton.private.jobmgrsvc.JobManagerService": {
        "GetThrottledPods": "`peloton job why JOB` shows pods in backoff, and when they run again",
        "RefreshJob": "`peloton job stateless refresh JOB` (RefreshJob of JobService)",
        "GetJobCache": "`peloton job stateless cache JOB` (GetJobCache of JobService)",
        "QueryJobCache": "`peloton job stateless query` (QueryJobs of JobService), by name and labels",
        "GetInstanceAvailabilityInfoForJob": "QueryPods of JobService, and `peloton job why JOB`, which shows the SLA",
    },
    "peloton.private.resmgrsvc.ResourceManagerService": {
        "GetActiveTasks": "`peloton pod query JOB` (QueryPods of JobService), with states, hosts and reasons",
        "GetPendingTasks": "`peloton respool why POOL` (PoolWhy of ExplainService) shows the queues of a pool",
        "GetOrphanTasks": "the host manager ends orphans by itself, so that there is no list of them",
        "GetHostsByScores": "`peloton host pool mover` shows which hosts move between host pools",
        **dict.fromkeys(
            (
                *("EnqueueGangs", "DequeueGangs", "SetPlacements", "GetPlacements", "UpdateTasksState"),
                *("NotifyTaskUpdates", "GetTasksByHosts", "GetPreemptibleTasks", "KillTasks"),
            ),
            DAEMONS,
        ),
    },
}
"""Service -> method -> what is there instead."""
UNSERVED = tuple(f"{service}/{method}" for service, methods in REFUSED.items() for method in methods)


class PrivateCalls(grpc.GenericRpcHandler):
    """Handler that refuses every method of the services in ``REFUSED``; register it after the servicers."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        service, _, name = str(details.method).removeprefix("/").rpartition("/")
        known = REFUSED.get(service)
        if known is None:
            return None

        async def refuse(request: bytes, context: Any) -> bytes:
            why = known.get(name, DAEMONS)
            raise Unimplemented(f"{name} of {service} is not served: {why}")

        handler: Any = grpc.unary_unary_rpc_method_handler(refuse)
        return handler  # type: ignore[no-any-return]
