"""Hosts of a daemon that is only planned, drawn as text, and the counts for them.

A line is a host: its cores, after a slash the cores that other daemons leave free, then its pods as ``cores:priority``
with ``!`` for pods that are not preemptible and ``~`` for pods that are leaving already; ``room`` where the daemon fits
now, ``away`` in maintenance, ``?`` where no check was made.
"""

from __future__ import annotations

import pytest

from peloton.lifecycle.daemon_plan import count_daemon_hosts
from peloton.model.daemon import DaemonHost, DaemonPlan, DaemonReach, Neighbour
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.resources import Resources

REACH, CAPACITY = DaemonReach(9), Resources(99_000)


def pod(text: str, number: int) -> Neighbour:
    cores, _, priority = text.strip("!~").partition(":")
    holds, pod_id = Resources(int(cores) * 1000), PodId(JobId("other"), number, 1)
    return Neighbour(pod_id, int(priority or 0), number, holds, "!" not in text, "~" in text)


def make_plan(drawn: str, cores: int = 2) -> DaemonPlan:
    hosts, neighbours = [], {}
    for number, line in enumerate(drawn.strip().splitlines()):
        capacity, *words = line.split()
        whole, _, left = capacity.partition("/")
        name = Hostname(f"h{number}")
        has, rest = (Resources(int(cores) * 1000) for cores in (whole, left or whole))
        hosts.append(DaemonHost(name, has, rest, "room" in words, "away" in words))
        if not {"room", "away", "?"} & {*words}:
            neighbours[name] = [pod(word, at) for at, word in enumerate(words)]
    return count_daemon_hosts(Resources(cores * 1000), REACH, hosts, neighbours, CAPACITY)


@pytest.mark.parametrize(
    ("drawn", "away", "free", "evicting", "evicted", "waiting", "unchecked"),
    [
        ("4 room\n4 room", 0, 2, 0, 0, 0, 0),
        ("4 1:0 1:0 1:0 1:0", 0, 0, 1, 2, 0, 0),  # no more than needed
        ("4 3:9 1:0", 0, 0, 1, 1, 0, 0),  # one that is enough, though of higher priority
        ("4 3!\n4 1:0 3!", 0, 0, 0, 0, 2, 0),  # none leaves where that would not be enough
        ("4 3:0~ 1!", 0, 0, 0, 0, 1, 0),  # enough is free once the leaving pods have ended
        ("4 away\n4 4:0 away\n4 room", 2, 1, 0, 0, 0, 0),
        ("4 ?\n4 ?\n4 2:0 2!", 0, 0, 1, 1, 0, 2),
        ("", 0, 0, 0, 0, 0, 0),
    ],
)
def test_each_host_counts_once(
    drawn: str, away: int, free: int, evicting: int, evicted: int, waiting: int, unchecked: int
) -> None:
    """Each host counts once, as when the daemon is created."""
    room = make_plan(drawn)

    assert (away, free, evicting, evicted, waiting, unchecked) == (
        room.unavailable_count, room.free_count, room.evicting_count, room.evicted_count, room.waiting_count,
        room.unchecked_count,
    )  # fmt: skip
    assert (REACH, CAPACITY) == (room.reach, room.capacity)


def test_the_overhead_is_that_of_hosts_that_take_pods() -> None:
    """Overhead counts hosts that accept pods, whether the daemon fits there or not; hosts in maintenance are no
    capacity. It is at most the resources that other daemons leave free.
    """
    assert Resources(6_000) == make_plan("4 room\n4 4!\n4 4:0\n4 away").overhead
    assert Resources(2_000 + 1_000) == make_plan("4 room\n4/1 ?\n4/0 ?").overhead
