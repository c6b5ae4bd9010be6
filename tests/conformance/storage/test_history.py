"""Time series: samples become pages, pages expire, and no minute occurs twice."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from peloton.model.history import Column, Preemption, Quantity, Sample, Series
from services.storage.history.history import DAY_S, HOUR_S, MINUTE_S, MINUTES_KEPT_S, SERIES_PER_WRITE, SPAN_S
from services.storage.storage import Storage
from services.storage.tables import HISTORY_PAGE, HISTORY_SAMPLE

T0 = 1_700_006_400  # a whole day
ALLOCATION, ADMITTED = Column(Quantity.ALLOCATION, "cpu"), Column(Quantity.ADMITTED)
A, B = "pool/a", "cluster/b"


def sample(at_s: int, amount: int, covered_s: int = MINUTE_S, pods: int = 0) -> Sample:
    """Sample two series. Every value of the second is 0."""
    marks = {A: (("/who", pods),)} if pods else {}
    return Sample(at_s, covered_s, {A: {ALLOCATION: amount, ADMITTED: 1}, B: {ALLOCATION: 0}}, marks)


def add_hour(storage: Storage, start_s: int = T0, but: range = range(0)) -> None:
    for minute in range(60):
        if minute not in but:
            storage.history.add(sample(start_s + minute * MINUTE_S, minute, pods=int(minute == 30)))


def counts(storage: Storage) -> tuple[int, int]:
    """Count samples and pages."""

    def count(conn: sa.Connection, table: sa.Table) -> int:
        return int(conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())

    return storage.db.read(lambda conn: (count(conn, HISTORY_SAMPLE), count(conn, HISTORY_PAGE)))


def minutes(storage: Storage, start_s: int = T0, end_s: int = T0 + DAY_S, name: str = A) -> Series:
    return storage.history.read([name], MINUTE_S, start_s, end_s).get(name, Series())


def hours(storage: Storage, name: str = A) -> Series:
    return storage.history.read([name], HOUR_S, T0, T0 + DAY_S).get(name, Series())


def test_an_hour_is_read_the_same_before_and_after_it_is_folded(storage: Storage) -> None:
    """The minutes of the hour and its one point are the same after the fold. Its samples are deleted, and each series
    has a page of each step."""
    add_hour(storage)
    before = minutes(storage), hours(storage), minutes(storage, name=B)

    assert not storage.history.fold(T0 + HOUR_S - 1), "the hour is not over"
    assert storage.history.fold(T0 + HOUR_S)
    assert not storage.history.fold(T0 + HOUR_S)

    after = minutes(storage), hours(storage), minutes(storage, name=B)
    assert (0, 4) == counts(storage)
    assert list(range(60)) == before[0].columns[ALLOCATION] == after[0].columns[ALLOCATION]
    assert ([T0], [HOUR_S], [30], [59]) == (
        after[1].times_s,
        after[1].covered_s,
        after[1].columns[ALLOCATION],
        after[1].maxima[ALLOCATION],
    )
    assert [60] == after[1].columns[ADMITTED] == before[1].columns[ADMITTED]
    assert before[1] == after[1]
    assert [Preemption(T0 + 30 * MINUTE_S, "/who", 1)] == before[0].preemptions == after[0].preemptions
    assert [Preemption(T0, "/who", 1)] == after[1].preemptions
    assert 60 == len(before[2].times_s) == len(after[2].times_s), "what is always 0 is there, and no gap"


def test_the_first_sample_of_a_moment_stands(storage: Storage) -> None:
    """The first of two samples of one minute, recorded by two leaders, is kept."""
    assert storage.history.add(sample(T0, 1))
    assert not storage.history.add(sample(T0, 2))

    assert ([T0], [1]) == (minutes(storage).times_s, minutes(storage).columns[ALLOCATION])


def test_a_gap_stays_a_gap(storage: Storage) -> None:
    """Minutes without a sample are left out, and the hour reports how much of it is covered."""
    add_hour(storage, but=range(10, 40))
    storage.history.fold(T0 + HOUR_S)

    found = minutes(storage)
    assert [*range(10), *range(40, 60)] == [(at_s - T0) // MINUTE_S for at_s in found.times_s]
    assert [30 * MINUTE_S] == hours(storage).covered_s


def test_late_samples_join_their_hour(storage: Storage) -> None:
    """A delayed leader writes after another one has folded the hour. Its minutes fill the gap, the others stay, and the
    point of the hour covers all."""
    add_hour(storage, but=range(50, 60))
    storage.history.fold(T0 + HOUR_S)
    storage.history.add(sample(T0 + 49 * MINUTE_S, 1_000))
    storage.history.add(sample(T0 + 55 * MINUTE_S, 2_000))

    assert storage.history.fold(T0 + HOUR_S)

    found = minutes(storage)
    assert [*range(50), 2_000] == found.columns[ALLOCATION]
    assert ([51 * MINUTE_S], [2_000], [51]) == (
        hours(storage).covered_s,
        hours(storage).maxima[ALLOCATION],
        hours(storage).columns[ADMITTED],
    )


def test_a_fold_that_was_cut_off_is_repeated(storage: Storage, open_storage: Callable[[], Storage]) -> None:
    """Two leaders that fold one hour make one page, whichever comes first."""
    add_hour(storage)
    other = open_storage()
    rows = storage.db.read(lambda conn: conn.execute(sa.select(HISTORY_SAMPLE)).all())
    other.history.fold(T0 + HOUR_S)
    storage.db.write(lambda conn: conn.execute(HISTORY_SAMPLE.insert(), [dict(row._mapping) for row in rows]))

    assert storage.history.fold(T0 + HOUR_S)

    assert (0, 4) == counts(storage)
    assert list(range(60)) == minutes(storage).columns[ALLOCATION]
    assert [60] == hours(storage).columns[ADMITTED]


def test_hours_of_a_day_are_in_one_page(storage: Storage) -> None:
    """The page of a day contains its hours, and samples of less than a minute are folded into minutes before."""
    for hour in (0, 1, 5):
        for half in range(120):
            storage.history.add(sample(T0 + hour * HOUR_S + half * 30, 2 * half, covered_s=30))
        assert storage.history.fold(T0 + hour * HOUR_S + HOUR_S)

    assert [T0, T0 + HOUR_S, T0 + 5 * HOUR_S] == hours(storage).times_s
    assert (0, 3 * 2 + 2) == counts(storage)
    found = minutes(storage, T0, T0 + HOUR_S)
    assert ([MINUTE_S] * 60, [2] * 60) == (found.covered_s, found.columns[ADMITTED])
    assert ([1, 5], [2, 6]) == (found.columns[ALLOCATION][:2], found.maxima[ALLOCATION][:2])


def test_a_part_is_read(storage: Storage) -> None:
    """A read returns the requested columns from the first moment up to the last, exclusive, across pages and
    samples."""
    add_hour(storage)
    storage.history.fold(T0 + HOUR_S)
    add_hour(storage, T0 + HOUR_S)
    start_s, end_s = T0 + 58 * MINUTE_S, T0 + 62 * MINUTE_S

    (found,) = storage.history.read([A, "pool/none"], MINUTE_S, start_s, end_s, [ADMITTED]).values()

    assert list(range(start_s, end_s, MINUTE_S)) == found.times_s
    assert {ADMITTED: [1] * 4} == found.columns


def test_many_series_are_folded_in_bounded_writes(storage: Storage) -> None:
    """No series is lost when many are folded in bounded writes."""
    names = [f"pool/{number}" for number in range(2 * SERIES_PER_WRITE + 1)]
    storage.history.add(Sample(T0, MINUTE_S, {name: {ALLOCATION: 1} for name in names}))

    storage.history.fold(T0 + HOUR_S)

    assert (0, 2 * len(names)) == counts(storage)
    assert set(names) == storage.history.read(names, HOUR_S, T0, T0 + HOUR_S).keys()


def test_old_pages_are_forgotten(storage: Storage) -> None:
    """Pages of each step are deleted by an age of their own, at most as many at a time as wanted. A page is deleted
    when all of it is too old; 0 seconds keep hours for ever."""
    for hour in range(4):
        storage.history.add(sample(T0 + hour * HOUR_S, 1))
        storage.history.fold(T0 + (hour + 1) * HOUR_S)
    assert (0, 4 * 2 + 2) == counts(storage)
    prune, hours_s = storage.history.prune, 366 * DAY_S

    assert 0 == prune(T0 + MINUTES_KEPT_S + SPAN_S[MINUTE_S] - 1, hours_s, 9)
    assert [3, 1, 0] == [prune(T0 + MINUTES_KEPT_S + 2 * HOUR_S, hours_s, 3) for _ in range(3)]
    assert (0, 2 * 2 + 2) == counts(storage)
    assert [4, 0] == [prune(T0 + hours_s + SPAN_S[HOUR_S] - 1, hours_s, 9) for _ in range(2)]
    assert 0 == prune(T0 + hours_s + SPAN_S[HOUR_S], 0, 9)
    assert 2 == prune(T0 + hours_s + SPAN_S[HOUR_S], hours_s, 9)
    assert (0, 0) == counts(storage)
