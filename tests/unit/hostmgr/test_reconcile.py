"""When Mesos is asked, and about which pods."""

from __future__ import annotations

from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState
from services.hostmgr.reconcile import FOLLOW_UPS_S, PERIOD_S, InFlight, Look, ReconcileSchedule

POD = PodId(JobId("00000000-0000-4000-8000-000000000001"), 0, 1)
ROW = (POD, "h1", "agent", PodState.LAUNCHED)


def started() -> ReconcileSchedule:
    schedule = ReconcileSchedule()
    assert Look.ALL is schedule.take(0.0)
    return schedule


def test_the_first_look_is_at_everything() -> None:
    """A new leader knows nothing, and then there is nothing to do."""
    schedule = started()

    assert Look.NONE is schedule.take(1.0)


def test_unsettled_pods_are_looked_at_again_and_again_until_everything_is() -> None:
    """A master that recovers does not answer at once: the questions thin out until the period ends."""
    schedule = started()

    looks = [schedule.take(second) for second in (*FOLLOW_UPS_S, PERIOD_S - 1, PERIOD_S, PERIOD_S + 1)]

    assert [*[Look.UNSETTLED] * len(FOLLOW_UPS_S), Look.NONE, Look.ALL, Look.NONE] == looks


def test_a_late_taker_catches_up_with_one_look() -> None:
    """However many are due, one look at everything covers them."""
    assert Look.ALL is started().take(PERIOD_S * 3)


def test_the_larger_wish_wins() -> None:
    """Asking for less does not undo asking for more, and a wish is taken once."""
    schedule = started()
    schedule.want(Look.ALL)
    schedule.want(Look.UNSETTLED)

    assert schedule.is_wanted
    assert [Look.ALL, Look.NONE] == [schedule.take(1.0), schedule.take(1.0)]


def test_a_small_wish_does_not_move_the_plan() -> None:
    """The look at everything comes when it would have come."""
    schedule = started()
    schedule.want(Look.UNSETTLED)

    assert [Look.UNSETTLED, Look.NONE] == [schedule.take(1.0), schedule.take(2.0)]
    assert Look.ALL is schedule.take(PERIOD_S)


def test_unsettled_are_pods_that_should_have_moved_on() -> None:
    """A running pod is not among them."""
    assert {PodState.LAUNCHED, PodState.KILLING} == {state for state in PodState if Look.UNSETTLED.covers(state)}
    assert Look.ALL.covers(PodState.RUNNING)


def test_a_pod_in_flight_is_left_out_until_each_launch_of_it_has_landed() -> None:
    """A repeated call for the same pod does not uncover the first one."""
    flights = InFlight()

    with flights.launching([POD]):
        with flights.launching([POD]):
            assert [] == flights.landed([ROW])
        assert [] == flights.landed([ROW])
    assert [ROW] == flights.landed([ROW])
