"""Time series, stored as samples of all series and as pages of one series each.

A sample is one row. When an hour is over, its samples are folded into one page of minutes per series, and into one
point of the series' page of hours for that day. Each step can be interrupted anywhere and repeated, also by two leaders
at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from peloton.lifecycle.downsampling import cut, downsample, merge
from peloton.model.history import Column, Sample, Series
from services.storage.engine import Database, Repository
from services.storage.history.codec import names_in, page_from_blob, page_to_blob, sample_to_blob, samples_to_series
from services.storage.tables import HISTORY_PAGE, HISTORY_SAMPLE

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
SPAN_S = {MINUTE_S: HOUR_S, HOUR_S: DAY_S}
"""Step in seconds -> time span of one page, in seconds."""
MINUTES_KEPT_S = DAY_S + HOUR_S
SERIES_PER_WRITE = 100
_PAGE = HISTORY_PAGE.c


class History(Repository):
    def add(self, sample: Sample) -> bool:
        """Store a sample; returns False if there is one for that moment already, which is kept."""
        row = {"at_s": sample.at_s, "sample": sample_to_blob(sample)}
        statement = self._db.upsert(HISTORY_SAMPLE).values(**row).on_conflict_do_nothing()
        counted = statement.execution_options(preserve_rowcount=True)  # else unknown for inserts on PostgreSQL
        return self._db.write(lambda conn: conn.execute(counted).rowcount) == 1

    def fold(self, now_s: int) -> bool:
        """Fold the samples of the oldest hour into pages if that hour is over; returns whether it was."""
        at = HISTORY_SAMPLE.c.at_s

        def work(conn: sa.Connection) -> list[tuple[int, bytes]]:
            oldest_s = conn.execute(sa.select(sa.func.min(at))).scalar()
            if oldest_s is None or (end_s := oldest_s - oldest_s % HOUR_S + HOUR_S) > now_s:
                return []
            query = sa.select(HISTORY_SAMPLE).where(at < end_s).order_by(at)
            return [(row.at_s, row.sample) for row in conn.execute(query)]

        rows = self._db.read(work)
        if not rows:
            return False
        start_s, fresh = rows[0][0] - rows[0][0] % HOUR_S, samples_to_series(rows)
        names = sorted(fresh)
        for begin in range(0, len(names), SERIES_PER_WRITE):
            some = {name: downsample(fresh[name], MINUTE_S) for name in names[begin : begin + SERIES_PER_WRITE]}
            self._db.write(partial(_put_hour, db=self._db, start_s=start_s, fresh=some))
        done = sa.delete(HISTORY_SAMPLE).where(at.in_([at_s for at_s, _ in rows]))
        self._db.write(lambda conn: conn.execute(done))
        return True

    def prune(self, now_s: int, hours_kept_s: int, limit: int) -> int:
        """Delete up to ``limit`` pages that are too old, minutes first; returns their number. 0 seconds: hours stay."""
        key = sa.tuple_(_PAGE.series, _PAGE.step_s, _PAGE.start_s)
        deleted = 0
        for step_s, kept_s in ((MINUTE_S, MINUTES_KEPT_S), (HOUR_S, hours_kept_s)):
            if not kept_s or deleted == limit:
                continue
            is_old = sa.and_(_PAGE.step_s == step_s, _PAGE.start_s <= now_s - kept_s - SPAN_S[step_s])
            some = sa.select(_PAGE.series, _PAGE.step_s, _PAGE.start_s).where(is_old).limit(limit - deleted)
            deleted += self._db.write(partial(_delete, statement=sa.delete(HISTORY_PAGE).where(key.in_(some))))
        return deleted

    def list_names(self, prefix: str, step_s: int, start_s: int, end_s: int) -> list[str]:
        """List series with this prefix that have intervals in ``start_s <= t < end_s``, sorted."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        is_page = sa.and_(_PAGE.step_s == step_s, _PAGE.start_s > start_s - SPAN_S[step_s], _PAGE.start_s < end_s)
        pages = sa.select(_PAGE.series).distinct().where(_PAGE.series >= prefix, _PAGE.series < after, is_page)
        at = HISTORY_SAMPLE.c.at_s
        samples = sa.select(HISTORY_SAMPLE.c.sample).where(at >= start_s, at < end_s)

        def work(conn: sa.Connection) -> set[str]:
            recent = (name for blob in conn.execute(samples).scalars() for name in names_in(blob))
            return {*conn.execute(pages).scalars(), *(name for name in recent if name.startswith(prefix))}

        return sorted(self._db.read(work))

    def read(
        self, names: Collection[str], step_s: int, start_s: int, end_s: int, columns: Sequence[Column] | None = None
    ) -> dict[str, Series]:
        """Return the intervals that begin in ``start_s <= t < end_s``, by name of the series, without empty series.

        ``step_s`` is MINUTE_S or HOUR_S. Samples that are not folded into pages yet are included.
        """
        at = HISTORY_SAMPLE.c.at_s

        def work(conn: sa.Connection) -> dict[str, list[Series]]:
            begin_s = start_s - start_s % HOUR_S
            query = sa.select(HISTORY_SAMPLE).where(at >= begin_s, at < end_s + HOUR_S).order_by(at)
            rows = [(row.at_s, row.sample) for row in conn.execute(query)]
            parts = {name: [downsample(s, step_s)] for name, s in samples_to_series(rows, names).items()}
            for name, _, series in _pages(conn, names, step_s, start_s - SPAN_S[step_s], end_s):
                parts.setdefault(name, []).insert(0, series)  # a page covers its whole hour
            return parts

        found = self._db.read(work)
        wanted = {name: [cut(part, start_s, end_s, columns) for part in parts] for name, parts in found.items()}
        return {name: series for name, parts in wanted.items() if (series := merge(*parts)).times_s}


def _delete(conn: sa.Connection, statement: sa.Delete) -> int:
    return conn.execute(statement).rowcount


def _pages(
    conn: sa.Connection, names: Iterable[str], step_s: int, after_s: int, before_s: int
) -> Iterable[tuple[str, int, Series]]:
    """Yield pages that begin between the two times, exclusive, as (name, begin, series)."""
    is_there = sa.and_(_PAGE.step_s == step_s, _PAGE.start_s > after_s, _PAGE.start_s < before_s)
    for row in conn.execute(sa.select(HISTORY_PAGE).where(_PAGE.series.in_(names), is_there)):
        yield row.series, row.start_s, page_from_blob(row.page, row.start_s)


def _put_hour(conn: sa.Connection, db: Database, start_s: int, fresh: Mapping[str, Series]) -> None:
    """Write the pages of an hour: late minutes are merged into its page, and the hour's point is computed from all."""
    day_s = start_s - start_s % DAY_S
    minutes = {name: series for name, _, series in _pages(conn, fresh, MINUTE_S, start_s - 1, start_s + 1)}
    hours = {name: series for name, _, series in _pages(conn, fresh, HOUR_S, day_s - 1, day_s + 1)}
    pages = []
    for name, series in fresh.items():
        whole = merge(minutes.get(name, Series()), series)
        day = merge(downsample(whole, HOUR_S), hours.get(name, Series()))
        pages.append({"series": name, "step_s": MINUTE_S, "start_s": start_s, "page": page_to_blob(whole, start_s)})
        pages.append({"series": name, "step_s": HOUR_S, "start_s": day_s, "page": page_to_blob(day, day_s)})
    insert = db.upsert(HISTORY_PAGE)
    upsert = insert.on_conflict_do_update(
        index_elements=["series", "step_s", "start_s"], set_={"page": insert.excluded.page}
    )
    conn.execute(upsert, pages)
