"""Searches of jobs and pods."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peloton.api import convert
from peloton.errors import InvalidArgument, ResourceExhausted
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState
from services.storage.jobs import search
from services.storage.jobs.search import Backlog, JobQuery, PodQuery
from services.storage.jobs.tables import LABEL_INDEXED_MAX
from services.storage.storage import Storage
from services.storage.tables import JOB_LABEL
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, F, I, K, R, S
from tests.conformance.storage.plans import plans_of
from tests.conformance.storage.services import a_service, service_config, update

ENDLESS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n
"""


def create_named_job(storage: Storage, name: str, created_s: int = 0, count: int = 1, **fields: str) -> JobId:
    config = world.a_config(count)
    config.name = name
    config.owningTeam = fields.get("team", "maps")
    config.respoolID.value = fields.get("pool", "pool")
    config.description = fields.get("description", "")
    del config.labels[:]
    if "label" in fields:
        config.labels.add(key="tier", value=fields["label"])
    job_id = new_job_id()
    storage.jobs.create(convert.new_job_record(job_id, config, NOW + created_s * SECOND), config, NOW)
    return job_id


def names(storage: Storage, **query: Any) -> list[str]:
    return [job.name for job in storage.search.query_jobs(JobQuery(**query))[0]]


@pytest.fixture
def three(storage: Storage) -> tuple[JobId, JobId, JobId]:
    return (
        create_named_job(
            storage, "alpha", 0, 3, team="maps", pool="p1", label="prod-eu", description="Trains A_Model 100%"
        ),
        create_named_job(storage, "beta", 1, 1, team="eats", pool="p1", label="prod-us"),
        create_named_job(storage, "Alphabet", 2, 2, team="maps", pool="p2"),
    )


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["Alphabet", "beta", "alpha"]),
        ({"name": "alpha"}, ["alpha"]),
        ({"name": "l_"}, []),
        ({"name": "lpha"}, ["Alphabet", "alpha"]),
        ({"owner": "maps"}, ["Alphabet", "alpha"]),
        ({"owner": "map"}, []),
        ({"respool_id": "p1"}, ["beta", "alpha"]),
        ({"states": [JobState.INITIALIZED, JobState.RUNNING]}, ["Alphabet", "beta", "alpha"]),
        ({"states": [JobState.KILLED]}, []),
        ({"labels": [("tier", "prod-eu")]}, ["alpha"]),
        ({"labels": [("tier", "prod-eu"), ("tier", "prod-us")]}, []),
        ({"labels": [("stage", "prod-eu")]}, []),
        ({"labels": [("tier", "prod")]}, []),
        ({"labels": [("tier", "PROD-EU")]}, []),
        ({"labels": [("tier", "prod-us")], "owner": "eats", "order": [("creation_time", False)]}, ["beta"]),
        ({"keywords": ["a_model"]}, ["alpha"]),
        ({"keywords": ["MODEL 100%"]}, ["alpha"]),
        ({"keywords": ["model", "worker"]}, ["alpha"]),
        ({"keywords": ["model", "nowhere"]}, []),
        ({"created": (NOW + SECOND, NOW + SECOND)}, ["beta"]),
        ({"created": (NOW + SECOND // 2, NOW + SECOND)}, ["beta", "alpha"]),
        ({"completed": (NOW, NOW + 9 * SECOND)}, []),
        ({"order": [("name", False)]}, ["Alphabet", "alpha", "beta"]),
        ({"order": [("owner", False), ("instance_count", True)]}, ["beta", "alpha", "Alphabet"]),
        ({"order": [("creation_time", False)]}, ["alpha", "beta", "Alphabet"]),
        ({"offset": 1, "limit": 1}, ["beta"]),
        ({"offset": 9}, []),
    ],
)
def test_jobs_are_found(storage: Storage, query: dict[str, Any], expected: list[str]) -> None:
    """All conditions must hold. Texts are compared as in the original. The newest come first unless another order is
    given."""
    if query.get("order", [("", False)])[0][0] == "name":
        assert sorted(expected) == sorted(names(storage, **query))  # collations differ in case
        assert "beta" == names(storage, **query)[-1]
    else:
        assert expected == names(storage, **query)


def test_pages_count_what_matches_within_the_cap(storage: Storage) -> None:
    """The total is the number of matches up to the cap. By default a page has ten of at most a hundred."""
    for number in range(12):
        create_named_job(storage, f"job{number}", number, label="red")

    found, total, _ = storage.search.query_jobs(JobQuery())
    assert (10, 12) == (len(found), total)
    found, total, _ = storage.search.query_jobs(JobQuery(max_limit=5, offset=3))
    assert (["job8", "job7"], 5) == ([job.name for job in found], total)
    assert (1, 7) == (lambda page: (len(page[0]), page[1]))(
        storage.search.query_jobs(JobQuery(labels=[("tier", "red")], max_limit=7, limit=1))
    )


def test_ended_jobs_are_found_by_when_they_ended(storage: Storage) -> None:
    """Completion times compare by the second. Unset ones sort last in ascending order."""
    job_id, living = world.a_running_job(storage, 1), world.a_job(storage, 1)
    world.report(storage, job_id, [0], S, NOW + 5 * SECOND + 7)
    world.settle_all(storage, job_id, NOW + 6 * SECOND)

    found, *_ = storage.search.query_jobs(JobQuery(completed=(NOW + 5 * SECOND, NOW + 5 * SECOND)))
    assert [job_id] == [job.job_id for job in found]
    found, *_ = storage.search.query_jobs(JobQuery(order=[("completion_time", False)]))
    assert [job_id, living] == [job.job_id for job in found]


@pytest.mark.parametrize(
    "text",
    ['"quoted", "x"', "ü" * LABEL_INDEXED_MAX + "1", "line\nbreak\x01", "\N{GRINNING FACE}" * 150, "back\\slash"],
)
def test_labels_are_compared_exactly(storage: Storage, text: str) -> None:
    """A label is found by any text, and a longer one with the same beginning is another label."""
    labelled, _ = (
        create_named_job(storage, "labelled", label=text),
        create_named_job(storage, "other", label=text + "2"),
    )

    found = storage.search.query_jobs(JobQuery(labels=[("tier", text)])).jobs

    assert [labelled] == [job.job_id for job in found]


def test_labels_of_jobs_change_and_go(storage: Storage) -> None:
    """A job is found by the labels of its configuration, after an update by the new ones, and not after its
    deletion."""
    service, job_id = a_service(storage, 1), world.a_running_job(storage, 1)
    config = service_config(1, "v2")
    config.labels.add(key="tier", value="new")
    update(storage, service, config)
    before = storage.db.read(lambda conn: conn.execute(sa.select(JOB_LABEL.c.job_id, JOB_LABEL.c.label)).all())
    world.report(storage, job_id, [0], S)
    world.settle_all(storage, job_id)
    storage.jobs.delete(job_id)

    after = storage.db.read(lambda conn: conn.execute(sa.select(JOB_LABEL.c.job_id, JOB_LABEL.c.label)).all())
    assert {(service, '"tier": "new"'), (job_id, '"stage": "prod-eu"')} <= {tuple(row) for row in before}
    assert {service} == {row.job_id for row in after}
    config.ClearField("labels")
    update(storage, service, config)
    assert [] == names(storage, labels=[("tier", "new")])


@pytest.mark.usefixtures("new_tables")
@pytest.mark.parametrize(
    ("query", "index"),
    [
        (JobQuery(labels=[("tier", "red")]), "label"),
        (JobQuery(labels=[("tier", "red")], order=[("name", False)]), "label"),
        (JobQuery(owner="maps"), "owner"),
        (JobQuery(respool_id="p1"), "pool"),
        (JobQuery(states=[JobState.RUNNING]), "state"),
        (JobQuery(name="nosuch"), "created"),
    ],
)
def test_an_index_selects_the_rows_of_a_query(storage: Storage, query: JobQuery, index: str) -> None:
    """The plan of no query reads the whole table of jobs."""
    create_named_job(storage, "alpha", label="red")
    name = "job_label" if index == "label" else f"ix_job_{index}"
    used = "PRIMARY KEY (label=?" if storage.db.is_sqlite and index == "label" else name

    plans = [plan for _, plan in plans_of(storage, lambda: storage.search.query_jobs(query))]

    assert all(used in plan for plan in plans), plans
    assert not any("Seq Scan on job" in plan or "SCAN job\n" in f"{plan}\n" for plan in plans), plans


@pytest.mark.parametrize("order", [[], [("name", False)]])
def test_a_query_examines_the_newest_jobs_up_to_a_bound(
    storage: Storage, order: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older jobs are not found, and the page says that the query was cut unless it found as many as requested."""
    monkeypatch.setattr(search, "QUERY_ROWS_MAX", 3)
    for number in range(5):
        create_named_job(storage, f"job{number}", number, label="red")

    old = storage.search.query_jobs(JobQuery(name="job1", labels=[("tier", "red")], order=order))
    new = storage.search.query_jobs(JobQuery(name="job3", labels=[("tier", "red")], order=order))
    enough = storage.search.query_jobs(JobQuery(name="job", max_limit=2, order=order))

    assert ([], 0, True) == old
    assert ["job3"] == [job.name for job in new.jobs]
    assert (2, False) == (enough.total, enough.is_cut)


def test_a_query_ends_after_its_time(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that takes too long is refused with its limit, and its connection serves the next one."""
    monkeypatch.setattr(search, "QUERY_S", 0.001)
    monkeypatch.setattr(search, "_query_jobs", lambda conn, query: conn.execute(sa.text(ENDLESS)).all())

    with pytest.raises(ResourceExhausted, match=r"^query took longer than 0.001 s: add conditions"):
        storage.search.query_jobs(JobQuery())
    assert (0, 0) == (storage.search.backlog().jobs_active, storage.search.backlog().jobs_waiting)


def test_jobs_cannot_be_sorted_by_anything(storage: Storage) -> None:
    """An unknown field is refused by name."""
    with pytest.raises(InvalidArgument, match="cannot be sorted by 'mood'"):
        storage.search.query_jobs(JobQuery(order=[("mood", False)]))


@pytest.fixture
def mixed_job(storage: Storage) -> JobId:
    """Create 0 RUNNING, 1 FAILED, 2 SUCCEEDED on hosts 0-2, 3 KILLED before launch, and 4 INITIALIZED. 2 is
    `special`."""
    config = world.a_config(5, maximumRunningInstances=3)
    config.instanceConfig[2].name = "special"
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    for instance in range(3):
        world.report(storage, job_id, [instance], R, NOW + (3 - instance) * SECOND)
    world.report(storage, job_id, [1], F, message="b")
    world.report(storage, job_id, [2], S, message="a")
    storage.pods.set_goals(job_id, [(3, 1)], K, NOW, "stop")
    return job_id


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"states": [F, S]}, [1, 2]),
        ({"hosts": ["host0", "host2"]}, [0, 2]),
        ({"hosts": ["host0", "host2"], "states": [S, I]}, [2]),
        ({"names": ["special"]}, [2]),
        ({"names": ["worker"], "limit": 2}, [0, 1]),
        ({"names": ["nobody"]}, []),
        ({"order": [("creation_time", False)]}, [2, 1, 0, 3, 4]),
        ({"order": [("creation_time", True)]}, [3, 4, 0, 1, 2]),
        ({"order": [("state", False)]}, [4, 0, 2, 1, 3]),
        ({"order": [("instanceId", True)], "offset": 1, "limit": 2}, [3, 2]),
        ({"order": [("host", True)], "limit": 3}, [2, 1, 0]),
        ({"order": [("name", False), ("instanceId", True)]}, [2, 4, 3, 1, 0]),
        ({"order": [("message", False)], "states": [F, S]}, [2, 1]),
        ({"order": [("reason", False), ("instanceId", False)], "hosts": ["host1"]}, [1]),
        ({"offset": 7}, []),
    ],
)
def test_pods_are_found(storage: Storage, mixed_job: JobId, query: dict[str, Any], expected: list[int]) -> None:
    """Filters and orders combine. Unset times sort last in ascending order, first in descending order."""
    found, _ = storage.search.query_pods(mixed_job, PodQuery(**query))

    assert expected == [pod.instance_id for pod in found]


def test_pod_pages_count_all_that_match(storage: Storage) -> None:
    """The total does not depend on the page."""
    job_id = world.a_job(storage, 25)

    found, total = storage.search.query_pods(job_id, PodQuery(offset=20))
    assert ([20, 21, 22, 23, 24], 25) == ([pod.instance_id for pod in found], total)
    found, total = storage.search.query_pods(job_id, PodQuery(names=["worker"]))
    assert (10, 25) == (len(found), total)


def test_pods_are_sorted_by_known_fields_only(storage: Storage) -> None:
    """The refusal names the fields, as in the original."""
    expected = "Sort only supports fields: creation_time, host, instanceId, message, name, reason, state"
    with pytest.raises(InvalidArgument, match=expected):
        storage.search.query_pods(new_job_id(), PodQuery(order=[("mood", False)]))


def test_pods_are_read_in_pages(storage: Storage) -> None:
    """A page starts where the caller says and has at most the given length."""
    job_id = world.a_job(storage, 7)

    assert [2, 3, 4] == [pod.instance_id for pod in storage.pods.page(job_id, 2, limit=3)]
    assert [5, 6] == [pod.instance_id for pod in storage.pods.page(job_id, 5, limit=3)]
    assert [1, 2] == [pod.instance_id for pod in storage.pods.page(job_id, 1, 3)]
    assert storage.pods.get(job_id, 7) is None


def test_pods_are_counted_as_they_are(storage: Storage, mixed_job: JobId) -> None:
    """Counts are taken from the pods, not from the job's record. Failed ones are listed by instance."""
    states = [pod.state for pod in storage.pods.page(mixed_job)]

    assert {state: states.count(state) for state in states} == storage.pods.counts(mixed_job)
    assert [pod.instance_id for pod in storage.pods.page(mixed_job) if pod.state is F] == [
        pod.instance_id for pod in storage.pods.list_failed(mixed_job, 5)
    ]
    assert ({}, []) == (storage.pods.counts(new_job_id()), storage.pods.list_failed(mixed_job, 0))


def test_the_backlog_is_what_has_not_ended(storage: Storage) -> None:
    """A job is in the backlog until it is first processed, and again when it has grown. It is active until it ends."""
    assert Backlog() == storage.search.backlog()
    new, running = world.create(storage, world.a_config(2)), world.a_running_job(storage, 3)
    assert Backlog(jobs_waiting=1, jobs_active=2, pods_active=5) == storage.search.backlog()

    storage.jobs.add_instances(running, world.a_config(7), 7, 1, NOW)
    assert Backlog(jobs_waiting=2, jobs_active=2, pods_active=9) == storage.search.backlog()
    assert 2 == storage.search.jobs_waiting()

    storage.pods.create(new, lambda _: None)
    storage.jobs.settle(new, NOW)
    assert Backlog(jobs_waiting=1, jobs_active=2, pods_active=9) == storage.search.backlog()

    storage.jobs.set_goal(new, JobState.KILLED, NOW)
    world.settle_all(storage, new)
    assert Backlog(jobs_waiting=1, jobs_active=1, pods_active=7) == storage.search.backlog()
    assert 1 == storage.search.jobs_waiting()
