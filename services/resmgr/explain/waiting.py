"""Explanations of queued gangs, with the holders of the resources that they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from peloton.model.job import JobRecord
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.explain import Holder, Wait, find_holders, list_waits
from peloton.scheduling.tree import CPU
from services.resmgr.explain.dry_run import make_held_reader
from services.resmgr.explain.text import slack_line
from services.resmgr.state import ResmgrState

ExplainedWait = tuple[Wait, tuple[Holder, ...]]
WAITING_MAX = 20
"""Limit of the waits of one job in an answer."""


def explain_waits(state: ResmgrState, job: JobRecord, now: Snapshot, plan: Plan) -> list[ExplainedWait]:
    """Return why gangs of the job wait in the queues of its pool, at most WAITING_MAX waits."""
    row = state.tree.row.get(job.respool_id)
    if row is None:
        return []
    held = make_held_reader(state)
    mine = (wait for wait in list_waits(now, plan, row) if wait.run.job_id == job.job_id)
    return [(wait, find_holders(now, plan, wait, held)) for wait in islice(mine, WAITING_MAX)]


def slack_lines(state: ResmgrState, waiting: Sequence[ExplainedWait]) -> Iterable[str]:
    return slack_line(waiting, state.slack_cpu, int(state.accounts.slack[:, CPU].sum()))
