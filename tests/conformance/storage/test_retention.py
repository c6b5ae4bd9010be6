"""Old records are deleted in bounded steps on both databases, archived before, and what lives stays."""

from __future__ import annotations

import errno
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard

from peloton.api import convert
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.retention.retention_pb2 import GetRetentionRequest
from peloton.errors import Unavailable
from peloton.lifecycle import retention as rules
from peloton.lifecycle.retention import DAY_NS, JOBS, POD_EVENTS, PODS, Cursor, plan_batch
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname, JobId, new_job_id
from peloton.model.job import JobState
from peloton.model.secret import HeldSecret, Secret
from services.resmgr.recovery import rebuild
from services.retention import runner
from services.retention.archive import LINES, MANIFEST, Archive
from services.retention.composition import policy_of
from services.retention.runner import Retention, RetentionPolicy
from services.retention.servicer import RetentionService
from services.retention.stores import FolderStore
from services.settings import Settings
from services.storage import engine
from services.storage.checks import Checks
from services.storage.jobs import jobs as jobs_module
from services.storage.jobs.plain_secrets import PlainSecrets
from services.storage.retention import records, sizes
from services.storage.retention.sizes import Sizes, TableSize
from services.storage.storage import Storage
from services.storage.tables import METADATA, POD_EVENT
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, F, S, a_config
from tests.conformance.storage.plans import plans_of, steps_of
from tests.conformance.storage.services import a_service, roll, service_config, update

DAYS = policy_of(Settings()).days
CANARY = b"canary-5f1c"


def retention_of(storage: Storage, archive: Path | None = None, **days: int) -> Retention:
    async def no_pause(_: float) -> None: ...

    policy = RetentionPolicy(days={**DAYS, **{name.replace("_", "-"): count for name, count in days.items()}})
    kept = Archive(FolderStore(archive)) if archive is not None else None
    return Retention(storage, policy, kept, storage.db.clock_ns, no_pause)


def an_ended_job(storage: Storage, count: int = 2, ended_ns: int = NOW, state: Any = S, **config: Any) -> JobId:
    job_id = world.a_running_job(storage, count, **config)
    world.report(storage, job_id, range(count), state, ended_ns)
    world.settle_all(storage, job_id, ended_ns)
    return job_id


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def rows_of(storage: Storage, job_id: JobId) -> dict[str, int]:
    """Return the rows of the job by table, without empty ones."""
    others = ("retention_progress", "status_log", "watch_log")
    tables = [table for table in METADATA.tables.values() if "job_id" in table.c and table.name not in others]

    def work(conn: sa.Connection) -> dict[str, int]:
        counting = {
            table.name: sa.select(sa.func.count()).select_from(table).where(table.c.job_id == job_id)
            for table in tables
        }
        return {name: count for name, query in counting.items() if (count := conn.execute(query).scalar_one())}

    return storage.db.read(work)


def faults_of(storage: Storage) -> list[str]:
    """Return the rules that rows break; these jobs have no pool."""
    found = [finding.check.name for finding in Checks(storage.db).findings()]
    return [name for name in found if name != "job without pool"]


def lines_in(folder: Path, group: str = "") -> list[dict[str, Any]]:
    found = []
    for path in sorted((folder / group).rglob(f"*{LINES}")):
        with path.open("rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file).read()
        found += [json.loads(line) for line in text.splitlines()]
    return found


async def test_an_ended_job_goes_in_three_steps(storage: Storage, clock: world.Clock, archive: Path) -> None:
    """Events go first, then pods, then the job; each is in the archive, and the job is remembered. Jobs that
    run, services, and jobs that ended later lose nothing. The store keeps its rules."""
    running, service = world.a_running_job(storage), a_service(storage)
    job_id, failed = an_ended_job(storage, unlike=[1]), an_ended_job(storage, 1, NOW + DAY_NS, F)
    before = {one: rows_of(storage, one) for one in (running, service)}
    whole = rows_of(storage, job_id)
    assert {"job": 1, "job_config": 1, "job_config_override": 1, "job_label": 1, "pod": 2} == {
        name: count for name, count in whole.items() if name not in ("pod_event", "job_wake")
    }
    retention = retention_of(storage, archive)

    async def at(days: float) -> dict[str, int]:
        clock.now_ns = NOW + int(days * DAY_NS)
        return {name: count for name, count in (await retention.once()).items() if count}

    assert {} == await at(6.9)
    assert {POD_EVENTS: whole["pod_event"]} == await at(7.1)
    assert {**whole, "pod_event": 0} == {**rows_of(storage, job_id), "pod_event": 0}
    events = lines_in(archive, POD_EVENTS)
    assert (whole["pod_event"], {job_id}, {"train"}) == (
        len(events), {line["job_id"] for line in events}, {line["job_name"] for line in events}
    )  # fmt: skip
    assert {"pod_event"} == {line["kind"] for line in events}
    assert ["SUCCEEDED"] * 2 == [line["state"] for line in events if line["state"] == "SUCCEEDED"]
    assert PODS in await at(14.5)
    assert not {"pod", "pod_event"} & rows_of(storage, job_id).keys()
    assert {"pod", "job"} <= rows_of(storage, failed).keys()
    assert [] == faults_of(storage)
    assert JOBS in await at(30.5)
    assert {"pruned_job": 1} == rows_of(storage, job_id)
    assert storage.jobs.get(job_id) is None

    kinds = Counter(line["kind"] for line in lines_in(archive, JOBS))
    assert {"job": 1, "config": 1, "instance_config": 1} == kinds
    (job,) = (line for line in lines_in(archive, JOBS) if line["kind"] == "job")
    assert ("SUCCEEDED", "maps", 2, "2023-11-14T22:13:20Z") == tuple(
        job[name] for name in ("state", "owner", "instance_count", "completed_time")
    )
    assert {"SUCCEEDED": 2} == job["pod_counts"]
    pods = [line for line in lines_in(archive, PODS) if line["job_id"] == job_id]
    assert [("pod", 0, "SUCCEEDED"), ("pod", 1, "SUCCEEDED")] == [
        (line["kind"], line["instance_id"], line["state"]) for line in pods
    ]
    pruned = storage.retention.find_pruned(job_id)
    assert pruned is not None
    assert (clock.now_ns, True) == (pruned.pruned_ns, (archive / pruned.archived_in).is_file())
    assert before == {one: rows_of(storage, one) for one in (running, service)}
    assert [] == faults_of(storage)
    assert {} == await at(30.6)

    assert {PODS, JOBS} >= (await at(31.5)).keys()
    assert storage.retention.find_pruned(failed) is not None
    assert rules.PRUNED_JOBS in await at(30.5 + 90.1)
    assert storage.retention.find_pruned(job_id) is None


async def test_without_an_archive_records_are_deleted_all_the_same(storage: Storage, clock: world.Clock) -> None:
    """The job is remembered without an object."""
    job_id = an_ended_job(storage)
    clock.now_ns = NOW + 31 * DAY_NS

    await retention_of(storage).once()

    pruned = storage.retention.find_pruned(job_id)
    assert pruned is not None
    assert "" == pruned.archived_in


async def test_zero_days_keep_for_ever(storage: Storage, clock: world.Clock) -> None:
    """A class whose age is 0 days loses nothing."""
    job_id = an_ended_job(storage)
    before = rows_of(storage, job_id)
    clock.now_ns = NOW + 3_000 * DAY_NS

    await retention_of(storage, pod_events=0, pods=0, jobs=0).once()

    assert before == rows_of(storage, job_id)


class Elsewhere(PlainSecrets):
    """A store of secrets in another system, which answers ``up_count`` times."""

    holder = "elsewhere"

    def __init__(self, up_count: int = 100) -> None:
        self.forgotten, self.up_count = list[JobId](), up_count

    def is_remote(self, holder: str) -> bool:
        return holder == self.holder

    def hold(self, job_id: JobId, secret: Secret) -> HeldSecret:
        return HeldSecret(secret.secret_id, secret.revision, self.holder, job_id.encode())

    def forget_job(self, job_id: JobId) -> None:
        self.up_count -= 1
        if self.up_count < 0:
            raise Unavailable("is down")
        self.forgotten.append(job_id)


def a_job_with_a_secret(storage: Storage) -> JobId:
    """Create a job that ends before it has run."""
    job_id, config = new_job_id(), a_config(1)
    config.defaultConfig.container.type = mesos_pb2.ContainerInfo.MESOS
    secret = Secret("00000000-0000-4000-8000-00000000000a", "/secrets/key", CANARY)
    storage.jobs.create(convert.new_job_record(job_id, config, NOW), config, NOW, [secret])
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    storage.pods.create(job_id, lambda _: None)
    world.settle_all(storage, job_id)
    return job_id


@pytest.mark.parametrize("up_count", [100, 1])
async def test_secrets_in_another_system_go_with_their_jobs(url: str, clock: world.Clock, up_count: int) -> None:
    """Values are deleted there after the jobs, until one fails."""
    store = Elsewhere(up_count)
    storage = Storage(url, clock, secrets=store)
    jobs = sorted(a_job_with_a_secret(storage) for _ in range(3))
    plain = an_ended_job(storage)
    clock.now_ns = NOW + 31 * DAY_NS

    await retention_of(storage).once()

    assert [None] * 4 == [storage.jobs.get(job_id) for job_id in (*jobs, plain)]
    assert jobs[:up_count] == store.forgotten
    storage.close()


async def test_secrets_are_never_archived(storage: Storage, clock: world.Clock, archive: Path) -> None:
    """The archive has the path of a secret and not its data; the data is deleted with the job."""
    job_id = a_job_with_a_secret(storage)
    job = storage.jobs.get(job_id)
    assert job is not None
    assert JobState.KILLED is job.state
    assert 1 == rows_of(storage, job_id)["job_secret"]
    clock.now_ns = NOW + 31 * DAY_NS

    await retention_of(storage, archive).once()

    assert {"pruned_job": 1} == rows_of(storage, job_id)
    assert "/secrets/key" in json.dumps(lines_in(archive, JOBS))
    for line in lines_in(archive):
        assert CANARY.decode() not in json.dumps(line)
        assert "Y2FuYXJ5" not in json.dumps(line)


@pytest.mark.parametrize("moment", ["before the object", "before the manifest", "before the deletion", "after it"])
async def test_an_interrupted_batch_is_repeated_with_the_same_object(
    storage: Storage, clock: world.Clock, archive: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Records are not deleted before their object is durable, and the repeated batch overwrites its own object."""
    job_id = an_ended_job(storage)
    clock.now_ns = NOW + 31 * DAY_NS
    whole = rows_of(storage, job_id)
    put, delete, failed = FolderStore.put, records.RetentionRecords.delete, list[str]()

    def fail() -> None:
        failed.append(moment)
        raise Unavailable("killed")

    def put_or_fail(self: FolderStore, name: str, source: Path) -> None:
        suffix = {"before the object": LINES, "before the manifest": MANIFEST}.get(moment, "-")
        if not failed and name.endswith(suffix):
            fail()
        put(self, name, source)

    def delete_or_fail(self: records.RetentionRecords, *given: Any) -> Any:
        if not failed and moment == "before the deletion":
            fail()
        done = delete(self, *given)
        if not failed and moment == "after it":
            fail()
        return done

    monkeypatch.setattr(FolderStore, "put", put_or_fail)
    monkeypatch.setattr(records.RetentionRecords, "delete", delete_or_fail)
    first = retention_of(storage, archive, pods=0, jobs=0)
    await first.once()
    left = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    assert (moment != "after it") == ("pod_event" in rows_of(storage, job_id))
    assert moment == "after it" or whole == rows_of(storage, job_id)

    await retention_of(storage, archive, pods=0, jobs=0).once()

    assert "pod_event" not in rows_of(storage, job_id)
    after = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    assert 2 == len(after)
    assert left.items() <= after.items()
    assert whole["pod_event"] == len(lines_in(archive))


async def test_a_large_job_goes_in_chunks_also_after_an_interruption(
    storage: Storage, clock: world.Clock, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction deletes more pods than its bound, and the archive is written once, before the first."""
    for module, name, value in ((records, "ROWS_MAX", 4), (jobs_module, "CHUNK_PODS", 3), (runner, "ROWS_MIN", 2),
                                (rules, "ROWS_MIN", 2), (rules, "ROWS_MAX", 4)):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    job_id = an_ended_job(storage, 10)
    clock.now_ns = NOW + 31 * DAY_NS
    retention, rests = retention_of(storage, archive, pod_events=0, pods=0), list[int]()

    def die_at_the_second(instances: int) -> None:
        rests.append(instances)
        if len(rests) == 2:
            raise Unavailable("killed")

    monkeypatch.setattr(retention, "_rest", die_at_the_second)
    await retention.once()
    assert {"job": 1, "pod": 4} == {name: rows_of(storage, job_id)[name] for name in ("job", "pod")}
    assert 10 == len([line for line in lines_in(archive, JOBS) if line["kind"] == "pod"])
    assert storage.jobs.get(job_id) is None

    await retention_of(storage, archive).once()

    assert {"pruned_job": 1} == rows_of(storage, job_id)
    assert 2 == len([path for path in archive.rglob("*") if path.is_file()])
    monkeypatch.setattr(jobs_module, "CHUNK_PODS", 1_000)
    parted = an_ended_job(storage, 9)
    await retention_of(storage, archive / "parts", pods=0, jobs=0).once()
    assert 3 <= len(list((archive / "parts").rglob(f"*{LINES}")))
    assert set(range(9)) == {line["instance_id"] for line in lines_in(archive / "parts")}
    assert "pod_event" not in rows_of(storage, parted)


def test_a_job_that_has_changed_is_left_alone(storage: Storage) -> None:
    """The transaction checks again what the plan has read."""
    job_id = an_ended_job(storage)
    found = storage.retention.list_ended(Cursor(), NOW + DAY_NS, 10)
    batch = plan_batch(JOBS, found, Cursor(), NOW + DAY_NS, 10)
    assert [job_id] == [part.job.job_id for part in batch.parts]
    other = plan_batch(JOBS, [rules.EndedJob(job_id, found[0].type, JobState.FAILED, NOW, 2)], Cursor(), NOW + 1, 10)

    assert (0, []) == storage.retention.delete(JOBS, other, None, NOW)

    assert storage.jobs.get(job_id) is not None
    assert storage.retention.find_pruned(job_id) is None


async def test_earlier_runs_of_services(storage: Storage, clock: world.Clock, archive: Path) -> None:
    """Services lose the events of old runs, except those of the current run and of the one before it, and of instances
    that they have no more; these are archived."""
    job_id = a_service(storage, 3)
    for version in ("v2", "v3"):
        update(storage, job_id, service_config(3, version))
        roll(storage, job_id)
    update(storage, job_id, service_config(2, "v3"))
    roll(storage, job_id)
    clock.now_ns = NOW + 8 * DAY_NS
    before = rows_of(storage, job_id)["pod_event"]

    await retention_of(storage, archive).once()

    def runs(conn: sa.Connection) -> set[tuple[int, int]]:
        mine = POD_EVENT.c.job_id == job_id
        return {(row.instance_id, row.run_id) for row in conn.execute(sa.select(POD_EVENT).where(mine))}

    assert {(0, 2), (0, 3), (1, 2), (1, 3)} == storage.db.read(runs)
    gone = lines_in(archive, "runs")
    assert before == len(gone) + rows_of(storage, job_id)["pod_event"]
    assert {(0, 1), (1, 1)} < {(line["instance_id"], line["run_id"]) for line in gone}
    assert {"train"} == {line["job_name"] for line in gone}


async def test_a_crash_loop_keeps_a_hundred_runs(
    storage: Storage, clock: world.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of more runs than the bound are deleted, however young they are."""
    monkeypatch.setattr(records, "RUNS_MAX", 3)
    job_id = world.a_running_job(storage, 1, retries=9)
    for _ in range(5):
        world.report(storage, job_id, [0], F)
        world.settle_all(storage, job_id)
        world.run(storage, job_id)

    await retention_of(storage).once()

    assert {4, 5, 6} == {event.run_id for event in storage.pods.events(job_id, 0, run_limit=0)}


async def test_host_events_are_archived(storage: Storage, clock: world.Clock, archive: Path) -> None:
    """Old events of hosts are in the archive, with their time and text."""
    events = [HostEvent(Hostname("h1"), HostEventKind.AVOIDED, f"{at}", NOW + at, "c", 0) for at in range(3)]
    storage.host_events.add(events)
    clock.now_ns = NOW + 31 * DAY_NS

    assert 3 == (await retention_of(storage, archive).once())[rules.HOST_EVENTS]

    assert [("h1", "AVOIDED", "0"), ("h1", "AVOIDED", "1"), ("h1", "AVOIDED", "2")] == [
        (line["hostname"], line["event"], line["text"]) for line in lines_in(archive, rules.HOST_EVENTS)
    ]
    assert [] == storage.host_events.page()


async def test_progress_says_what_was_done(storage: Storage, clock: world.Clock, archive: Path) -> None:
    """Deleted rows, archived bytes and the end of the round are stored by class."""
    an_ended_job(storage)
    clock.now_ns = NOW + 8 * DAY_NS

    deleted = await retention_of(storage, archive).once()

    progress = storage.retention.progress()
    assert deleted[POD_EVENTS] == progress[POD_EVENTS].deleted_count > 0
    assert sum(path.stat().st_size for path in archive.rglob(f"*{LINES}")) == progress[POD_EVENTS].archived_bytes
    assert (clock.now_ns, "") == (progress[JOBS].ran_ns, progress[JOBS].note)


async def test_a_class_that_fails_does_not_hold_up_the_others(
    storage: Storage, clock: world.Clock, archive: Path
) -> None:
    """An archive that cannot be written keeps its records, and the reason is stored."""
    job_id = an_ended_job(storage)
    storage.host_events.add([])
    clock.now_ns = NOW + 31 * DAY_NS
    archive.write_text("no folder")

    deleted = await retention_of(storage, archive).once()

    assert "cannot be written" in storage.retention.progress()[JOBS].note
    assert "pod" in rows_of(storage, job_id)
    assert rules.WATCH_LOG in deleted


async def test_a_full_disk_does_not_end_retention(
    storage: Storage, clock: world.Clock, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of any kind is the note of its class, and the other classes have their turn."""

    def write(self: Archive, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    job_id = an_ended_job(storage)
    clock.now_ns = NOW + 31 * DAY_NS
    monkeypatch.setattr(Archive, "write", write)

    deleted = await retention_of(storage, archive).once()

    assert "No space left on device" in storage.retention.progress()[JOBS].note
    assert "pod_event" in rows_of(storage, job_id)
    assert rules.WATCH_LOG in deleted


async def test_a_slow_database_ends_the_round(
    storage: Storage, clock: world.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that finds the database slow leaves all later classes to the next one."""
    an_ended_job(storage)
    clock.now_ns = NOW + 31 * DAY_NS
    monkeypatch.setattr(runner, "is_slow", lambda rows, took_s: True)

    deleted = await retention_of(storage).once()

    assert [POD_EVENTS] == list(deleted)
    assert runner.SLOW_NOTE == storage.retention.progress()[POD_EVENTS].note


def test_queries_follow_the_index_of_ends(storage: Storage) -> None:
    """Ended jobs are found by the index of their ends, from the beginning and from a cursor on."""
    an_ended_job(storage)
    for after in (Cursor(), Cursor(NOW, new_job_id(), 2)):
        ((_, plan),) = plans_of(storage, lambda after=after: storage.retention.list_ended(after, NOW + 1, 100))  # type: ignore[misc]
        assert "ix_job_ended" in plan, plan


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_new_leader_reads_nothing_of_ended_jobs(storage: Storage) -> None:
    """The memory of resource managers and host managers is read from jobs that live: in SQLite's steps it costs the
    same next to ten times as many ended ones."""
    world.a_running_job(storage, 3)

    def start() -> None:
        rebuild(storage)
        for _ in storage.host_pods.on_hosts("cluster"):
            pass
        storage.disruptions.budgets("cluster")

    steps = []
    for count in (5, 45):
        for _ in range(count):
            an_ended_job(storage, 1)
        steps.append(steps_of(storage, start))
    assert steps[1] < 1.1 * steps[0], steps


async def test_deletion_among_writers(open_storage: Callable[[], Storage], clock: world.Clock) -> None:
    """Jobs that are created and end meanwhile, in another thread, lose nothing, and all old ones go."""
    storage, other = open_storage(), open_storage()
    old = [an_ended_job(storage, 1) for _ in range(12)]
    clock.now_ns = NOW + 31 * DAY_NS
    fresh, errors = list[JobId](), list[BaseException]()

    def live() -> None:
        try:
            fresh.extend(an_ended_job(other, 1, clock.now_ns) for _ in range(8))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=live)
    thread.start()
    await retention_of(storage).once()
    thread.join(60)

    assert [] == errors
    assert [{"pruned_job": 1}] * 12 == [rows_of(storage, job_id) for job_id in old]
    assert all({"job", "pod", "pod_event"} <= rows_of(storage, job_id).keys() for job_id in fresh)
    assert [] == faults_of(storage)


async def test_what_is_shown(storage: Storage, clock: world.Clock) -> None:
    """The service shows each class with its age, its size and what is due; unknown sizes are negative. Asking changes
    nothing."""
    job_id = an_ended_job(storage)
    whole = rows_of(storage, job_id)
    clock.now_ns = NOW + 8 * DAY_NS
    if not storage.db.is_sqlite:
        with storage.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("ANALYZE")
    retention = retention_of(storage)
    service = RetentionService(retention, Sizes(storage.db), "/archive")

    answer = await service.GetRetention(GetRetentionRequest(), None)

    assert whole == rows_of(storage, job_id)
    shown = {one.name: one for one in answer.classes}
    events, jobs = shown[POD_EVENTS], shown[JOBS]
    assert (7, whole["pod_event"], 1, "") == (events.days, events.row_count, events.due_count, events.last_round_time)
    assert (30, 0, True) == (jobs.days, jobs.due_count, jobs.is_archived)
    assert 0 < jobs.byte_count < 10 << 20
    assert ("/archive", 600.0) == (answer.archive, answer.period_s)
    await retention.once()
    after = {one.name: one for one in (await service.GetRetention(GetRetentionRequest(), None)).classes}
    assert (0, whole["pod_event"]) == (after[POD_EVENTS].due_count, after[POD_EVENTS].deleted_count)
    assert "2023-11-22T22:13:20Z" == after[POD_EVENTS].last_round_time


def test_a_table_that_takes_too_long_to_count(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is unknown instead of slow."""
    if storage.db.is_sqlite:
        monkeypatch.setattr(sizes, "COUNTING_S_MAX", 1e-9)
        monkeypatch.setattr(engine, "_STEPS_PER_CHECK", 1)
        assert {TableSize(-1, -1)} == set(Sizes(storage.db).read().values())
    assert METADATA.tables.keys() == Sizes(storage.db).read().keys()
