"""Small simulated days, each step of which checks the invariants. ``make sim`` runs a large one."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from peloton.model.reason import Rule
from peloton.model.times import NS_PER_S
from peloton.scheduling import admission
from peloton.scheduling.backfill import BACKFILL_MAX_S
from peloton.scheduling.gangs import GangRun, QueueKind
from services.resmgr.ledger import JobLedger
from services.resmgr.passed import PassedGangs
from services.resmgr.state import ResmgrState
from tests.nightly import NIGHTLY, nightly
from tests.simulation import invariants, resmgr
from tests.simulation.day import ROUGH, USUAL, Chances, Day
from tests.simulation.description import Size
from tests.simulation.divided import DividedDay
from tests.simulation.figures import report

SMALL = Size(hosts=40, pools=12, pods=1_000, hours=2, step_s=10)
SHORT = replace(SMALL, pods=500, hours=1)
DIVIDED = ((21, USUAL), (22, ROUGH), (24, ROUGH), (33, USUAL))
"""Seeds and chances of long days with host pools."""


@pytest.mark.parametrize("seed", [1, nightly(2)])
def test_a_small_day_keeps_every_invariant_and_ends_every_job(seed: int) -> None:
    """A day with usual losses, kills and changes breaks no invariant, and all jobs end."""
    counts = Day(seed, SMALL).run()

    assert sum(counts.ended.values()) == counts.jobs


@NIGHTLY
@pytest.mark.parametrize("seed", [11, 12])
def test_a_rough_day_keeps_every_invariant_and_ends_every_job(seed: int) -> None:
    """A day with many more failures breaks no invariant, and all jobs end."""
    counts = Day(seed, SMALL, ROUGH).run()

    assert sum(counts.ended.values()) == counts.jobs
    assert min(counts.lost_pods, counts.kills, counts.pool_changes, counts.failed_pods, counts.rejected) > 0


@pytest.mark.parametrize("seed", [nightly(11), 12])
def test_a_day_of_impatient_placement(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rough day with a placement timeout of one minute breaks no invariant, and all jobs end."""
    monkeypatch.setattr(resmgr, "PLACEMENT_S", 60.0)
    counts = Day(seed, SMALL, ROUGH).run()

    assert sum(counts.ended.values()) == counts.jobs
    assert min(counts.lost_pods, counts.kills, counts.pool_changes, counts.failed_pods, counts.rejected) > 0
    assert counts.requeued_pods > 0


@pytest.mark.parametrize(
    ("seed", "chances", "size"),
    [(21, USUAL, SHORT), *(nightly(seed, chances, SMALL) for seed, chances in DIVIDED)],
)
def test_a_day_on_divided_hosts(seed: int, chances: Chances, size: Size) -> None:
    """A day with host pools whose hosts move breaks no invariant: no compartment's allocation exceeds its capacity, and
    no pod is placed on hosts that do not serve it.
    """
    day = DividedDay(seed, size, chances)
    counts = day.run()

    assert sum(counts.ended.values()) == counts.jobs
    assert day.moved_count > 0
    assert len(day.resmgr.state.compartments) == 3


@NIGHTLY
def test_an_admission_of_what_is_in_backoff_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step fails when the ledger forgets backoffs."""
    monkeypatch.setattr(resmgr, "PLACEMENT_S", 60.0)
    monkeypatch.setattr(JobLedger, "back_off", lambda *_: None)
    with pytest.raises(AssertionError, match="while it is in backoff"):
        Day(11, SMALL, ROUGH).run()


@NIGHTLY
def test_a_gang_that_is_passed_without_a_bound_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step fails when the resource manager forgets since when gangs are passed; no step fails otherwise."""
    monkeypatch.setattr(invariants, "BACKFILL_MAX_S", 60)

    def run() -> None:
        day = Day(9, SMALL, ROUGH)
        day.resmgr.state.passed.max_s = 60
        day.run()

    run()
    monkeypatch.setattr(PassedGangs, "note", lambda *_: None)
    with pytest.raises(AssertionError, match="was overtaken"):
        run()


def test_a_rest_that_is_passed_for_longer_than_its_run_is_noticed() -> None:
    """Gangs that are admitted in between leave the rest of their run the time that the run had."""
    pods = [SimpleNamespace(state=PodState.PENDING, queue_seq=1, held_until_ns=0) for _ in range(4)]
    jobs = {"large": pods, "small": [SimpleNamespace(state=PodState.READY, queue_seq=2)]}
    record = SimpleNamespace(sla=SimpleNamespace(priority=0))
    records: Any = SimpleNamespace(jobs={job: SimpleNamespace(record=record, pods=jobs[job]) for job in jobs})
    large = GangRun(JobId("large"), 0, 4, 1, (4,), 0, 1, preemptible=False)
    small = admission.Admitted(0, GangRun(JobId("small"), 0, 1, 1, (1,), 0, 2, preemptible=False), 1)
    rest, passed = replace(large, start=1, gang_count=3), invariants.Passed()

    def admit(now_s: int, chosen: admission.Admitted, waits: GangRun) -> None:
        pools = {"p": {QueueKind.NON_PREEMPTIBLE: [waits]}}
        usage, tree = SimpleNamespace(parts_of=lambda _: (0,)), SimpleNamespace(ids=["p"], paths=["/p"])
        accounts, waiting = SimpleNamespace(usage=usage), SimpleNamespace(pools=pools)
        state: Any = SimpleNamespace(accounts=accounts, waiting=waiting, tree=tree)
        records.clock_ns = now_s * NS_PER_S
        invariants.check_order(state, records, admission.Admission((chosen,)), passed)

    admit(0, small, large)
    pods[0].state = PodState.READY
    admit(200, admission.Admitted(0, large, 1), rest)
    admit(BACKFILL_MAX_S - 1, small, rest)
    with pytest.raises(AssertionError, match="was overtaken 300 s after the first time"):
        admit(BACKFILL_MAX_S, small, rest)


def test_a_seed_stands_for_one_day() -> None:
    """Two days of the same seed are the same in everything that is counted; another seed gives another day."""
    first, again, other = (asdict(Day(seed, SMALL).run(200)) for seed in (5, 5, 6))
    for counts in (first, again, other):
        counts.pop("took_s")

    assert first == again
    assert first != other


def test_the_table_has_a_row_for_each_kind_and_priority() -> None:
    """The figures of a day name every kind of resource, fairness, and waits by priority and by pool."""
    day = Day(7, SMALL)
    day.run(300)
    rows = [line.strip().partition("  ")[0] for line in report(day).splitlines()]

    assert [name for name in ("cpu", "memory", "disk", "gpu", "priority 0", "priority 5") if name not in rows] == []
    assert [path for path in day.resmgr.state.tree.paths if path.count("/") == 3 and path in rows] != []


# What would go wrong is noticed.


def _first_failure() -> str:
    """Return the message of the first of a few days that fails; empty when none does."""
    for seed in (13, 10, *range(1, 10)):
        try:
            Day(seed, SMALL, ROUGH if seed % 2 else USUAL).run()
        except AssertionError as error:
            return str(error)
    return ""


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a broken day ends with its seed, the step, and the command that runs it again."""
    monkeypatch.setattr(ResmgrState, "apply_log", lambda self, rows: False)
    last = _first_failure().splitlines()[-1]

    assert last.startswith("seed 13, step ")
    assert last.endswith("make sim SEED=13 HOSTS=40 POOLS=12 PODS=1000 HOURS=2 STEP_S=10 ROUGH=1")


@NIGHTLY
@pytest.mark.parametrize(
    "rule",
    [
        Rule.POOL_LIMIT,
        Rule.ENTITLEMENT,
        Rule.SLACK_ENTITLEMENT,
        Rule.RESERVATION,
        Rule.CONTROLLER_LIMIT,
        Rule.CLUSTER_CAPACITY,
    ],
)
def test_admission_that_forgets_a_rule_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some step finds a pool above each bound that admission ignores."""
    ledger = next(kind for kind in vars(admission).values() if hasattr(kind, "bounds"))
    kept = ledger.bounds

    def forgetful(self: Any, row: int, run: GangRun) -> list[Any]:
        return [bound for bound in kept(self, row, run) if bound.rule is not rule]

    monkeypatch.setattr(ledger, "bounds", forgetful)

    assert " above the " in _first_failure()
