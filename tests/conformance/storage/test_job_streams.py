"""Jobs that are created in pieces: whole or not at all, whatever else uses their id."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import sqlalchemy as sa

from peloton.api import convert
from peloton.errors import Aborted, AlreadyExists
from peloton.model.ids import JobId, new_job_id
from services.storage.jobs import job_streams
from services.storage.jobs.job_streams import JobStream, stream_rows
from services.storage.storage import Storage
from services.storage.tables import JOB, JOB_CONFIG, JOB_STREAM, OVERRIDE
from tests.conformance.storage.builders import NOW, Clock, a_config, create
from tests.conformance.storage.test_concurrency import together

ROUNDS = 10


def add(storage: Storage, stream: JobStream, instances: Iterable[int], command: str = "own") -> None:
    config = a_config(10)
    rows = stream_rows(stream.job_id, config)
    piece = []
    for instance in instances:
        override = config.instanceConfig[instance]
        override.command.value = command
        piece.append(rows.row(instance, override))
    storage.job_streams.add(stream, piece)


def commit(storage: Storage, stream: JobStream) -> None:
    config = a_config(10)
    storage.job_streams.commit(stream, convert.new_job_record(stream.job_id, config, NOW), config, NOW)


def rows_left(storage: Storage) -> dict[str, int]:
    tables = (JOB, JOB_CONFIG, OVERRIDE, JOB_STREAM)

    def count(conn: sa.Connection) -> dict[str, int]:
        return {t.name: conn.execute(sa.select(sa.func.count()).select_from(t)).scalar_one() for t in tables}

    return {name: rows for name, rows in storage.db.read(count).items() if rows}


def own_commands(storage: Storage, job_id: JobId) -> dict[int, str]:
    config = storage.configs.job_config(job_id, overrides=True)
    assert config is not None
    return {i: config.instanceConfig[i].command.value for i in sorted(config.instanceConfig)}


def test_nothing_is_there_before_the_commit_and_all_after_it(storage: Storage) -> None:
    """A job in two pieces reads like one that was created at once, and is created once."""
    job_id = new_job_id()
    stream = storage.job_streams.begin(job_id)
    add(storage, stream, [0, 1])
    add(storage, stream, [7])
    assert storage.jobs.get(job_id) is None
    assert storage.jobs.active_ids() == []

    commit(storage, stream)

    assert storage.jobs.active_ids() == [job_id]
    assert own_commands(storage, job_id) == {0: "own", 1: "own", 7: "own"}
    assert storage.pods.create(job_id, lambda _: None) == 10
    whole = a_config(10)
    for instance in (0, 1, 7):
        whole.instanceConfig[instance].command.value = "own"
    other = create(storage, whole)
    assert storage.configs.shapes_of([(job_id, 1, 0, 10)])[0] == storage.configs.shapes_of([(other, 1, 0, 10)])[0]
    assert storage.configs.overrides_size(job_id, 1) == storage.configs.overrides_size(other, 1)
    assert storage.configs.overrides_size(job_id, 1) == (
        sum(override.ByteSize() for override in whole.instanceConfig.values()),
        3,
    )
    with pytest.raises(AlreadyExists):
        storage.job_streams.begin(job_id)
    with pytest.raises(Aborted):
        commit(storage, stream)


def test_a_stream_that_is_discarded_leaves_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A discarded stream of any size leaves nothing, and a late writer cannot add to it."""
    monkeypatch.setattr(job_streams, "CHUNK_PODS", 2)
    stream = storage.job_streams.begin(new_job_id())
    add(storage, stream, [0, 3, 4, 9])

    storage.job_streams.discard(stream)
    storage.job_streams.discard(stream)

    assert rows_left(storage) == {}
    with pytest.raises(Aborted, match="nothing of this one is kept"):
        add(storage, stream, [5])
    assert rows_left(storage) == {}


def test_a_new_stream_takes_the_job_from_the_one_before(storage: Storage) -> None:
    """The pieces of the former stream are deleted, and it can neither add nor commit."""
    job_id = new_job_id()
    first = storage.job_streams.begin(job_id)
    add(storage, first, [0, 1], "first")

    second = storage.job_streams.begin(job_id)
    add(storage, second, [1, 2], "second")
    with pytest.raises(Aborted):
        add(storage, first, [3])
    with pytest.raises(Aborted):
        commit(storage, first)
    storage.job_streams.discard(first)
    commit(storage, second)

    assert own_commands(storage, job_id) == {1: "second", 2: "second"}


def test_a_call_takes_the_job_from_a_stream(storage: Storage) -> None:
    """A job that is created at once has nothing of a stream of the same id."""
    job_id = new_job_id()
    stream = storage.job_streams.begin(job_id)
    add(storage, stream, [0, 1])

    create(storage, a_config(10), job_id)

    assert own_commands(storage, job_id) == {}
    with pytest.raises(Aborted):
        commit(storage, stream)
    assert rows_left(storage) == {"job": 1, "job_config": 1}


def test_streams_that_were_left_are_found_by_their_age(storage: Storage, clock: Clock) -> None:
    """Abandoned streams are found by their age. Streams that still grow stay."""
    left, alive = storage.job_streams.begin(new_job_id()), storage.job_streams.begin(new_job_id())
    for stream in (left, alive):
        add(storage, stream, [0])
    before_ns = clock.advance(100)
    add(storage, alive, [1])

    assert storage.job_streams.discard_older(before_ns) == 1
    assert storage.job_streams.discard_older(before_ns) == 0

    commit(storage, alive)
    assert rows_left(storage) == {"job": 1, "job_config": 1, "job_config_override": 2}


def test_a_stream_and_a_call_that_race(open_storage: Callable[[], Storage]) -> None:
    """The stream or the call creates the whole job, and the other is refused."""
    one, two = open_storage(), open_storage()
    whole = a_config(10)
    for instance in (0, 1):
        whole.instanceConfig[instance].command.value = "called"
    for _ in range(ROUNDS):
        job_id = new_job_id()

        def stream_all(job_id: JobId = job_id) -> str:
            try:
                stream = one.job_streams.begin(job_id)
                add(one, stream, [0, 1], "streamed")
                add(one, stream, [2], "streamed")
                commit(one, stream)
            except (Aborted, AlreadyExists):
                return ""
            return "streamed"

        def call_all(job_id: JobId = job_id) -> str:
            try:
                create(two, whole, job_id)
            except AlreadyExists:
                return ""
            return "called"

        winners = [who for who in together(stream_all, call_all) if who]

        assert len(winners) == 1
        count = 3 if winners == ["streamed"] else 2
        assert own_commands(one, job_id) == dict.fromkeys(range(count), winners[0])
    assert "job_stream" not in rows_left(one)
