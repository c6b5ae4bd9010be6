"""A reader of one pool asks every method that reads while jobs of another pool exist: nothing tells their names or ids,
over gRPC, the JSON gateway and the Aurora bridge.

The same requests of an administrator show what there would be to see.
"""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from services.access.methods import request_class
from services.aurorabridge.methods import METHODS
from services.aurorabridge.thrift import api
from tests.e2e.every_method import Place, list_public, make_request
from tests.e2e.local import Cluster, job_config, shell, temporary
from tests.e2e.shared import Forked
from tests.unit.aurorabridge.calling import ENCODINGS
from tests.unit.aurorabridge.scenario import thermos_data

pytestmark = pytest.mark.xdist_group("other-pools")
CANARY = "canary"
EXPLAIN = "/peloton.api.v0.explain.ExplainService"
SERVICES = "/peloton.api.v1alpha.job.stateless.svc.JobService"
WATCH = "/peloton.api.v1alpha.watch.svc.WatchService/Watch"
STREAM_S, CALL_S, MESSAGES_MAX = 2.0, 30.0, 50
ROLES = """
[[binding]]
role = "reader"
subjects = ["user:rita"]
pools = ["/a", "/c"]

[[binding]]
role = "operator"
subjects = ["user:olaf"]
pools = ["/a", "/c"]

[[binding]]
role = "admin"
subjects = ["user:ada"]
"""
KEY = {"role": CANARY, "environment": CANARY, "name": CANARY}
SERVICE = "/".join(KEY.values())
SEEN_BY_ADMIN = {
    f"/peloton.api.{path}"
    for path in (
        "job.JobManager/Get", "job.JobManager/Query", "task.TaskManager/GetPodEvents",
        "v0.explain.ExplainService/PoolPlan", "v0.explain.ExplainService/JobPlan",
        "v0.explain.ExplainService/JobWhy", "v0.explain.ExplainService/PoolWhy",
        "v0.overview.OverviewService/GetHostPods",
        "v0.table.JobTableService/ListJobs", "v0.lookup.LookupService/Find",
        "v1alpha.job.stateless.svc.JobService/ListJobs", "v1alpha.job.stateless.svc.JobService/GetJobIDFromJobName",
        "v1alpha.pod.svc.PodService/GetPodEvents", "v1alpha.watch.svc.WatchService/Watch",
    )
}  # fmt: skip
"""Methods whose answers have the canary or its id for an administrator."""


@dataclass
class World:
    """A full cluster: pods of /a were evicted for a job of /b, and both use what is reserved for /c."""

    cluster: Cluster
    tokens: dict[str, str]
    third_pool: str
    mine: Place
    theirs: Place
    marks: tuple[str, ...] = ()
    """Names and ids of what is in /b."""

    def find(self, answer: str, request: str) -> list[str]:
        """Return the marks in an answer that the request does not have."""
        return [mark for mark in self.marks if mark in answer and mark not in request]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("other-pools")
    tokens, lines = {}, []
    for name in ("rita", "olaf", "ada"):
        tokens[name], row = make_token(name, CallerKind.USER, (), 0.0, time.time(), os.urandom(RANDOM_BYTES))
        lines.append(row.to_line())
    files = {"TOKENS": "\n".join(lines), "ROLES": ROLES, "ROLE_TOKEN": "r" * 40}
    environment = {"PELOTON_AURORA_POOL": "/b"}
    for name, text in files.items():
        (folder / name).write_text(text)
        environment[f"PELOTON_AUTH_{name}_FILE"] = str(folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PELOTON_TOKEN", tokens["ada"])
        with Forked(temporary(folder / "data", environment=environment, web=True, bridge=True)) as cluster:
            yield fill(cluster, tokens)


def sleepers(cluster: Cluster, pool: str, count: int, **more: Any) -> str:
    """Submit pods of one cpu that wait for their end."""
    return cluster.submit(pool, instanceCount=count, defaultConfig=shell("sleep 600", cpu=1.0), **more)


def fill(cluster: Cluster, tokens: dict[str, str]) -> World:
    """Fill the cluster by /a, take a part of it back for /b, and queue jobs of both."""
    cluster.wait(lambda: cluster.capacity() > 0, "hosts")
    cpus = int(cluster.capacity())
    half = cpus // 2
    pools = {name: cluster.pool(name, own_cpu=own) for name, own in (("a", half - 1), ("b", half - 1), ("c", 2))}
    mine = sleepers(cluster, pools["a"], cpus, name="mine")
    cluster.wait(lambda: cluster.counts(mine).get("RUNNING") == cpus, "a full cluster")
    started = call_bridge(cluster, tokens["ada"], "startJobUpdate", request=aurora_request())
    assert "responseCode=1," in started, started
    theirs = sleepers(cluster, pools["b"], half + 2, name=f"{CANARY}-batch", owningTeam=f"{CANARY}-team")
    cluster.wait(
        lambda: cluster.counts(theirs).get("RUNNING") == half, "pods of the canary instead of half of the others"
    )
    waiting = sleepers(cluster, pools["b"], 2, name=f"{CANARY}-waits", owningTeam=f"{CANARY}-team")
    jobs = cluster.client.services.ListJobs(stateless_svc_pb2.ListJobsRequest())
    service = next(job.job_id.value for answer in jobs for job in answer.jobs if job.name == SERVICE)
    evicted = next(instance for instance, run in cluster.run_ids(mine).items() if run > 1)
    host = cluster.task(theirs).runtime.host
    places = (
        Place("/a", pools["a"], mine, "mine", host, evicted),
        Place("/b", pools["b"], theirs, f"{CANARY}-batch", host),
    )
    return World(cluster, tokens, pools["c"], *places, marks=(CANARY, theirs, waiting, service))


def aurora_request() -> Any:
    task = api.TaskConfig(
        job=api.JobKey(**KEY),
        owner=api.Identity(user=CANARY),
        isService=True,
        tier="revocable",
        resources=[api.Resource(numCpus=0.01), api.Resource(ramMb=8), api.Resource(diskMb=1)],
        container=api.Container(docker=api.DockerContainer(image="alpine", parameters=[])),
        executorConfig=api.ExecutorConfig(name="AuroraExecutor", data=thermos_data("sleep 600")),
    )
    settings = api.JobUpdateSettings(updateGroupSize=1, maxPerInstanceFailures=0, maxFailedInstances=0)
    return api.JobUpdateRequest(taskConfig=task, instanceCount=1, settings=settings)


def list_requests(world: World) -> Iterator[tuple[str, Message]]:
    """Yield the requests of each method: without a name, for the reader's own job, for that of others, and plans."""
    for path in list_public():
        yield path, request_class(path)()
        for place in (world.mine, world.theirs):
            yield path, make_request(path, place)
            narrow = make_request(path, place)  # names of jobs alone: no other field excludes them
            for field in narrow.DESCRIPTOR.fields:
                if field.name not in ("job_name", "name", "names", "text", "query"):
                    narrow.ClearField(field.name)
            yield path, narrow
    plan = job_config(world.third_pool, instanceCount=9, defaultConfig=shell("true", cpu=1.0))
    yield f"{EXPLAIN}/JobPlan", explain_pb2.JobPlanRequest(config=plan)
    for name, cpu in (("b", 1.0), ("new", 2.0)):
        pool = respool_pb2.ResourcePoolConfig(name=name, parent=ResourcePoolID(value="root"))
        for kind, limit in (("cpu", cpu), ("memory", 1_000), ("disk", 1_000), ("gpu", 0)):
            pool.resources.add(kind=kind, limit=limit, share=1)
        yield f"{EXPLAIN}/PoolPlan", explain_pb2.PoolPlanRequest(config=pool)
    for name in (SERVICE, world.theirs.job_name):
        yield f"{SERVICES}/GetJobIDFromJobName", stateless_svc_pb2.GetJobIDFromJobNameRequest(job_name=name)
    for watched in ("stateless_job_filter", "pod_filter"):
        watch = watch_svc_pb2.WatchRequest(start_revision=1)
        getattr(watch, watched).SetInParent()
        yield WATCH, watch


def ask(channel: grpc.Channel, path: str, request: Message, token: str) -> str:
    """Return all that a call answers: messages as text and as bytes, or the text and details of its refusal."""
    name = path.rpartition("/")[2]
    metadata = (("authorization", f"Bearer {token}"),)
    is_stream = name in ("Watch", "ListJobs", "ListPods") and "v1alpha" in path
    multi: Any = channel.unary_stream if is_stream else channel.unary_unary
    found: list[str] = []
    try:
        timeout_s = STREAM_S if name == "Watch" else CALL_S
        answer = multi(path)(request.SerializeToString(), metadata=metadata, timeout=timeout_s)
        for number, raw in enumerate(answer if is_stream else [answer]):
            found.append(bytes(raw).decode("latin-1"))
            if number == MESSAGES_MAX:
                break
    except grpc.RpcError as error:
        call: Any = error
        found += [str(call.details()), *(str(value) for _, value in call.trailing_metadata() or ())]
    return "\n".join(found)


def test_no_method_shows_other_pools(world: World) -> None:
    """The canary is in no answer and no refusal, of any method by any name, with or without names in the request."""
    leaks, seen, own = [], set(), set()
    with grpc.insecure_channel(world.cluster.local.address) as channel:
        for path, request in list_requests(world):
            sent = request.SerializeToString().decode("latin-1")
            answer = ask(channel, path, request, world.tokens["rita"])
            leaks += [f"{path} {mark}: {request}" for mark in world.find(answer, sent)]
            if world.mine.job_id in answer:
                own.add(path)
            if world.find(ask(channel, path, request, world.tokens["ada"]), sent):
                seen.add(path)
    assert [] == leaks
    assert set() == SEEN_BY_ADMIN - seen
    assert {"/peloton.api.job.JobManager/Query", "/peloton.api.v0.lookup.LookupService/Find"} <= own


def test_no_refusal_of_a_change_shows_other_pools(world: World) -> None:
    """A reader who tries to change what is in other pools learns no names by it."""
    leaks = []
    with grpc.insecure_channel(world.cluster.local.address) as channel:
        for path in list_public(changes=True):
            request = make_request(path, world.theirs)
            answer = ask(channel, path, request, world.tokens["rita"])
            assert "may not call" in answer, (path, answer)
            leaks += [f"{path} {mark}" for mark in world.find(answer, request.SerializeToString().decode("latin-1"))]

    assert [] == leaks


def test_numbers_of_other_pools_stay(world: World) -> None:
    """A reason and a plan say that there is a job of another pool, and how much of it."""
    said: dict[str, str] = {}
    token = world.tokens["rita"]
    with grpc.insecure_channel(world.cluster.local.address) as channel:
        for path, request in list_requests(world):
            said[path] = said.get(path, "") + ask(channel, path, request, token)

    for path in ("/peloton.api.task.TaskManager/GetPodEvents", "/peloton.api.v1alpha.pod.svc.PodService/GetPodEvents"):
        assert "preempted for a job of another pool of /b, which wants cpu 1" in said[path]
    for name in ("JobPlan", "PoolPlan"):
        assert "of a job of another pool" in said[f"{EXPLAIN}/{name}"]


def test_the_json_gateway_shows_no_more(world: World) -> None:
    """The pages pass the credentials of the reader on, and the api redacts."""
    leaks = []
    for path, request in list_requests(world):
        name = path.rpartition("/")[2]
        if name == "Watch":
            continue
        content = MessageToJson(request).encode()
        call = urllib.request.Request(
            f"{world.cluster.local.web_url.rstrip('/')}/api{path}",
            content,
            {"content-type": "application/json", "authorization": f"Bearer {world.tokens['rita']}"},
        )
        try:
            with urllib.request.urlopen(call, timeout=CALL_S) as answer:
                text = answer.read().decode("latin-1")
        except urllib.error.HTTPError as error:
            text = error.read().decode("latin-1")
        leaks += [f"{path} {mark}: {request}" for mark in world.find(text, content.decode())]

    assert [] == leaks


def call_bridge(cluster: Cluster, token: str, method: str, **arguments: Any) -> str:
    """Return the answer of a method of Aurora's API as text."""
    used = ENCODINGS["binary"]
    call = urllib.request.Request(
        cluster.local.bridge_url,
        used.write(method, **arguments),
        {**used.headers(method), "authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(call, timeout=60) as answer:
            return str(used.read(method, answer.read()))
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_the_aurora_bridge_shows_no_more(world: World) -> None:
    """Clients with keys of jobs of other pools, and without any, see none of them."""
    key = api.JobKey(**KEY)
    arguments: dict[str, list[dict[str, Any]]] = {
        "getJobSummary": [{}, {"role": CANARY}],
        "getJobs": [{}, {"ownerRole": CANARY}],
        "getTasksWithoutConfigs": [{"query": api.TaskQuery()}, {"query": api.TaskQuery(jobKeys=[key])}],
        "getConfigSummary": [{"job": key}],
        "getJobUpdateSummaries": [{"jobUpdateQuery": api.JobUpdateQuery()}],
        "getJobUpdateDetails": [{"query": api.JobUpdateQuery()}, {"query": api.JobUpdateQuery(jobKey=key)}],
        "getJobUpdateDiff": [{"request": aurora_request()}],
        "getTierConfigs": [{}],
    }
    assert {name for name in METHODS if name.startswith("get")} == set(arguments)
    seen = set()
    for method, calls in arguments.items():
        for given in calls:
            answer = call_bridge(world.cluster, world.tokens["rita"], method, **given)
            assert not [mark for mark in world.marks if mark in answer and mark not in str(given)], (method, answer)
            if CANARY in call_bridge(world.cluster, world.tokens["ada"], method, **given):
                seen.add(method)

    assert {"getJobSummary", "getJobs", "getTasksWithoutConfigs", "getJobUpdateSummaries"} <= seen


def test_changes_in_an_own_pool_show_an_operator_no_other(world: World) -> None:
    """An operator changes all that there is in one pool, by names of another: jobs end, and this test is the last."""
    mine, theirs = world.mine, world.theirs
    by_name = replace(mine, job_name=theirs.job_name)
    leaks, allowed = [], set()
    with grpc.insecure_channel(world.cluster.local.address) as channel:
        for path in list_public(changes=True):
            for place in (theirs, by_name):
                request = make_request(path, place)
                sent = request.SerializeToString().decode("latin-1")
                answer = ask(channel, path, request, world.tokens["olaf"])
                leaks += [f"{path} {mark}: {answer}" for mark in world.find(answer, sent)]
                if place is by_name and "may not call" not in answer:
                    allowed.add(path.rpartition("/")[2])

    assert [] == leaks
    assert {"Stop", "Restart", "StopJob", "DeleteJob", "AbortJobWorkflow"} <= allowed
