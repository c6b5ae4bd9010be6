"""Reads of the Aurora bridge: the tasks and updates of a job of 10,000 pods, and the summary of 5,000 jobs.

Role api is a process of its own; the methods and the encoding of the bridge run in this one. No cluster runs the jobs,
which are only stored.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
import uuid
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from peloton.api import convert, convert_v1_spec
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.model.ids import ROOT_POOL_ID, JobId, new_job_id
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec
from services.api.server import start
from services.aurorabridge import reads
from services.aurorabridge.backend import Backend
from services.aurorabridge.envelopes import Encoding, Head, write_answer
from services.aurorabridge.mapping.job_spec import job_spec_of
from services.aurorabridge.mapping.opaque import Opaque
from services.aurorabridge.settings import BridgeSettings
from services.aurorabridge.thrift import api
from services.storage import migrate
from services.storage.storage import Storage
from services.storage.tables import UPDATE, UPDATE_EVENT
from tests.bench.figures import Times, cpu_s, peak_rss_mib, rss_mib
from tests.conformance.storage.services import roll, update
from tests.unit.api_service.fakes import RecordedWakes

LARGE, ROLE = api.JobKey(role="large", environment="prod", name="web"), "many"
# CPU of both processes: on a busy machine the wall time includes other processes.
TARGET_S = {"getTasksWithoutConfigs": 1.0, "getJobUpdateDetails": 1.0, "getJobSummary": 2.0}
TARGET_MIB = 100.0
ROUNDS = 3
_DATA = '{"task":{"processes":[{"cmdline":"exec ./server --port {{thermos.ports[http]}}","name":"main"}]},"pad":"%s"}'


@dataclass(frozen=True)
class Size:
    pods: int = 10_000
    updates: int = 10
    jobs: int = 5_000
    depth: int = 6  # PELOTON_AURORA_POD_RUNS_DEPTH


def make_spec(key: Any, count: int, build: str) -> JobSpec:
    """Return the spec of a job with an executor of two kilobytes, as a deploy system sends it."""
    task = api.TaskConfig(
        job=key,
        owner=api.Identity(user="ann"),
        tier="preemptible",
        resources=[api.Resource(numCpus=0.1), api.Resource(ramMb=64), api.Resource(namedPort="http")],
        constraints=[api.Constraint("host", api.TaskConstraint(limit=api.LimitConstraint(1)))],
        metadata=[api.Metadata(f"key{i}", f"value {i}") for i in range(8)] + [api.Metadata("build", build)],
        container=api.Container(mesos=api.MesosContainer(image=api.Image(docker=api.DockerImage("web", build)))),
        executorConfig=api.ExecutorConfig(name="AuroraExecutor", data=_DATA % ("x" * 2_000)),
    )
    spec = job_spec_of(api.JobUpdateRequest(taskConfig=task, instanceCount=count), "", None)
    spec.respool_id.value = ROOT_POOL_ID
    return spec


def fill(storage: Storage, size: Size) -> None:
    """Store a large job whose pods are in their second run, with the updates of a longer life, and many small jobs."""
    job_id = create(storage, make_spec(LARGE, size.pods, "0"))
    roll(storage, job_id)
    spec = make_spec(LARGE, size.pods, "1")
    config, sent = convert_v1_spec.job_config(spec), spec.SerializeToString()
    update(storage, job_id, config, UpdateSpec(), job_spec=sent, opaque=Opaque("update 1").encode())
    roll(storage, job_id)
    [newest, *_] = storage.updates.of_job(job_id)
    for number in range(2, size.updates):
        storage.db.write(partial(_copy_update, update_id=newest.update_id, number=number))
    for number in range(size.jobs):
        create(storage, make_spec(api.JobKey(ROLE, "prod", f"job{number}"), 10, "0"))


def create(storage: Storage, spec: JobSpec) -> JobId:
    job_id, now_ns, config = new_job_id(), time.time_ns(), convert_v1_spec.job_config(spec)
    record = replace(convert.new_job_record(job_id, config, now_ns), pod_counts={PodState.RUNNING: spec.instance_count})
    opaque = Opaque("update 0", message="deploy").encode()
    storage.updates.create_service(record, config, spec.SerializeToString(), UpdateSpec(), opaque, now_ns)
    return job_id


def _copy_update(conn: sa.Connection, update_id: str, number: int) -> None:
    """Copy an update with its events, under another id."""
    new_id = sa.literal(str(uuid.uuid4()), UPDATE.c.update_id.type)
    opaque = sa.literal(Opaque(f"update {number}").encode())
    given = {"update_id": new_id, "opaque_data": opaque, "created_ns": UPDATE.c.created_ns + number}
    for table, names in ((UPDATE, given.keys()), (UPDATE_EVENT, {"update_id"})):
        columns = [given[column.name] if column.name in names else column for column in table.c]
        copies = sa.select(*columns).where(table.c.update_id == update_id)
        conn.execute(table.insert().from_select([column.name for column in table.c], copies))


def serve(database: str, ready: Connection) -> None:
    """Serve role api in this process, and send its port."""

    async def run() -> None:
        with closing(Storage(database)) as storage:
            server = await start(storage, RecordedWakes(), lambda _: None, "127.0.0.1:0")
            ready.send(server.port)
            await server.wait_for_termination()

    asyncio.run(run())


def aurora_reads(size: Size = Size()) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/jobs.db"
        migrate.upgrade(database)
        with closing(Storage(database)) as storage:
            fill(storage, size)
        processes = multiprocessing.get_context("spawn")
        mine, its = processes.Pipe()
        server = processes.Process(target=serve, args=(database, its), daemon=True)
        server.start()
        try:
            return asyncio.run(_measure(size, mine.recv(), server.pid or 0))
        finally:
            server.terminate()
            server.join()


async def _measure(size: Size, port: int, api_pid: int) -> dict[str, Any]:
    bridge = Backend(f"127.0.0.1:{port}", BridgeSettings(pod_runs_depth=size.depth))
    calls = {
        "getTasksWithoutConfigs": {"query": api.TaskQuery(jobKeys=[LARGE])},
        "getJobUpdateDetails": {"key": None, "query": api.JobUpdateQuery(jobKey=LARGE)},
        "getJobSummary": {"role": ROLE},
    }
    found = {name: await _call(bridge, name, args, api_pid) for name, args in calls.items()}
    await bridge.close()
    ratios = [(one["bridge_cpu_s"] + one["api_cpu_s"]) / TARGET_S[name] for name, one in found.items()]
    ratios += [one["peak_mib"] / TARGET_MIB for one in found.values()]
    return {**asdict(size), **found, "ratio_to_target": round(max(ratios), 3)}


async def _call(bridge: Backend, name: str, args: dict[str, Any], api_pid: int) -> dict[str, float]:
    """Call a method a few times. The fastest call counts, and the memory that the bridge took on top of its own."""
    arguments = getattr(api.ReadOnlyScheduler, f"{name}_args")(**args)
    before_mib, times = rss_mib(), Times()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again here
    api_s = cpu_s(api_pid, 2)
    for _ in range(ROUNDS):
        answer = await times.take_async(lambda: _answer(bridge, name, arguments))
    return {
        "wall_s": round(min(times.wall_ms) / 1_000, 3),
        "bridge_cpu_s": round(min(times.cpu_ms) / 1_000, 3),
        "api_cpu_s": round((cpu_s(api_pid, 2) - api_s) / ROUNDS, 3),
        "peak_mib": round(peak_rss_mib() - before_mib, 1),
        "answer_mib": round(len(answer) / 2**20, 1),
    }


async def _answer(bridge: Backend, name: str, arguments: Any) -> bytes:
    result = await reads.METHODS[name](bridge, arguments)
    response = api.Response(responseCode=api.ResponseCode.OK, result=result)
    return write_answer(Head(Encoding.BARE, "ReadOnlyScheduler", name, b""), response)
