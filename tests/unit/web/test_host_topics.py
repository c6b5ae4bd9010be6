"""Topics of hosts, of schedules, and of the cluster as a whole."""

from __future__ import annotations

import base64
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.api.v0.schedule import schedule_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.errors import InvalidArgument, NotFound
from services.web.api import Api
from services.web.topics import hosts, overview, schedules, volumes


class Answers:
    """Stubs of the topics' services: each method has one answer."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            return self  # a service

        async def answer(request: Any, timeout: float) -> Any:
            self.asked.append(request)
            found = self.answers[name]
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def api_of(**answers: Any) -> tuple[Api, Answers]:
    found = Answers(**answers)
    return cast(Api, found), found


MAP = pb.HostMap(
    cluster="west",
    version="v",
    hostnames=["a", "b"],
    states=b"\x02\x03",
    pod_counts=[3, 0],
    host_pools=[1, 0],
    host_pool_names=["batch", "default"],
    kinds=[pb.KindPercents(kind="cpu", allocation=b"\x32\xff")],
)


async def test_names_and_facts_of_hosts_come_apart_and_match() -> None:
    """Names change rarely: facts omit them, and have the version of their names."""
    api, _ = api_of(GetHostMap=pb.GetHostMapResponse(maps=[MAP], silent_clusters=["east"]))

    (names,) = (await hosts.read_names(api, ""))["maps"]
    reported = await hosts.read_map(api, "")

    assert (["a", "b"], [1, 0], ["batch", "default"]) == (
        names["hostnames"], names["hostPools"], names["hostPoolNames"]
    )  # fmt: skip
    (facts,) = reported["maps"]
    assert (names["version"], ["east"]) == (facts["version"], reported["silent"])
    assert b"\x02\x03" == base64.b64decode(facts["states"])
    assert (b"\x32\xff", [3, 0]) == (base64.b64decode(facts["kinds"][0]["allocation"]), facts["podCounts"])
    assert "hostnames" not in facts


async def test_the_version_of_the_names_changes_with_them() -> None:
    """The version changes with the names only, not with the pods of hosts."""
    fuller, renamed = pb.HostMap(), pb.HostMap()
    fuller.CopyFrom(MAP)
    renamed.CopyFrom(MAP)
    fuller.pod_counts[0], renamed.hostnames[0] = 9, "ab"
    found = []
    for one in (MAP, fuller, renamed):
        api, _ = api_of(GetHostMap=pb.GetHostMapResponse(maps=[one]))
        found.append((await hosts.read_names(api, ""))["maps"][0]["version"])

    assert found[0] == found[1] != found[2]


async def test_one_host_with_its_pods_and_its_maintenance() -> None:
    """The request names the host only."""
    answers: dict[str, Any] = {
        "QueryHosts": host_svc_pb2.QueryHostsResponse(host_infos=[host_pb2.HostInfo(hostname="a")]),
        "GetHostPods": pb.GetHostPodsResponse(pods=[pb.HostPod(pod_id="p")]),
        "Query": maintenance_pb2.QueryResponse(hosts=[maintenance_pb2.HostMaintenance(hostname="a", pod_count=3)]),
    }
    api, asked = api_of(**answers)

    reported = await hosts.read_host(api, "a")

    assert ("a", "p", 3) == (
        reported["host"]["hostname"], reported["pods"]["pods"][0]["podId"], reported["maintenance"]["podCount"]
    )  # fmt: skip
    assert host_svc_pb2.QueryHostsRequest(hostnames=["a"]) in asked.asked
    api, _ = api_of(**{**answers, "Query": maintenance_pb2.QueryResponse()})
    assert (await hosts.read_host(api, "a"))["maintenance"] is None
    api, _ = api_of(**{**answers, "QueryHosts": host_svc_pb2.QueryHostsResponse()})
    with pytest.raises(NotFound, match="host a is not known"):
        await hosts.read_host(api, "a")


async def test_what_happened_to_a_host() -> None:
    """The list of events has a bound, and says whether there are more."""
    event = pb.HostEvent(hostname="a", number=7, kind=pb.HOST_EVENT_KIND_LEFT, text="Left", time="2026-01-02T03:04:05Z")
    api, asked = api_of(ListHostEvents=pb.ListHostEventsResponse(events=[event], has_more=True))

    reported = await hosts.read_events(api, "a")

    assert (["HOST_EVENT_KIND_LEFT"], True) == ([one["kind"] for one in reported["events"]], reported["hasMore"])
    assert [pb.ListHostEventsRequest(hostname="a", limit=50)] == asked.asked


async def test_the_cluster_in_one_screen() -> None:
    """The seconds of a lease are omitted, since they would change at each poll. Without the resource manager the
    demand is unknown, and the rest is complete."""
    answer = pb.GetOverviewResponse(roles=[pb.RoleLease(role="resmgr", address="here", seconds_left=3.5)])
    root = explain_pb2.PoolNode(path="/", amounts=[explain_pb2.PoolAmounts(kind="cpu", demand=4.0)])
    api, _ = api_of(GetOverview=answer, PoolTree=explain_pb2.PoolTreeResponse(pools=[root]))

    reported = await overview.read(api, "")

    assert ([{"role": "resmgr", "address": "here"}], {"cpu": 4.0}) == (
        reported["overview"]["roles"],
        reported["demand"],
    )
    away = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "away")
    api, _ = api_of(GetOverview=answer, PoolTree=away)
    assert {} == (await overview.read(api, ""))["demand"]


def make_history(cluster: str, covered_s: list[int], **columns: list[float]) -> history_pb2.ClusterHistory:
    found = history_pb2.ClusterHistory(cluster=cluster, covered_s=covered_s)
    for name, values in columns.items():
        quantity = history_pb2.Quantity.Value(f"QUANTITY_{name}")
        found.columns.append(history_pb2.Column(quantity=quantity, kind="cpu", values=values))
    return found


async def test_clusters_over_time_are_summed() -> None:
    """Intervals without samples are gaps, and each recorded cluster has the number of its missing intervals."""
    west = make_history("west", [60, 0, 60, 60], REGISTERED=[8, 0, 8, 8], ALLOCATION=[1.00049, 0, 2, 3])
    east = make_history("east", [0, 0, 60, 0], REGISTERED=[0, 0, 4, 0], HOSTS_UP=[0, 0, 1, 0])
    silent = make_history("north", [0, 0, 0, 0])
    answer = history_pb2.GetClusterHistoryResponse(
        start="2026-01-31T08:00:00Z", step_s=60, count=4, clusters=[west, east, silent]
    )
    api, asked = api_of(GetClusterHistory=answer)

    reported = await overview.over_time(api, "24/cpu")

    assert {"registered": [8, None, 12, 8], "allocation": [1.0, None, 2, 3]} == reported["series"]
    assert {"east": 1} == reported["missing"]
    assert (True, 4, 60) == (reported["isRecorded"], reported["count"], reported["stepS"])
    (request,) = asked.asked
    assert (["cpu"], 0) == (request.kinds, request.step_s)


async def test_nothing_was_recorded() -> None:
    """The answer is empty, as without any cluster."""
    api, _ = api_of(GetClusterHistory=history_pb2.GetClusterHistoryResponse(step_s=60, count=2))

    reported = await overview.over_time(api, "1/gpu")

    assert (False, {}, {}) == (reported["isRecorded"], reported["series"], reported["missing"])


async def test_other_ranges_of_clusters_are_refused() -> None:
    """Other numbers of hours are refused, as for pools."""
    api, _ = api_of()
    with pytest.raises(InvalidArgument, match="'2' hours: want 1, 6"):
        await overview.over_time(api, "2/cpu")


async def test_volumes_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are read up to the limit, and the volumes are in the order of jobs."""
    late, early = (volume_pb2.PersistentVolumeInfo(jobId=peloton_pb2.JobID(value=job)) for job in ("b", "a"))
    answer = volume_svc_pb2.ListVolumesResponse(volumes={"1": late, "2": early}, next="2")
    api, stubs = api_of(ListVolumes=answer)
    monkeypatch.setattr(volumes, "LIMIT", 3)

    reported = await volumes.read(api, "")

    assert ["a", "a", "b"] == [one["jobId"]["value"] for one in reported["volumes"]]
    assert (True, 2) == (reported["hasMore"], len(stubs.asked))


async def test_schedules_of_a_pool_or_of_all() -> None:
    """The root pool means all pools."""
    answer = schedule_pb2.ListSchedulesResponse(schedules=[schedule_pb2.Schedule(name="report")], has_more=True)
    api, stubs = api_of(ListSchedules=answer)

    reported = [await schedules.read(api, path) for path in ("/", "/eng")]

    assert [{"schedules": [{"name": "report"}], "hasMore": True}] * 2 == reported
    assert ["", "/eng"] == [request.pool_path for request in stubs.asked]
