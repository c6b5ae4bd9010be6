"""Volumes: the hosts of their pods, their states, and the conditions of their deletion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle.constraints import host_labels, matches
from peloton.lifecycle.volumes import (
    LISTING_LAG_S,
    HostSight,
    at_its_volume,
    deletion_refusal,
    is_destroyed,
    is_unmade,
    observe,
    volume_label,
    while_it_restarts,
)
from peloton.model.pod import HostLabel, PodRecord, PodShape, PodState
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S
from peloton.model.volume import VolumeRecord, VolumeState
from tests.unit.lifecycle.pods import JOB, service_pod

OLD_NS = 1_000 * NS_PER_S
NOW_NS = OLD_NS + int(LISTING_LAG_S * NS_PER_S)
V = VolumeRecord("v", JOB, 3, 1, "pool", "east", "h1", "data", 500, VolumeState.CREATED, changed_ns=OLD_NS)
INITIALIZED, CREATED, LOST, DELETED = VolumeState
PLAIN = PodShape(Resources(1_000, 64, 10), volume_mib=500, constraint=HostLabel("rack", "a"))
HERE = HostSight(frozenset({"v"}))


def labels(hostname: str = "h1", cluster: str = "east", *volumes: str) -> dict[str, object]:
    pairs = [("peloton/cluster", cluster), ("rack", "a"), *((volume_label(one), "here") for one in volumes)]
    return dict(host_labels(hostname, pairs))


def test_a_pod_without_a_volume_is_as_it_was() -> None:
    """A pod without a volume has the very same shape."""
    shape = replace(PLAIN, volume_mib=0)
    assert at_its_volume(shape, None) is shape


@pytest.mark.parametrize(("volume", "disk"), [(None, 510), (replace(V, state=INITIALIZED), 510), (V, 10)])
def test_the_disk_of_a_volume_is_needed_until_it_is_made(volume: VolumeRecord | None, disk: int) -> None:
    """A volume that is not created requires disk on top of the pod's own; placement has the amount for the volume."""
    shape = at_its_volume(PLAIN, volume)
    assert (disk, disk - 10) == (shape.resources.disk_mib, shape.volume_mib)


@pytest.mark.parametrize(
    ("state", "host", "fits"),
    [
        (CREATED, labels("h1", "east", "v"), True),
        (CREATED, labels("h1", "east", "w"), False),
        (LOST, labels("h1", "east", "v"), True),
        (LOST, labels("h1", "east"), False),
        (INITIALIZED, labels("h1", "east"), True),
        (INITIALIZED, labels("h2", "east", "v"), False),
        (INITIALIZED, labels("h1", "west"), False),
    ],
)
def test_a_pod_goes_to_its_volume_alone(state: VolumeState, host: dict[str, str], fits: bool) -> None:
    """A pod fits the host of its volume, and once it is created only while the host has it; its own constraint holds,
    too.
    """
    shape = at_its_volume(PLAIN, replace(V, state=state))

    assert fits == matches(shape.constraint, host)
    assert not matches(shape.constraint, {**host, "rack": "b"})


def test_a_pod_whose_volume_is_not_there_yet_may_go_anywhere() -> None:
    """A pod whose volume has no host has its own constraint only."""
    unbound = replace(V, state=INITIALIZED, host="", cluster="")
    assert PLAIN.constraint == at_its_volume(PLAIN, None).constraint == at_its_volume(PLAIN, unbound).constraint


GONE = "host h1 is not in cluster east"
UNKNOWN = f"{GONE}; no pod has run with it, and whether the host has made it is not known"
EMPTY = "host h1 is registered and no longer has it"


@pytest.mark.parametrize(
    ("before", "host", "after"),
    [
        (CREATED, HERE, (CREATED, "")),
        (INITIALIZED, HERE, (CREATED, "")),
        (LOST, HERE, (CREATED, "")),
        (CREATED, HostSight(frozenset()), (LOST, EMPTY)),
        (CREATED, HostSight(None, is_registered=False), (LOST, GONE)),
        (INITIALIZED, HostSight(None, is_registered=False), (INITIALIZED, UNKNOWN)),
        (INITIALIZED, HostSight(frozenset()), (INITIALIZED, "")),
        (CREATED, HostSight(None), (CREATED, "")),
        (CREATED, HostSight(None, is_registered=False, is_in_maintenance=True), (CREATED, "")),
        (LOST, HostSight(None), (LOST, "")),
        (LOST, HostSight(frozenset()), (LOST, EMPTY)),
    ],
)
def test_what_a_cluster_lists_is_the_state(
    before: VolumeState, host: HostSight, after: tuple[VolumeState, str]
) -> None:
    """A host that has not listed its volumes, is in maintenance, or may be about to create one has lost none."""
    assert after == observe(replace(V, state=before), host, NOW_NS)


@pytest.mark.parametrize(("away_s", "expected"), [(0, (CREATED, "")), (29, (CREATED, "")), (30, (LOST, GONE))])
def test_a_host_may_be_away_for_a_restart(away_s: float, expected: tuple[VolumeState, str]) -> None:
    """A host may restart: its volumes keep their state for a while; a lost one is not restored by that."""
    gone = HostSight(None, is_registered=False)
    host = while_it_restarts(gone, away_s, 30)
    assert expected == observe(V, host, NOW_NS)
    assert LOST is observe(replace(V, state=LOST), host, NOW_NS)[0]
    assert HERE is while_it_restarts(HERE, away_s, 30)


def test_what_is_not_known_of_a_volume_is_reported_while_its_host_is_away() -> None:
    """Missing information is shown while the host is down; a volume with goal DELETED is given up with its host."""
    waited_for = replace(V, state=INITIALIZED, note=UNKNOWN)
    assert (INITIALIZED, "") == observe(waited_for, HostSight(None), NOW_NS)
    assert (LOST, GONE) == observe(replace(waited_for, goal=DELETED), HostSight(None, is_registered=False), NOW_NS)


NEW = replace(V, state=INITIALIZED)


@pytest.mark.parametrize(
    ("volume", "host", "pod", "expected"),
    [
        (NEW, HostSight(frozenset()), service_pod(3, state=PodState.LOST), True),
        (NEW, HostSight(frozenset()), None, True),
        (NEW, HostSight(frozenset(), begun={"v"}), service_pod(3, state=PodState.READY), True),
        (NEW, HostSight(frozenset()), service_pod(3, host="h1", state=PodState.LAUNCHED), False),
        (NEW, HostSight(frozenset()), service_pod(3, host="h1", state=PodState.KILLING), False),
        (NEW, HERE, None, False),
        (NEW, HostSight(None), None, False),
        (NEW, HostSight(frozenset(), is_registered=False), None, False),
        (replace(NEW, goal=DELETED), HostSight(frozenset()), None, False),
        (replace(NEW, host=""), HostSight(frozenset()), None, False),
        (V, HostSight(frozenset()), None, False),
    ],
)
def test_a_volume_is_unmade_when_its_launch_is_over_and_its_host_does_not_have_it(
    volume: VolumeRecord, host: HostSight, pod: PodRecord | None, expected: bool
) -> None:
    """A volume counts as not created when its launch is over and its host does not list it; the question stays open
    while a launch may create it, and while its host is down or has sent no list.
    """
    assert expected == is_unmade(volume, host, pod)


def test_a_list_may_be_older_than_the_volume() -> None:
    """A list that is older than the volume does not make it lost."""
    assert (CREATED, "") == observe(V, HostSight(frozenset()), NOW_NS - 1)


@pytest.mark.parametrize(
    ("host", "now_ns", "is_gone"),
    [
        (HostSight(frozenset()), NOW_NS, True),
        (HostSight(frozenset()), NOW_NS - 1, False),
        (HostSight(None), NOW_NS, False),
        (HostSight(None, is_registered=False), NOW_NS, False),
    ],
)
def test_a_volume_is_gone_when_its_host_says_so(host: HostSight, now_ns: int, is_gone: bool) -> None:
    """A host that is down may come back with the volume."""
    assert is_gone == is_destroyed(replace(V, goal=DELETED), host, now_ns)


@pytest.mark.parametrize(
    ("host", "is_gone"),
    [(HostSight(frozenset()), True), (HostSight(None), False), (HostSight(None, is_registered=False), False)],
)
def test_a_volume_that_was_listed_is_gone_with_the_next_list(host: HostSight, is_gone: bool) -> None:
    """A listed volume is gone with the next list that lacks it; a host that is down, or without a list, does not
    decide.
    """
    assert is_gone == is_destroyed(replace(V, goal=DELETED), host, NOW_NS - 1, was_listed=True)


WAITS = service_pod(3, state=PodState.PENDING)
STOPPED = service_pod(3, state=PodState.KILLED, goal=PodState.KILLED)


@pytest.mark.parametrize(
    ("pod", "is_over", "gives_up", "rule"),
    [
        (service_pod(3, host="h1"), False, False, "is RUNNING on host h1"),
        (service_pod(3, host="h1"), False, True, "is RUNNING on host h1"),
        (service_pod(3, host="h1", state=PodState.KILLING, goal=PodState.KILLED), True, True, "is KILLING on host h1"),
        (WAITS, False, False, "is PENDING and comes back to it"),
        (WAITS, False, True, ""),
        (STOPPED, False, False, ""),
        (service_pod(3, state=PodState.FAILED), True, False, ""),
        (None, True, False, ""),
    ],
)
def test_a_volume_in_use_is_not_deleted(pod: PodRecord | None, is_over: bool, gives_up: bool, rule: str) -> None:
    """A volume of a pod on a host is never deleted; the volume of a waiting pod only if the request gives it up."""
    refusal = deletion_refusal(V, pod, is_over, gives_up)

    assert rule in refusal
    assert bool(rule) == bool(refusal)
    assert "" == deletion_refusal(replace(V, goal=DELETED), pod, is_over, gives_up)
