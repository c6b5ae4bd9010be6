"""The table of jobs at a million of them: the cost of a page for each filter."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection

from peloton.api import convert
from peloton.api.convert import JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS, POD_STATE_NUMBERS
from peloton.api.v0.job import job_pb2
from peloton.model.ids import new_job_id
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from peloton.model.times import NS_PER_S
from services.storage import migrate
from services.storage.jobs.job_table import JobFilter, JobTable
from services.storage.storage import Storage
from services.storage.tables import JOB
from tests.bench.figures import Times
from tests.postgres import running_postgres

JOBS = 1_000_000
POOLS, OWNERS = 200, 300
CALL_MS_TARGET = 250.0
ROWS_PER_WRITE = 20_000
NOW_NS = 1_790_000_000 * NS_PER_S
_STATES = {
    JobState.SUCCEEDED: 0.9,
    JobState.FAILED: 0.06,
    JobState.KILLED: 0.02,
    JobState.RUNNING: 0.015,
    JobState.PENDING: 0.005,
}
_POD_STATE = {JobState.PENDING: PodState.PENDING}
_SEARCH = json.dumps({"defaultconfig": {"command": {"value": "python -m tool --day {day}" + " --part" * 80}}})


def fill(storage: Storage, count: int = JOBS, seed: int = 1) -> None:
    """Jobs of every kind, one a second; all but a few have ended, services are rare."""
    draw = random.Random(seed)
    rows = _rows(draw, count)
    while part := [row for row, _ in zip(rows, range(ROWS_PER_WRITE), strict=False)]:
        storage.db.write(partial(_insert, part))


def _insert(rows: list[dict[str, Any]], conn: Connection) -> None:
    conn.execute(JOB.insert(), rows)


def _rows(draw: random.Random, count: int) -> Iterator[dict[str, Any]]:
    states, weights = list(_STATES), list(_STATES.values())
    for number in range(count):
        kind = JobType.SERVICE if number % 1_000 == 0 else JobType.BATCH
        state = JobState.RUNNING if kind is JobType.SERVICE else draw.choices(states, weights)[0]
        created_ns = NOW_NS - (count - number) * NS_PER_S
        instances = draw.randint(1, 100)
        owner = f"team-{draw.randrange(OWNERS)}"
        labels = [["team", owner], ["tier", draw.choice("abc")], ["run", str(number % 5_000)]]
        has_ended = state not in (JobState.RUNNING, JobState.PENDING)
        pod_state = _POD_STATE.get(state, PodState(state.value))
        yield {
            "job_id": str(uuid.UUID(int=draw.getrandbits(128), version=4)),
            "name": f"{draw.choice(('etl', 'train', 'tiles', 'report'))}-{number % 9_973}",
            "type": JOB_TYPE_NUMBERS[kind],
            "owning_team": owner,
            "respool_id": f"00000000-0000-4000-8000-{draw.randrange(POOLS):012d}",
            "instance_count": instances,
            "priority": draw.randrange(10),
            "preemptible": True,
            "revocable": False,
            **dict.fromkeys(("maximum_running_instances", "minimum_running_instances", "max_running_time_s"), 0),
            "maximum_unavailable_instances": 0,
            "strict_updates": False,
            "state": JOB_STATE_NUMBERS[state],
            "goal": JOB_STATE_NUMBERS[JobState.SUCCEEDED],
            **dict.fromkeys(("config_version", "state_version", "desired_state_version", "workflow_version"), 1),
            "has_controller": False,
            "pod_counts": json.dumps({POD_STATE_NUMBERS[pod_state]: instances}),
            "labels": json.dumps(labels),
            "search": _SEARCH.replace("{day}", str(number)),
            "created_ns": created_ns,
            "started_ns": created_ns + NS_PER_S,
            "completed_ns": created_ns + 60 * NS_PER_S if has_ended else 0,
            "updated_ns": created_ns + 60 * NS_PER_S,
            "run_seconds": 50.0 * instances,
            "revision": 4,
            "update_id": "",
        }


@dataclass(frozen=True)
class Size:
    jobs: int = JOBS
    page: int = 50
    rounds: int = 5
    instances: int = 100_000


def job_table(size: Size = Size(), database: str = "") -> dict[str, Any]:
    """The first page, a page beyond and the count of each filter; every page of a name that no job has; and the states
    of all instances of a large job. The slowest call counts. On SQLite, unless another ``database`` is given."""
    with TemporaryDirectory() as folder:
        url = database or f"sqlite:///{folder}/jobs.db"
        migrate.upgrade(url)
        with closing(Storage(url)) as storage:
            fill(storage, size.jobs)
            found = {name: _measure(storage.job_table, wanted, size) for name, wanted in _filters(size.jobs).items()}
            to_the_end = _walk(storage.job_table, JobFilter(name_part="nosuch"), size)
            states_ms = _states_ms(storage, size)
    slowest = max(ms for one in (*found.values(), to_the_end) for name, ms in one.items() if name.endswith("_ms"))
    return {
        "database": "postgresql" if database else "sqlite",
        "jobs": size.jobs,
        "page": size.page,
        "filters": found,
        "no_such_name": to_the_end,
        "states_of_100k_ms": states_ms,
        "slowest_ms": slowest,
        "ratio_to_target": round(slowest / CALL_MS_TARGET, 3),
    }


def job_table_postgres(size: Size = Size()) -> dict[str, Any]:
    with running_postgres() as server:
        return job_table(size, server.create_database())


def _filters(jobs: int) -> dict[str, JobFilter]:
    pools = [f"00000000-0000-4000-8000-{number:012d}" for number in range(POOLS)]
    old_ns = NOW_NS - jobs * 9 // 10 * NS_PER_S
    running, failed = frozenset({JobState.RUNNING}), frozenset({JobState.FAILED})
    return {
        "all": JobFilter(),
        "pool": JobFilter(pools=frozenset(pools[:1])),
        "pools_20": JobFilter(pools=frozenset(pools[:20])),
        "pools_100": JobFilter(pools=frozenset(pools[:100])),
        "owner": JobFilter(owner="team-7"),
        "running": JobFilter(states=running),
        "services": JobFilter(types=frozenset({JobType.SERVICE})),
        "pool_and_failed": JobFilter(pools=frozenset(pools[:1]), states=failed),
        "pool_owner_running": JobFilter(pools=frozenset(pools[:1]), owner="team-7", states=running),
        "label": JobFilter(labels=(("tier", "a"),)),
        "rare_label": JobFilter(labels=(("run", "4711"),)),
        "name_part": JobFilter(name_part="iles-77"),
        "name_prefix": JobFilter(name_prefix="tiles-77"),
        "old_day": JobFilter(created=(old_ns, old_ns + 86_400 * NS_PER_S)),
        "old_day_no_name": JobFilter(created=(old_ns, old_ns + 86_400 * NS_PER_S), name_part="nosuch"),
    }


def _measure(table: JobTable, wanted: JobFilter, size: Size) -> dict[str, float]:
    first, beyond, count = Times(), Times(), Times()
    for _ in range(size.rounds):
        page = first.take(lambda: table.page(wanted, size.page))
        if page.next is not None:
            beyond.take(lambda at=page.next: table.page(wanted, size.page, at))
        count.take(lambda: table.count(wanted))
    found = {"first_ms": max(first.wall_ms), "count_ms": max(count.wall_ms), "rows": len(page.jobs)}
    return found | ({"next_ms": max(beyond.wall_ms)} if beyond.wall_ms else {})


def _walk(table: JobTable, wanted: JobFilter, size: Size) -> dict[str, float]:
    times, at = Times(), None
    while True:
        page = times.take(lambda at=at: table.page(wanted, size.page, at))
        if (at := page.next) is None:
            return {"calls": len(times.wall_ms), "all_s": sum(times.wall_ms) / 1_000, "slowest_ms": max(times.wall_ms)}


def _states_ms(storage: Storage, size: Size) -> float:
    config = job_pb2.JobConfig(name="grid", instanceCount=size.instances)
    record = convert.new_job_record(new_job_id(), config, NOW_NS)
    storage.jobs.create(record, config, NOW_NS)
    storage.pods.create(record.job_id, lambda _: None)
    times = Times()
    for _ in range(size.rounds):
        states, _ = times.take(lambda: storage.pods.states(record.job_id, 0, size.instances))
        assert len(states) == size.instances
    return max(times.wall_ms)
