"""The schedule of reconciliations, and the pods that each one includes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState
from services.hostmgr import reconcile
from services.hostmgr.driver import PodOnHost, PodReport
from services.hostmgr.in_flight import InFlight
from services.hostmgr.reconcile import (
    FOLLOW_UPS_S,
    PERIOD_S,
    Reconciler,
    ReconcileSchedule,
    ReconcileScope,
    Row,
)

POD = PodId(JobId("00000000-0000-4000-8000-000000000001"), 0, 1)
ROW = (POD, "h1", "agent", PodState.LAUNCHED)


def start_schedule() -> ReconcileSchedule:
    schedule = ReconcileSchedule()
    assert ReconcileScope.ALL is schedule.take(0.0)
    return schedule


def test_the_first_read_is_at_everything() -> None:
    """A new leader reconciles all pods, and then nothing is due."""
    schedule = start_schedule()

    assert ReconcileScope.NONE is schedule.take(1.0)


def test_unsettled_pods_are_checked_again_and_again_until_everything_is() -> None:
    """A master that recovers does not answer at once: requests become rarer until the period ends."""
    schedule = start_schedule()

    looks = [schedule.take(second) for second in (*FOLLOW_UPS_S, PERIOD_S - 1, PERIOD_S, PERIOD_S + 1)]

    assert [
        *[ReconcileScope.UNSETTLED] * len(FOLLOW_UPS_S),
        ReconcileScope.NONE,
        ReconcileScope.ALL,
        ReconcileScope.NONE,
    ] == looks


def test_when_all_agents_have_come_is_a_read_of_its_own() -> None:
    """Pods unknown to a new master are reconciled when all agents must have registered, whatever the setting says."""
    schedule = ReconcileSchedule(settled_s=700.0)
    schedule.take(0.0)
    assert ReconcileScope.UNSETTLED is schedule.take(max(FOLLOW_UPS_S))

    assert [ReconcileScope.NONE, ReconcileScope.UNSETTLED, ReconcileScope.NONE] == [
        schedule.take(second) for second in (699.0, 700.0, 701.0)
    ]


def test_many_who_request_reconciliation_soon_share_one() -> None:
    """An agent that returns requests one reconciliation for each of its pods."""
    schedule = start_schedule()
    for second in range(5):
        schedule.want_by(10.0 + second)

    looks = [schedule.take(second) for second in (9.0, 10.0, 15.0, FOLLOW_UPS_S[0])]

    assert [ReconcileScope.NONE, ReconcileScope.UNSETTLED, ReconcileScope.NONE, ReconcileScope.UNSETTLED] == looks


def test_a_late_taker_catches_up_with_one_read() -> None:
    """One reconciliation of all pods covers all that are due."""
    assert ReconcileScope.ALL is start_schedule().take(PERIOD_S * 3)


def test_the_larger_wish_wins() -> None:
    """A smaller request does not replace a larger one, and a request is taken once."""
    schedule = start_schedule()
    schedule.want(ReconcileScope.ALL)
    schedule.want(ReconcileScope.UNSETTLED)

    assert schedule.is_wanted
    assert [ReconcileScope.ALL, ReconcileScope.NONE] == [schedule.take(1.0), schedule.take(1.0)]


def test_a_small_wish_does_not_move_the_plan() -> None:
    """The reconciliation of all pods keeps its time."""
    schedule = start_schedule()
    schedule.want(ReconcileScope.UNSETTLED)

    assert [ReconcileScope.UNSETTLED, ReconcileScope.NONE] == [schedule.take(1.0), schedule.take(2.0)]
    assert ReconcileScope.ALL is schedule.take(PERIOD_S)


def test_unsettled_are_pods_that_should_have_moved_on() -> None:
    """A running pod is not among them."""
    assert {PodState.LAUNCHED, PodState.KILLING} == {
        state for state in PodState if ReconcileScope.UNSETTLED.covers(state)
    }
    assert ReconcileScope.ALL.covers(PodState.RUNNING)


def test_a_pod_in_flight_is_left_out_until_each_launch_of_it_has_landed() -> None:
    """A repeated call for the same pod does not uncover the first one."""
    flights = InFlight[PodId]()
    asked: list[PodOnHost] = []

    with flights.launching([POD]):
        with flights.launching([POD]):
            Reconciler(lambda: iter([[ROW]]), flights).ask(ReconcileScope.UNSETTLED, asked.extend)
        Reconciler(lambda: iter([[ROW]]), flights).ask(ReconcileScope.UNSETTLED, asked.extend)
    assert [] == asked
    Reconciler(lambda: iter([[ROW]]), flights).ask(ReconcileScope.UNSETTLED, asked.extend)
    assert [PodOnHost(*ROW[:3])] == asked


class Master:
    """A master that answers for pods on its agents at once, and not for others; it fails while it is unavailable."""

    def __init__(self, answers: Callable[[Sequence[PodReport]], object]) -> None:
        self.answers = answers
        self.agents = {"agent"}
        self.asked: list[list[str]] = []
        self.is_unavailable = False

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        if self.is_unavailable:
            raise OSError("away")
        self.asked.append([str(pod.pod_id) for pod in pods])
        self.answers([answer(str(pod.pod_id)) for pod in pods if pod.host_id in self.agents])


def answer(pod: str, reported: str = "RUNNING") -> PodReport:
    return PodReport(pod, reported, lambda: None, is_answer=True)


def pod_row(number: int, state: PodState = PodState.RUNNING, agent: str = "agent") -> Row:
    return (PodId(POD.job_id, number, 1), "h", agent, state)


def reconciler(*rows: Row) -> tuple[Reconciler, Master]:
    made = Reconciler(lambda: iter([rows]), InFlight())
    return made, Master(made.answers.take)


def test_everything_that_is_known_is_asked_about_and_then_everything_else() -> None:
    """Pods that must end are returned, so that their kills are repeated."""
    ending = pod_row(1, PodState.KILLING)
    made, master = reconciler(pod_row(0), ending)

    assert [ending] == made.ask(ReconcileScope.ALL, master.reconcile)
    assert [[str(pod_row(0)[0]), str(ending[0])], []] == master.asked
    assert frozenset() == made.answers.begin()


def test_pods_whose_agent_is_not_back_are_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is in each reconciliation until its agent has registered with the master."""
    monkeypatch.setattr(reconcile, "ANSWER_TIMEOUT_S", 0.0)
    made, master = reconciler(pod_row(0), pod_row(1, agent="away"))
    late = str(pod_row(1)[0])
    made.ask(ReconcileScope.ALL, master.reconcile)
    master.asked.clear()

    for _ in range(2):
        made.ask(ReconcileScope.UNSETTLED, master.reconcile)
    assert [[late], [late]] == master.asked
    master.agents.add("away")
    made.ask(ReconcileScope.UNSETTLED, master.reconcile)
    made.ask(ReconcileScope.UNSETTLED, master.reconcile)

    assert [[late]] * 3 == master.asked


def test_a_read_that_fails_forgets_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unanswered pods are asked again, although the reconciliation that should have included them failed."""
    monkeypatch.setattr(reconcile, "ANSWER_TIMEOUT_S", 0.0)
    made, master = reconciler(pod_row(0, agent="away"))
    made.ask(ReconcileScope.ALL, master.reconcile)
    master.is_unavailable = True
    with pytest.raises(OSError, match="away"):
        made.ask(ReconcileScope.UNSETTLED, master.reconcile)
    master.is_unavailable, master.agents = False, {"away"}

    made.ask(ReconcileScope.UNSETTLED, master.reconcile)

    assert frozenset() == made.answers.begin()


def test_an_answer_that_is_stored_is_no_news() -> None:
    """The answer about the pod and the report of all pods after it are news only if they differ from storage."""
    made, master = reconciler(pod_row(0), pod_row(1, PodState.LAUNCHED))
    news: list[str] = []
    master.answers = lambda statuses: news.extend(s.pod for s in statuses if made.answers.is_news(s))
    running, launched = str(pod_row(0)[0]), str(pod_row(1)[0])

    made.ask(ReconcileScope.UNSETTLED, master.reconcile)
    assert [launched] == news
    assert frozenset({launched}) == made.answers.begin()
    made.ask(ReconcileScope.UNSETTLED, master.reconcile)
    made.answers.take([answer(launched)])

    assert not made.answers.is_news(answer(launched))
    assert made.answers.is_news(answer(launched, "FAILED"))
    assert made.answers.is_news(answer(running))


def test_what_is_reported_last_is_no_news_either() -> None:
    """The report of all pods takes seconds, in which the next reconciliation may begin. Nothing is kept afterwards."""
    made, master = reconciler(*(pod_row(number) for number in range(3)))
    master.answers = lambda statuses: [made.answers.is_news(status) for status in statuses]
    made.ask(ReconcileScope.ALL, master.reconcile)

    made.ask(ReconcileScope.UNSETTLED, master.reconcile)

    known = [answer(str(pod_row(number)[0])) for number in range(3)]
    assert [False] * 3 == [made.answers.is_news(status) for status in known]
    assert not made.answers._said


def test_an_answer_that_differs_ends_what_was_known() -> None:
    """A pod that the cluster called lost, and then runs after all, is news both times."""
    made, _ = reconciler()
    task_id = str(pod_row(0)[0])
    made.answers.ask([task_id], running=[task_id])

    assert made.answers.is_news(answer(task_id, "LOST"))
    assert made.answers.is_news(answer(task_id))


def test_what_has_changed_since_it_was_read_is_news() -> None:
    """The stored state of a pod no longer counts after any status of the pod."""
    made, _ = reconciler()
    task_id = str(pod_row(0)[0])
    made.answers.ask([task_id], running=[task_id])

    assert made.answers.is_news(PodReport(task_id, "LOST", lambda: None))
    assert made.answers.is_news(answer(task_id))
