"""Labels of pods on hosts, as the host manager counts them, and leases by them."""

from __future__ import annotations

from peloton.hosts.pod_labels import PodLabelIndex
from peloton.model.ids import PodId
from peloton.model.pod import AllOf, HostLabel, PodLabel
from services.hostmgr.messages import lease_from_wire, lease_to_wire
from tests.unit.hostmgr.test_hosts import JOB, OTHER, free_part, pool_with, refusals_of, shape

WEB, EU = ("app", "web"), ("zone", "eu")
ONE_EACH = shape(0.1, constraint=PodLabel(*WEB))


def test_pods_are_counted_until_they_end() -> None:
    """Pods are counted by label and host; the end of an older run changes nothing, a new run
    replaces the one before it.
    """
    index = PodLabelIndex()
    index.add([(PodId(JOB, 0, 1), "h1", (WEB, EU)), (PodId(JOB, 1, 1), "h1", (WEB,)), (PodId(JOB, 2, 1), "h1", ())])
    assert ((WEB, 2), (EU, 1)) == index.on_host("h1", {EU, WEB})

    index.add([(PodId(JOB, 0, 2), "h2", (WEB, EU))])
    assert not index.remove([PodId(JOB, 0, 1), PodId(JOB, 2, 1)])
    assert (((WEB, 1),), ((WEB, 1),)) == (index.on_host("h1", {EU, WEB}), index.on_host("h2", {WEB}))

    assert index.remove([PodId(JOB, 0, 2), PodId(JOB, 1, 1)])
    assert ((), ()) == (index.on_host("h1", {EU, WEB}), index.on_host("h2", {EU, WEB}))


def test_a_lease_leaves_hosts_out_by_the_pods_there() -> None:
    """Pods of another job count too; the reason names the rule that failed, not the rules next to it."""
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))
    pool.pod_labels.add([(PodId(OTHER, i, 1), f"h{i}", (WEB,)) for i in (1, 3)])
    rule = AllOf((HostLabel("rack", "a"), PodLabel(*WEB)))

    lease = pool.acquire(JOB, [(shape(constraint=rule), 2)], 0.0)

    assert (["h2"], {"pods with app=web < 1 not met": 2}) == ([h.hostname for h in lease.hosts], refusals_of(lease))


def test_a_lease_has_hosts_for_as_many_pods_as_their_constraint_lets_be_there() -> None:
    """Twenty would fit on one host by their size; the counts of the labels they name come with the lease."""
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))
    pool.pod_labels.add([(PodId(OTHER, 0, 1), "h1", (WEB, EU))])

    lease = pool.acquire(JOB, [(shape(0.1, constraint=PodLabel(*WEB, "<", 2)), 3)], 0.0)

    assert [((WEB, 1),), ()] == [host.pod_labels for host in lease.hosts]
    assert lease == lease_from_wire(lease_to_wire(lease, []), [])


def test_who_waits_is_reported_when_labelled_pods_end() -> None:
    """The job is woken without a new offer, which may have arrived before the end of the pods."""
    pool = pool_with(free_part("h1"))
    pool.pod_labels.add([(PodId(OTHER, 0, 1), "h1", (WEB,))])
    assert () == pool.acquire(JOB, [(ONE_EACH, 1)], 0.0).hosts

    assert set() == pool.pods_ended([PodId(OTHER, 7, 1)])
    assert {JOB} == pool.pods_ended([PodId(OTHER, 0, 1)])
    assert ["h1"] == [host.hostname for host in pool.acquire(JOB, [(ONE_EACH, 1)], 1.0).hosts]
