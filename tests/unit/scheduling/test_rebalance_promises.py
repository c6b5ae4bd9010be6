"""Plans of moves and other promises to pods: the spread of their jobs, hosts reserved for them, held resources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle.rebalance import move_text
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import HostLabel
from peloton.model.rebalance import JobSpread, Stays, WaitingPods
from peloton.scheduling.rebalance import plan
from tests.unit.scheduling.moves_table import EMPTY, FREE, SPREAD, Cluster, cpu, hosts_of, over, pods_on, waits, ways

RACKS = {f"h{at}": {"rack": "abc"[at // 2]} for at in range(6)}


def test_a_pod_that_yields_stays_within_its_bound() -> None:
    """The only host that fits the pod is in a rack that has as many pods of its job."""
    spread = cpu(2, layout=over("rack", is_hard=True))
    pods = [
        *pods_on("a", "h0", spread), *pods_on("b", "h0", cpu(4)),
        *pods_on("a", "h2", spread), *pods_on("b", "h2", cpu(4)),
        *pods_on("full", "h1", cpu(8)), *pods_on("full", "h3", cpu(8)),
    ]  # fmt: skip
    hosts = hosts_of("h0", "h1", "h2", "h3")
    cluster = Cluster(hosts, pods, waits(4, constraint=HostLabel("hostname", "h0")), RACKS)

    assert ((), ("big",)) == (cluster.plan(FREE).moves, cluster.plan(FREE).stuck)
    plain = replace(cluster, pods=[replace(pod, shape=replace(pod.shape, layout=None)) for pod in pods])
    assert [("a", "h0", "h2")] == ways(plain.plan(FREE).moves)


def test_a_job_goes_to_the_hosts_of_a_new_rack_until_it_is_even() -> None:
    """A full rack has two pods of the job more than the new one; the emptiest host there receives one."""
    spread = cpu(1, layout=over("rack"))
    pods = [*pods_on("a", "h0", spread, 2), *pods_on("a", "h1", spread), *pods_on("b", "h2", cpu(1))]
    cluster = Cluster(hosts_of("h0", "h1", "h2", "h3"), pods, labels=RACKS)

    found = cluster.plan(SPREAD)

    assert [("a", "h0", "h3")] == ways(found.moves)
    assert "rack=a has 3 pods of the job, rack=b has 0: max skew 1" == move_text(found.moves[0])
    assert () == replace(cluster.after(found.moves)).plan(SPREAD).moves


@pytest.mark.parametrize("is_hard", [False, True])
def test_a_skew_within_the_bound_is_let_be(is_hard: bool) -> None:
    """A job that allows two more pods in a rack than in another is not moved for two."""
    spread = cpu(1, layout=over("rack", 2, is_hard))
    cluster = Cluster(hosts_of("h0", "h2"), pods_on("a", "h0", spread, 2), labels=RACKS)

    assert () == cluster.plan(SPREAD).moves
    worse = replace(cluster, pods=pods_on("a", "h0", spread, 3))
    assert [("a", "h0", "h2")] == ways(worse.plan(SPREAD).moves)


def test_pods_of_a_job_that_is_in_two_clusters_stay_in_their_domains() -> None:
    """Pods of a job in two clusters stay in their domains: pods on hosts of the other cluster are unknown."""
    spread = cpu(1, layout=over("rack"))
    cluster = Cluster(hosts_of("h0", "h1", "h2"), pods_on("a", "h0", spread, 8), labels=RACKS, elsewhere=["a"])

    assert {("h0", "h1")} == {way[1:] for way in ways(cluster.plan(SPREAD).moves)}


def test_pods_with_a_bound_stay_while_others_of_their_job_are_placed() -> None:
    """Pods with a bound stay while others of their job are placed, as the number in each rack is unknown then."""
    spread = cpu(1, layout=over("rack", is_hard=True))
    cluster = Cluster(hosts_of("h0", "h1"), [*pods_on("a", "h0", spread), *pods_on("b", "h1", cpu(2))], labels=RACKS)
    hosts, unknown = [cluster.host(name) for name in cluster.capacities], {JobId("a"): JobSpread({spread: ()})}

    assert [("a", "h0", "h1")] == ways(cluster.plan(EMPTY).moves)
    assert () == plan(hosts, replace(cluster.census(), spread=unknown), EMPTY, 100).moves


def test_no_pod_yields_where_a_bound_keeps_the_pod_off() -> None:
    """The pod that waits may only go to the second rack."""
    spread = cpu(4, layout=over("rack", is_hard=True))
    pods = [*pods_on("big", "h0", spread), *pods_on("b", "h0", cpu(2)), *pods_on("b", "h1", cpu(5)),
            *pods_on("c", "h2", cpu(6)), *pods_on("d", "h3", cpu(5))]  # fmt: skip
    waiting = [WaitingPods(JobId("big"), spread, 1)]
    cluster = Cluster(hosts_of("h0", "h1", "h2", "h3"), pods, waiting, RACKS)

    assert () == cluster.plan(FREE).moves  # pods of six and five cores fit nowhere else
    smaller = [*pods_on("d", "h3", cpu(3)), *pods_on("d", "h4", cpu(3)), *pods[:-1]]
    found = replace(cluster, capacities=hosts_of("h0", "h1", "h2", "h3", "h4"), pods=smaller).plan(FREE)
    assert ((), ()) == (found.moves, found.stuck)  # it fits


# Hosts that are reserved, and pods that come back.


def test_the_host_that_is_reserved_for_the_pod_is_freed() -> None:
    """Another host would need one move less; and no pod moves to the reserved one."""
    pods = [*pods_on("a", "h1", cpu(2), 3), *pods_on("b", "h2", cpu(2), 2), *pods_on("c", "h3", cpu(6))]
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods, waits(6))
    assert [("b", "h2", "h1")] == ways(cluster.plan(FREE).moves)
    reserved = replace(cluster, reserved={"h1": (JobId("big"), cpu(6))})

    found = reserved.plan(FREE)

    assert [("a", "h1", "h3"), ("a", "h1", "h2")] == ways(found.moves)
    text = "frees resources on h1, which is reserved for it, for a pod of job big that fits on no host, by 2 moves"
    assert {text} == {move_text(move) for move in found.moves}
    of_another = replace(cluster, reserved={"h2": (JobId("other"), cpu(6))}).plan(FREE)
    assert ((), ("big",)) == (of_another.moves, of_another.stuck)


def test_capacity_on_the_reserved_host_is_that_of_its_pod() -> None:
    """A pod that fits its reserved host moves no other; a second pod of the job has no claim to it."""
    pods = [*pods_on("a", "h1", cpu(2)), *pods_on("b", "h2", cpu(5)), *pods_on("c", "h2", cpu(3))]
    cluster = Cluster(hosts_of("h1", "h2"), pods, waits(6), reserved={"h1": (JobId("big"), cpu(6))})

    assert ((), ()) == (cluster.plan(FREE).moves, cluster.plan(FREE).stuck)
    two = replace(cluster, waiting=waits(6, 2))
    assert ((), ("big",)) == (two.plan(FREE).moves, two.plan(FREE).stuck)


def test_a_reserved_host_that_cannot_be_freed_leaves_others() -> None:
    """Pods on the reserved host cannot move, and on another host one move is enough."""
    kept = [replace(pod, stays=Stays.VOLUME) for pod in pods_on("a", "h1", cpu(4))]
    cluster = Cluster(
        hosts_of("h1", "h2", "h3"),
        [*kept, *pods_on("b", "h2", cpu(4)), *pods_on("c", "h3", cpu(4))],
        waits(6),
        reserved={"h1": (JobId("big"), cpu(6))},
    )

    assert [("b", "h2", "h3")] == ways(cluster.plan(FREE).moves)


def test_a_pod_that_comes_back_is_let_in_on_its_host() -> None:
    """A pod whose volume is on a host fits no other; while resources are held for it there, it moves no pod."""
    pods = [*pods_on("a", "h1", cpu(6)), *pods_on("b", "h2", cpu(1))]
    waiting = [replace(waits(4, constraint=HostLabel("hostname", "h1"))[0], home=Hostname("h1"))]
    cluster = Cluster(hosts_of("h1", "h2"), pods, waiting)

    assert [("a", "h1", "h2")] == ways(cluster.plan(FREE).moves)
    assert ((), ()) == (replace(cluster, held=["h1"]).plan(FREE).moves, replace(cluster, held=["h1"]).plan(FREE).stuck)
