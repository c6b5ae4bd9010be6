"""Peloton's OverviewService over real storage and host managers with canned answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc, resmgr_pb2, resmgr_pb2_grpc
from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.api.v0.overview.overview_pb2_grpc import OverviewServiceStub
from peloton.api.v0.task import task_pb2
from peloton.model.diagnosis import ProcessRecord
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname
from peloton.model.pod import PodState
from peloton.model.times import NS_PER_S
from peloton.model.workflow_trouble import FailingActivity, TemporalSnapshot
from services.api.overview_service import HOSTS_KEPT
from services.api.server import start
from services.storage.storage import Storage
from tests.conformance.storage import builders
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import ID, JOB, expect_refusal


class HostManager:
    """The host manager of a cluster with two hosts and two problems."""

    def __init__(self, name: str) -> None:
        self.name, self.server, self.problem_count = name, grpc.aio.server(), 1
        self.uses: list[hostmgr_pb2.PodUse] | None = None  # no usage is measured
        self.measured: list[list[str]] = []  # the hosts of each call

    async def serve(self) -> str:
        service: Any = self
        hostmgr_pb2_grpc.add_ViewsServicer_to_server(service, self.server)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        return address

    async def DescribeCluster(self, request: Any, context: Any) -> Any:
        found = pb.ClusterOverview(cluster=self.name, cluster_kind="mesos", hosts=pb.HostCounts(total=2))
        problems = [pb.Problem(severity=pb.SEVERITY_WARNING, text=f"{self.name}{n}") for n in range(self.problem_count)]
        return hostmgr_pb2.DescribeClusterResponse(overview=found, problems=problems, problems_left_out=3)

    async def MapHosts(self, request: Any, context: Any) -> Any:
        if request.known_version == f"v-{self.name}":
            return pb.HostMap(cluster=self.name, version=f"v-{self.name}", is_unchanged=True)
        return pb.HostMap(cluster=self.name, version=f"v-{self.name}", hostnames=[f"{self.name}1", f"{self.name}2"])

    async def MeasurePods(self, request: Any, context: Any) -> Any:
        self.measured.append(sorted(request.hostnames))
        if self.uses is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return hostmgr_pb2.MeasurePodsResponse(pods=self.uses)


class ResourceManager:
    """A resource manager with a queue whose first gang never starts, and one whose first gang waits."""

    def __init__(self) -> None:
        self.server, self.asked = grpc.aio.server(), 0
        self.problems: list[pb.Problem] | None = None  # None: an older version without problems

    async def serve(self) -> str:
        service: Any = self
        explain_pb2_grpc.add_ExplainServiceServicer_to_server(service, self.server)
        resmgr_pb2_grpc.add_ProblemsServicer_to_server(service, self.server)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        return address

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    async def FindProblems(self, request: Any, context: Any) -> Any:
        if self.problems is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        return resmgr_pb2.FindProblemsResponse(problems=self.problems)

    async def PoolWhy(self, request: Any, context: Any) -> Any:
        self.asked += 1
        heads = [
            explain_pb2.QueueHead(
                poolPath=path,
                head=explain_pb2.WaitingGangs(
                    jobId=ID, gangCount=1, reason=explain_pb2.Reason(isFinal=path == "/a", text="no")
                ),
            )
            for path in ("/a", "/b")
        ]
        return explain_pb2.PoolWhyResponse(queues=heads if request.path.value == "/" else [])


class Watch:
    """A watch of Temporal whose result tests set."""

    address = "temporal:7233"
    seen = TemporalSnapshot()

    async def read_snapshot(self) -> TemporalSnapshot:
        return self.seen


class World:
    """Two clusters and a resource manager behind an api."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.managers = {name: HostManager(name) for name in ("east", "west")}
        self.resmgr, self.watch = ResourceManager(), Watch()
        self.addresses: dict[str, str] = {}
        self.resmgr_address: str | None = None

    async def start(self) -> None:
        self.addresses = {name: await manager.serve() for name, manager in self.managers.items()}
        self.resmgr_address = await self.resmgr.serve()
        now_s = time.time()
        for role in ("resmgr", "hostmgr/east", "hostmgr/west"):
            self.storage.leases.acquire(role, "me", f"{role}:1", 600.0, now_s)
        wakes = RecordedWakes()
        self.server = await start(
            self.storage, wakes, lambda _: self.resmgr_address, "127.0.0.1:0",
            clusters=lambda: self.addresses, temporal={"target_host": "temporal:7233", "namespace": "prod"},
            watch=self.watch,
        )  # fmt: skip
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.stub: Any = OverviewServiceStub(self.channel)

    async def stop(self) -> None:
        await self.channel.close()
        await self.server.stop(0)
        for server in [self.resmgr.server, *(manager.server for manager in self.managers.values())]:
            await server.stop(None)


@pytest.fixture
async def world(storage: Storage) -> AsyncIterator[World]:
    world = World(storage)
    await world.start()
    yield world
    await world.stop()


@pytest.fixture
def overview(world: World) -> Any:
    return world.stub


def list_texts(answer: pb.GetOverviewResponse) -> list[str]:
    return [problem.text for problem in answer.problems]


async def test_clusters_roles_and_problems_are_put_together(overview: Any) -> None:
    """A gang that never starts is a problem of its pool; Temporal's address is from the settings."""
    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert ["east", "west"] == [one.cluster for one in answer.clusters]
    assert [2, 2] == [one.hosts.total for one in answer.clusters]
    assert [f"1 gang of job {JOB} in pool /a will never start: no", "east0", "west0"] == list_texts(answer)
    assert 6 == answer.problems_left_out
    assert ["hostmgr/east", "hostmgr/west", "resmgr"] == [role.role for role in answer.roles]
    assert all(role.address and 0 < role.seconds_left <= 600 for role in answer.roles)
    assert ("temporal:7233", "prod") == (answer.temporal_address, answer.temporal_namespace)


async def test_reasons_of_stuck_workflows_are_reported(world: World, overview: Any, storage: Storage) -> None:
    """Temporal reports missing workers, and workers report failing activities with their jobs, unless the worker's
    report is stale."""
    job, now_ns = builders.a_running_job(storage, 1), time.time_ns()
    world.watch.seen = TemporalSnapshot("", 2, ["a", "b"])
    storage.activity_reports.put("w1", [FailingActivity(f"job/{job}", "enqueue", 11, "no leader", 5)], 1, now_ns)
    old = now_ns - 60 * NS_PER_S
    storage.activity_reports.put("w2", [FailingActivity(f"job/{job}", "kill_queued", 99, "no leader", 5)], 1, old)

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    worst, *others = list_texts(answer)
    assert worst.startswith("No worker takes work from Temporal: all 2 task queues are without one; no job starts")
    name = storage.overview.job_names([job])[job]
    assert f"The workflow of job {name} waits: its activity enqueue is on attempt 11: no leader" in others
    assert not [text for text in others if "kill_queued" in text]


async def test_temporal_that_is_away_is_reported(world: World, overview: Any) -> None:
    """The outage is the first of all problems."""
    world.watch.seen = TemporalSnapshot("connection refused")

    worst, *_ = (await overview.GetOverview(pb.GetOverviewRequest())).problems

    assert worst.text.startswith("Temporal at temporal:7233 does not answer (connection refused): no job starts")
    assert (pb.SEVERITY_CRITICAL, "temporal") == (worst.severity, worst.subject_id)


async def test_jobs_and_pods_are_counted(overview: Any, storage: Storage) -> None:
    """The answer has the counts and their time."""
    builders.a_running_job(storage, 3)

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert ({"RUNNING": 1}, {"RUNNING": 3}) == (dict(answer.jobs), dict(answer.pods))
    assert answer.counted_time


async def test_a_silent_cluster_is_named(world: World, overview: Any) -> None:
    """The worst problems come first: a role without a leader precedes a leader that does not answer."""
    await world.managers["west"].server.stop(None)
    world.addresses["east"] = ""
    world.storage.leases.release("hostmgr/east", "me")

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert [True, True] == [one.is_silent for one in answer.clusters]
    assert list_texts(answer)[0].startswith("No process leads the role hostmgr/east.")
    assert "The host manager of cluster west leads and does not answer within 1 s" == list_texts(answer)[1]
    east = next(role for role in answer.roles if role.role == "hostmgr/east")
    assert "" == east.address


async def test_no_resource_manager(world: World, overview: Any) -> None:
    """A resource manager that does not answer is named as well, and the rest of the answer is complete."""
    await world.resmgr.server.stop(None)

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert list_texts(answer)[0].startswith("The resource manager leads and does not answer")
    assert ["east", "west"] == [one.cluster for one in answer.clusters]


async def test_the_resource_manager_reports_what_is_wrong(world: World, overview: Any) -> None:
    """The answer has the resource manager's own problems as well as the ones found in its queues."""
    world.resmgr.problems = [
        pb.Problem(severity=pb.SEVERITY_WARNING, text="Job j fits no host", subject_kind=pb.SUBJECT_KIND_JOB)
    ]

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert "Job j fits no host" in list_texts(answer)


async def test_locks_are_reported(world: World, overview: Any) -> None:
    """A lock precedes less severe problems."""
    world.storage.lockdowns.set("Launch", True)

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert list_texts(answer)[0].startswith("Launch is locked: no pod is launched until")


async def test_the_resource_manager_is_asked_now_and_then(world: World, overview: Any) -> None:
    """The resource manager receives one request for several callers."""
    for _ in range(3):
        answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert 1 == world.resmgr.asked
    assert "will never start" in list_texts(answer)[0]


async def test_problems_are_bounded(world: World, overview: Any) -> None:
    """The number left out includes the problems that host managers left out."""
    world.managers["east"].problem_count = 60

    answer = await overview.GetOverview(pb.GetOverviewRequest())

    assert (50, 12 + 6) == (len(answer.problems), answer.problems_left_out)


async def test_maps_of_all_clusters(world: World, overview: Any) -> None:
    """A version that the caller already has is answered without hosts; clusters without an answer are named."""
    known = {"east": "v-east", "west": "old"}
    answer = await overview.GetHostMap(pb.GetHostMapRequest(known_versions=known))

    assert [(True, []), (False, ["west1", "west2"])] == [(m.is_unchanged, list(m.hostnames)) for m in answer.maps]
    world.addresses["west"] = ""
    answer = await overview.GetHostMap(pb.GetHostMapRequest())
    assert (["east"], ["west"]) == ([m.cluster for m in answer.maps], list(answer.silent_clusters))


async def test_pods_of_a_host(
    overview: Any, storage: Storage, jobs: Any, config: Callable[..., job_pb2.JobConfig]
) -> None:
    """Each pod has its pool's path and the values of the wire."""
    wanted = config(4, name="tiles")
    wanted.sla.priority = 9
    storage.hosts.claim("west", ["host0", "empty"])
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted))
    storage.pods.create(JOB, lambda _: None)
    storage.jobs.settle(JOB, builders.NOW)
    builders.admit(storage, JOB)
    launched = sorted(builders.launch(storage, JOB))
    builders.report(storage, JOB, launched, PodState.RUNNING)

    answer = await overview.GetHostPods(pb.GetHostPodsRequest(hostname="host0"))

    assert [0, 3] == [pod.instance_id for pod in answer.pods]
    pod = answer.pods[0]
    assert (f"{JOB}-0-1", "tiles", "/eng/maps", 9, "shared") == (
        pod.pod_id, pod.job_name, pod.pool_path, pod.priority, pod.workload
    )  # fmt: skip
    assert (job_pb2.BATCH, task_pb2.RUNNING, 1.0, 64.0) == (
        pod.job_type, pod.state, pod.asked.cpu, pod.asked.memory_mib
    )  # fmt: skip
    assert pod.since
    assert not answer.has_more
    assert [] == list((await overview.GetHostPods(pb.GetHostPodsRequest(hostname="empty"))).pods)


async def test_events_of_hosts(overview: Any, storage: Storage) -> None:
    """The events are of one host or of all, by page, the newest first; invalid numbers are refused with the limit."""
    kinds, now_ns, ask = [HostEventKind.AVOIDED, HostEventKind.LEFT], builders.NOW, pb.ListHostEventsRequest
    events = [
        HostEvent(Hostname(f"host{at % 2}"), kinds[at % 2], f"Event {at}", now_ns, "west", at and now_ns + at * 10**9)
        for at in range(120)
    ]
    storage.host_events.add(events)

    first = await overview.ListHostEvents(ask())
    rest = await overview.ListHostEvents(ask(before=first.events[-1].number))

    assert [(100, True), (20, False)] == [(len(page.events), page.has_more) for page in (first, rest)]
    assert [f"Event {at}" for at in reversed(range(120))] == [one.text for one in [*first.events, *rest.events]]
    newest, oldest = first.events[0], rest.events[-1]
    assert ("host1", "west", pb.HOST_EVENT_KIND_LEFT) == (newest.hostname, newest.cluster, newest.kind)
    assert newest.time < newest.until
    assert "" == oldest.until
    of_one = ask(hostname="host0", kinds=[pb.HOST_EVENT_KIND_AVOIDED], after=newest.number - 3)
    assert ["Event 118"] == [one.text for one in (await overview.ListHostEvents(of_one)).events]
    assert [] == list((await overview.ListHostEvents(ask(hostname="nobody"))).events)
    for bad, why in (
        (ask(limit=501), "501 events in one answer, the limit is 500"),
        (ask(kinds=[cast("Any", 99)]), "kind 99 is not known: want 1 to 23"),
        (ask(kinds=[pb.HOST_EVENT_KIND_INVALID]), "host event kind 0 is not known"),
        (ask(before=-1), "before -1 and after 0"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=why) as found:
            await overview.ListHostEvents(bad)
        assert grpc.StatusCode.INVALID_ARGUMENT is found.value.code()


async def test_hosts_that_are_not_there(overview: Any) -> None:
    """The service caches answers for a bounded number of hosts, unknown ones included."""
    assert (grpc.StatusCode.INVALID_ARGUMENT, "no host is named") == await expect_refusal(
        overview.GetHostPods(pb.GetHostPodsRequest())
    )
    for number in range(HOSTS_KEPT + 2):
        code, _ = await expect_refusal(overview.GetHostPods(pb.GetHostPodsRequest(hostname=f"h{number}")))
        assert grpc.StatusCode.NOT_FOUND is code


async def diagnose(world: World) -> dict[str, tuple[int, str]]:
    answer = await world.stub.GetDiagnosis(pb.GetDiagnosisRequest())
    assert abs(answer.time - time.time()) < 60
    return {one.name: (one.result, one.advice) for one in answer.checks}


async def test_a_diagnosis_checks_all_that_an_api_reaches(world: World) -> None:
    """Every check of a sound control plane is ok, and asks for nothing."""
    for role in ("resmgr", "hostmgr/east", "hostmgr/west"):
        world.storage.leases.acquire(role, "me", f"{role}:1", 10.0, time.time())
    world.resmgr.problems = []
    world.storage.processes.put(
        ProcessRecord("h:1", "api", "0.2.0", {"PELOTON_SECRETS_PROVIDER": "vault"}), time.time_ns()
    )

    found = await diagnose(world)

    assert {(pb.CHECK_RESULT_OK, "")} == set(found.values())
    assert found.keys() >= {"database", "schema", "disk", "backlog", "resmgr", "hostmgr/west", "lease hostmgr/east"}
    assert found.keys() >= {"clock of the database", "Temporal and workflows", "rules between rows"}


async def test_a_diagnosis_compares_the_processes(world: World) -> None:
    """Processes whose releases do not work together and whose settings contradict fail, with what to do."""
    world.resmgr.problems = []
    for number, (version, provider) in enumerate((("0.1.0", "vault"), ("0.3.0", "database"))):
        process = ProcessRecord(f"h:{number}", "worker", version, {"PELOTON_SECRETS_PROVIDER": provider})
        world.storage.processes.put(process, time.time_ns())

    found = await diagnose(world)

    for name in ("versions of the processes", "setting PELOTON_SECRETS_PROVIDER"):
        result, advice = found[name]
        assert (pb.CHECK_RESULT_FAIL, True) == (result, bool(advice))


async def test_a_diagnosis_names_what_does_not_answer(world: World) -> None:
    """A role that is down, a lease that no sound clock writes, and Temporal without an answer fail alone."""
    world.resmgr.problems = []
    world.addresses["west"] = "127.0.0.1:1"
    world.watch.seen = TemporalSnapshot(fault="connection refused")

    found = await diagnose(world)

    failed = {name for name, (result, _) in found.items() if result == pb.CHECK_RESULT_FAIL}
    assert {"hostmgr/west", "Temporal: role temporal"} == {name for name in failed if not name.startswith("lease")}
    assert "synchronize it by NTP" in found["lease resmgr"][1]  # leased for 600 s
    assert all(advice for result, advice in found.values() if result != pb.CHECK_RESULT_OK)
