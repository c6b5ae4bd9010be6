"""Pods for which no host is found, in virtual time: they release their admission, and are tried again."""

from __future__ import annotations

from peloton.model.ids import PodId
from tests.workflow.fakes import WHY_UNFIT
from tests.workflow.stories import JOB, Story
from workflows.policies import Policies

HOUR_S = 3600.0


def test_pods_that_no_host_could_take() -> None:
    """Pods that fit no host release their admission at once, so that the others run to their end meanwhile; they are
    tried again, with longer pauses each time and few events, and can be killed in the queue.
    """
    story = Story(admitted_max=4)
    story.cluster.unfit = {0, 1, 2, 3}
    story.submit(10).run_until_pods("SUCCEEDED", 6)

    assert {"SUCCEEDED": 6, "PENDING": 4} == story.counts
    assert story.clock.elapsed_s < 3 * 65
    pods = story.cluster.jobs[JOB].pods.records
    assert {WHY_UNFIT} == {pods[i].message.partition(" s: ")[2] for i in range(4)}
    tries = {i: pods[i].vain_count for i in range(4)}
    story.run_for(HOUR_S)
    assert {4, 5, 6, 7, 8} >= {pods[i].vain_count - count for i, count in tries.items()}
    assert {"PENDING": 4, "SUCCEEDED": 6} == story.counts
    story.cluster.kill(JOB)
    assert ("KILLED", {"SUCCEEDED": 6, "KILLED": 4}) == story.run()


def test_pods_without_a_host_in_time() -> None:
    """Pods without a host keep their admission until the timeout, release it, and are launched once hosts have come;
    each pod starts its own backoff.
    """
    policies = Policies(pod_placement_s=60.0)
    story = Story(hosts=1, slots=3, run_s=5_000).submit(5, policies=policies).run_for(50)
    assert {"RUNNING": 3, "READY": 2} == story.counts
    story.run_for(45)
    assert {"RUNNING": 3, "PENDING": 2} == story.counts
    reason = "no host found in 60 s: 2 pods without a host (no host offered)"
    pods = story.cluster.jobs[JOB].pods.records
    assert {reason} == {pods[i].message.partition(" s: ")[2] for i in (3, 4)}

    story.run_until_pods("READY", 2).run_until_pods("PENDING", 2)
    assert [2, 2] == [pods[i].vain_count for i in (3, 4)]
    story.cluster.add_hosts(1)
    assert ("SUCCEEDED", {"SUCCEEDED": 5}) == story.run()
    assert {PodId(JOB, i, 1) for i in range(5)} == set(story.cluster.launched)


def test_more_pods_that_no_host_could_take_than_one_placement_reads() -> None:
    """Pods of the same shape are queued again together; the pods behind them are placed in the next turn, at once."""
    story = Story()
    story.cluster.unfit = set(range(20))
    story.submit(25, policies=Policies(place_pods_max=10)).run_until_pods("RUNNING", 5)

    assert story.clock.elapsed_s < 2
    assert 1 == story.cluster.calls["requeue_pods"]
