"""Pods that a step of an update reads: settled ones in flight, the next few to change, and counts.

A step reads as many rows as instances begin at a time; the database filters the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import TERMINATION_NUMBERS
from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle import rollout
from peloton.lifecycle.guards import Condition, In
from peloton.lifecycle.rollout_pods import ORDER, Coming, Pods, waiting_of
from peloton.lifecycle.sla import TAKEN_DOWN, Availability
from peloton.model.pod import PodRecord, PodState
from peloton.model.update import UpdateRecord
from services.storage.pods.scope import INSTANCE_IDS, Chosen, Span, within
from services.storage.pods.sql import where
from services.storage.pods.writes import count_pods
from services.storage.tables import POD
from services.storage.updates import instances

IDS_PER_QUERY = 1_000
"""Maximum number of instances whose existence one statement checks."""


class StoredPods:
    """Transaction-backed ``rollout_pods.PodSource``."""

    def __init__(self, conn: sa.Connection, job_id: str) -> None:
        self._conn, self._job_id = conn, job_id

    def in_flight(self, update: UpdateRecord) -> Pods:
        leaving, others = update.current & update.removed, update.current - update.removed
        found = self._read(self._among(leaving)) if leaving else {}
        if others:
            condition, given = rollout.find_settled(update)
            named = {f"p_{name}": value for name, value in given.items()}
            found |= self._read(sa.and_(self._among(others), where(condition)), named)
        return found

    def coming(self, update: UpdateRecord, limit: int) -> Coming:
        waiting = waiting_of(update)
        changing, leaving = waiting - update.removed, sorted(waiting & update.removed)
        first = self._find_added(update, changing, limit)
        pods: dict[int, PodRecord] = {}
        if changing and (allowed := limit - len(first)) > 0:
            among, serves = self._among(changing), where(terms.AVAILABLE)
            pods = self._read(sa.and_(among, sa.not_(serves)), order=(_rank(), POD.c.instance_id), limit=allowed)
            if allowed > len(pods):  # the last rows in key order have been read
                pods |= self._read(sa.and_(among, serves), limit=allowed - len(pods))
            first += pods
        if leaving := leaving[: max(limit - len(first), 0)]:
            pods |= self._read(self._among(leaving))
            first += leaving
        return Coming(tuple(first), pods)

    def count(self, condition: Condition, given: Mapping[str, Any], among: Collection[int] | None) -> int:
        scope = Span(self._job_id, 0, INSTANCE_IDS) if among is None else Chosen(self._job_id, sorted(among))
        return count_pods(self._conn, scope, condition, given)

    def _find_added(self, update: UpdateRecord, changing: Collection[int], limit: int) -> list[int]:
        """Return the first instances without a pod; nearly always the update adds all of them."""
        gaps = len(changing) - self._existing(changing) if changing and limit > 0 else 0
        if not gaps:
            return []
        added = update.added.intersection(changing)
        is_all = bool(added) and len(added) - self._existing(added) == gaps
        found: list[int] = []
        for piece in _split(sorted(added if is_all else changing)):
            query = sa.select(POD.c.instance_id).where(self._among(piece))
            there = set(self._conn.execute(query).scalars())
            found += [instance for instance in piece if instance not in there]
            if len(found) >= min(gaps, limit):
                break
        return found[:limit]

    def _existing(self, among: Collection[int]) -> int:
        query = sa.select(sa.func.count()).select_from(POD).where(self._among(among))
        return int(self._conn.execute(query).scalar_one())

    def _among(self, among: Collection[int]) -> sa.ColumnElement[bool]:
        """Return a condition for a non-empty set of instances; as a span minus holes where that is shorter."""
        low, high = min(among), max(among)
        span = within(self._conn, Span(self._job_id, low, high - low + 1))
        hole_count = high - low + 1 - len(among)
        if not hole_count:
            return span
        if hole_count >= len(among):
            return within(self._conn, Chosen(self._job_id, sorted(among)))
        holes = sorted(set(range(low, high)).difference(among))
        return sa.and_(span, sa.not_(within(self._conn, Chosen(self._job_id, holes))))

    def _read(
        self,
        scope: sa.ColumnElement[bool],
        named: Mapping[str, Any] | None = None,
        order: Sequence[sa.ColumnElement[Any]] = (POD.c.instance_id,),
        limit: int | None = None,
    ) -> dict[int, PodRecord]:
        return instances.read_pods(self._conn, self._job_id, scope, named or {}, order, limit)


_BY_GOAL = In("goal", frozenset({PodState.KILLED, PodState.DELETED}))


def _rank() -> sa.Case[int]:
    """Order unavailable pods by their ``sla.availability``; available ones come last."""
    taken_down = POD.c.termination.in_(sorted(TERMINATION_NUMBERS[reason] for reason in TAKEN_DOWN))
    is_taken_down = sa.and_(where(~_BY_GOAL & terms.ASKED_TO_END), taken_down)
    is_killed = where(_BY_GOAL | terms.ASKED_TO_END | terms.RUN_SUPERSEDED | terms.CONFIG_OUTDATED)
    return sa.case(
        (is_taken_down, ORDER[Availability.UNAVAILABLE]),
        (is_killed, ORDER[Availability.KILLED]),
        else_=ORDER[Availability.UNAVAILABLE],
    )


def _split(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), IDS_PER_QUERY):
        yield ids[start : start + IDS_PER_QUERY]
