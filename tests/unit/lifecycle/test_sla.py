"""The SLA: the instances that count as unavailable, and the ones that may be taken down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.sla import Availability, availability, available_min, grant, is_missing
from peloton.model.pod import HealthState, PodRecord, PodState, Termination, TerminationReason
from peloton.model.reason import SlaRefusal
from peloton.model.update_text import sla_text
from tests.unit.lifecycle.pods import service_pod

KILLED, DELETED = PodState.KILLED, PodState.DELETED


@pytest.mark.parametrize(
    ("pod", "expected", "missing"),
    [
        (service_pod(0), Availability.AVAILABLE, False),
        (service_pod(0, health=HealthState.HEALTHY), Availability.AVAILABLE, False),
        (service_pod(0, health=HealthState.HEALTH_UNKNOWN), Availability.UNAVAILABLE, True),
        (service_pod(0, health=HealthState.UNHEALTHY), Availability.UNAVAILABLE, True),
        (service_pod(0, state=PodState.PENDING), Availability.UNAVAILABLE, True),
        (service_pod(0, goal=KILLED), Availability.KILLED, False),
        (service_pod(0, goal=DELETED), Availability.DELETED, False),
        (service_pod(0, desired_run_id=2), Availability.KILLED, True),
        (service_pod(0, desired_config_version=2), Availability.KILLED, True),
    ],
)
def test_availability(pod: PodRecord, expected: Availability, missing: bool) -> None:
    """Availability has a class for each pod; an unavailable pod with the goal to run is missing, whatever the cause."""
    assert (expected, missing) == (availability(pod), is_missing(pod))


@pytest.mark.parametrize("reason", list(TerminationReason))
def test_what_took_it_down(reason: TerminationReason) -> None:
    """Maintenance, an update and a failure make a pod unavailable, any other cause killed; it is missing in any
    case.
    """
    pod = service_pod(0, termination=Termination(reason))
    down = {
        TerminationReason.KILLED_HOST_MAINTENANCE,
        TerminationReason.KILLED_FOR_UPDATE,
        TerminationReason.FAILED,
    }
    expected = Availability.UNAVAILABLE if reason in down else Availability.KILLED
    assert (expected, True) == (availability(pod), is_missing(pod))


@pytest.mark.parametrize(
    ("maximum", "here", "missing_elsewhere", "expected"),
    [(2, 6, 0, 4), (2, 6, 1, 5), (2, 6, 2, 6), (2, 6, 9, 6), (7, 6, 0, 0), (7, 6, 5, 4)],
)
def test_what_must_stay_in_a_cluster(maximum: int, here: int, missing_elsewhere: int, expected: int) -> None:
    """A pod that leaves the cluster and becomes missing does not change the number of pods that must remain."""
    assert expected == available_min(maximum, here, missing_elsewhere)
    if missing_elsewhere < maximum <= here:
        assert expected == available_min(maximum, here - 1, missing_elsewhere + 1)


def test_a_pod_that_does_not_exist() -> None:
    """A pod that does not exist has a class of its own."""
    assert Availability.INVALID is availability(None)


@pytest.mark.parametrize(
    ("maximum", "missing", "wanted", "granted", "refusal"),
    [
        (0, {1, 2, 3}, {4, 5}, (4, 5), None),
        (1, set(), {4, 5}, (4,), SlaRefusal(maximum=1, missing=0, refused=1)),
        (1, {7}, {4, 5}, (), SlaRefusal(maximum=1, missing=1, refused=0)),
        (1, {5}, {4, 5}, (5,), SlaRefusal(maximum=1, missing=1, refused=0)),
        (3, {7}, {4, 5}, (4, 5), None),
    ],
)
def test_grants(
    maximum: int, missing: set[int], wanted: set[int], granted: tuple[int, ...], refusal: SlaRefusal | None
) -> None:
    """Grants go up to the maximum of the SLA, by instance; unavailable instances are granted in any case."""
    given_ = grant(maximum, missing, wanted)
    assert (granted, tuple(sorted(wanted - set(granted))), refusal) == (given_.granted, given_.refused, given_.refusal)


@given(st.integers(1, 5), st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_never_more_than_the_maximum(maximum: int, missing: set[int], wanted: set[int]) -> None:
    """Grants raise the number of missing instances to the maximum at most, and refuse no instance needlessly."""
    granted = grant(maximum, missing, wanted)
    after = missing | set(granted.granted)
    assert len(after) <= max(maximum, len(missing))
    assert wanted == set(granted.granted) | set(granted.refused)
    assert not granted.refused or len(after) >= maximum


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (SlaRefusal(1, 0, 1), "no more than 1 instances may be unavailable, 0 are, 1 must wait"),
        (SlaRefusal(1, 1, 2), "1 of at most 1 instances are unavailable already"),
    ],
)
def test_a_refusal_in_words(refusal: SlaRefusal, text: str) -> None:
    """A refusal says whether no more instances may be taken down, or fewer."""
    assert text == sla_text(refusal)
