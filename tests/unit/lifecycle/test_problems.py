"""Conditions that count as problems, and their texts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle import problems
from peloton.model.advice import HostMark, Mark, ServiceMark
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.maintenance import Blocker, DrainProgress, HostMaintenance
from peloton.model.misfit import FlappingHost
from peloton.model.problem import Problem, Severity, SubjectKind
from peloton.model.reason import Infeasible
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.volume import VolumeRecord, VolumeState

NOW = 1_700_000_000 * NS_PER_S
JOB = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d")


def texts(found: list[Problem]) -> list[str]:
    return [one.text for one in found]


def test_the_worst_come_first_and_the_rest_is_counted() -> None:
    """Problems of equal severity keep their order."""
    found = [
        Problem(severity, str(number), SubjectKind.HOST, "h")
        for number, severity in enumerate([Severity.WARNING, Severity.CRITICAL] * 3)
    ]

    shown, left_out = problems.worst_first(found, 4)

    assert (["1", "3", "5", "0"], 2) == (texts(shown), left_out)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 days")]
)
def test_about_how_long(seconds: float, text: str) -> None:
    """A span of time is shown in the largest unit of which there are at least two."""
    assert text == problems.span_text(seconds)


def test_components_that_are_locked() -> None:
    """A locked component is reported with the actions that it blocks; a lock without effect is no problem."""
    (found,) = problems.report_lockdowns({"Kill", "GoalStateEngine"})

    assert "Kill is locked: no pod is killed until it is unlocked: peloton admin unlock Kill" == found.text
    assert (Severity.CRITICAL, SubjectKind.COMPONENT, "Kill") == (found.severity, found.subject_kind, found.subject_id)


def test_roles_without_a_leader() -> None:
    """A role without a leader is reported with the actions that stop, and the end of the last lease."""
    pools, hosts = problems.role_problem("resmgr", 42.0), problems.role_problem("hostmgr/west", None)

    assert "the lease of the last one ran out 42 s ago. No pod is admitted" in pools.text
    assert "No pod is launched or stopped in cluster west" in hosts.text
    assert "lease" not in hosts.text
    assert (Severity.CRITICAL, SubjectKind.ROLE, "hostmgr/west") == (
        hosts.severity,
        hosts.subject_kind,
        hosts.subject_id,
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ((False, "", True, 3), "is not connected to its Mesos master"),
        ((True, "no framework id", True, 3), "launches no pods: no framework id"),
        ((True, "", False, 0), "has not listed its hosts yet"),
        ((True, "", True, 0), "has no host that takes pods"),
    ],
)
def test_a_cluster_as_a_whole(state: tuple[bool, str, bool, int], text: str) -> None:
    """Problems of a cluster are limited to the first one; all others follow from it."""
    (found,) = problems.cluster_problems("west", "mesos", *state)

    assert text in found.text
    assert Severity.CRITICAL is found.severity
    assert [] == problems.cluster_problems("west", "mesos", True, "", True, 1)


def test_hosts_that_left() -> None:
    """Hosts that left are reported, the latest first, without hosts in maintenance; of many a few are named."""
    gone = {Hostname(f"h{number}"): 10.0 * number for number in range(1, 9)}

    found = problems.report_gone_hosts("west", gone, {Hostname("h2")}, NOW)

    assert ["h1", "h3", "h4", "h5", "h6", "west"] == [one.subject_id for one in found]
    assert "Host h3 left cluster west 30 s ago and is not back" == found[1].text
    assert (NOW - 30 * NS_PER_S, "peloton host why h3") == (found[1].since_ns, found[1].command)
    assert found[-1].text.startswith("2 more hosts left cluster west")
    assert SubjectKind.CLUSTER is found[-1].subject_kind


def test_avoided_hosts_and_red_marks() -> None:
    """Avoided hosts and red marks are reported with their reasons."""
    why = FlappingHost(3, 40)
    (avoided,) = problems.report_avoided_hosts("west", {Hostname("h1"): (why, 300.0)})
    host = HostMark(Hostname("h2"), Mark.RED, NOW, "memory 97 %, red from 90 %")
    service = ServiceMark(JOB, Mark.RED, NOW, "p99 900 ms, red from 500 ms")

    assert "Host h1 is avoided after it was gone and came back 3 times within 40 s, for 5 min more" == avoided.text
    assert [
        "Host h2 is marked RED: memory 97 %, red from 90 %",
        f"Service {JOB} is marked RED: p99 900 ms, red from 500 ms",
    ] == texts(problems.report_red_marks("west", [host], [service]))


def test_drains_beyond_their_deadlines() -> None:
    """A drain that an operator has forced, that has ended, or that has time left is no problem."""
    late = HostMaintenance(
        "west", Hostname("h1"), HostState.DRAINING, HostState.DOWN, deadline_s=60, drained_from_ns=NOW - 660 * NS_PER_S,
        progress=DrainProgress(3, 1, (), "the SLA of 1 job"),
    )  # fmt: skip
    others = [
        replace(late, is_forced=True),
        replace(late, state=HostState.DOWN),
        replace(late, deadline_s=700),
        replace(late, drained_from_ns=0),
    ]

    (found,) = problems.late_drains([late, *others], NOW)

    assert (
        "The drain of host h1 is 10 min beyond its deadline: 3 pods are left and wait for the SLA of 1 job"
        == found.text
    )


def test_drains_that_pods_hold_up() -> None:
    """Blocked drains are reported with the jobs and the reasons of their SLAs, except drains that have just begun, that
    are forced, or that are late, which are reported already.
    """
    no = "1 of at most 1 instances are unavailable already"
    blockers = (Blocker(JOB, 2, no), Blocker("j2", 1, "has a volume"), Blocker("j3", 1, no))
    held = HostMaintenance(
        "west", Hostname("h1"), HostState.DRAINING, HostState.DOWN, deadline_s=3_600,
        drained_from_ns=NOW - 600 * NS_PER_S, progress=DrainProgress(4, 0, blockers, "the SLA of 2 jobs"),
    )  # fmt: skip
    others = [
        replace(held, is_forced=True),
        replace(held, state=HostState.DOWN),
        replace(held, deadline_s=300),
        replace(held, drained_from_ns=NOW - 60 * NS_PER_S),
        replace(held, progress=DrainProgress(4, 4)),
    ]

    (found,) = problems.report_blocked_drains([held, *others], NOW)

    assert (
        f"The drain of host h1 has been under way for 10 min, and pods hold it up: 2 pods of job {JOB}: {no}; 1 pod of "
        "job j2: has a volume; and 1 more job. It may be forced in 50 min" == found.text
    )
    assert ("peloton host maintenance status h1", held.drained_from_ns) == (found.command, found.since_ns)


def test_lost_volumes() -> None:
    """Lost volumes beyond the named ones are counted."""
    volume = VolumeRecord("v1", JOB, 3, 1, "p", "west", "h1", "data", 100, VolumeState.LOST, note="h1 is gone")

    named, more = problems.report_lost_volumes([volume], 8, {JOB: "db"})

    assert "Volume v1 on host h1 is LOST (h1 is gone): instance 3 of job db waits for it" == named.text
    assert ("7 more volumes are LOST", SubjectKind.CLUSTER) == (more.text, more.subject_kind)


def test_updates_that_failed_or_stand_still() -> None:
    """The update that an operator paused before any failure is no problem."""
    whole = frozenset(range(10))
    failed = UpdateRecord("u1", JOB, UpdateType.UPDATE, UpdateSpec(), UpdateState.FAILED, 2, 1, updated=whole,
                          failed=frozenset({1, 2}), done=frozenset({3}))  # fmt: skip
    paused = replace(failed, state=UpdateState.PAUSED)
    waits = replace(failed, state=UpdateState.ROLLING_FORWARD, awaits_pulse=True, failed=frozenset())
    meant = replace(paused, failed=frozenset())
    back = replace(meant, state=UpdateState.ROLLED_BACK, spec=UpdateSpec(max_failure_instances=2),
                   prev_config_version=2, config_version=3)  # fmt: skip
    goes_back = replace(back, state=UpdateState.ROLLING_BACKWARD)

    found = problems.stuck_updates(
        [("a", failed), ("b", paused), ("c", waits), ("d", meant), ("e", back), ("f", goes_back)], 5
    )

    assert [
        "The update of service a has failed: 2 of its 10 instances failed",
        "The update of service b is paused: 2 of its 10 instances failed, 7 are left",
        "The update of service c waits for a pulse: 9 of 10 instances are left",
        "The update of service e was rolled back: 2 instances failed with version 2",
        "The update of service f is being rolled back: 2 instances failed with version 2",
    ] == texts(found)


def test_updates_that_have_stalled() -> None:
    """The text has the cause and the runs that failed."""
    rolls = UpdateRecord("u1", JOB, UpdateType.UPDATE, UpdateSpec(), UpdateState.ROLLING_FORWARD, 2, 1)
    stalled = replace(rolls, stalled_ns=5, stall_cause="instance 0 fails\nagain", failed_run_count=8)

    (found,) = problems.stuck_updates([("a", rolls), ("b", stalled)], 1)

    why = "no instance has become done for 600 seconds or more: instance 0 fails again"
    assert f"The update of service b has stalled, 8 runs failed: {why}" == found.text
    assert f"peloton job why {JOB}" == found.command


def test_gangs_that_never_start() -> None:
    """The pool is named, and the job with the reason."""
    (found,) = problems.hopeless_gangs([("/eng", JOB, 2, "it wants 9 of 4 gpus")])

    assert f"2 gangs of job {JOB} in pool /eng will never start: it wants 9 of 4 gpus" == found.text
    assert (SubjectKind.POOL, "/eng") == (found.subject_kind, found.subject_id)


def test_jobs_that_fit_no_host() -> None:
    """Jobs that fit no host are reported with the numbers of each shape; of many jobs a few are named."""
    whys = (Infeasible("", 3, 3, 3, wanted=Resources.of(64), largest=Resources.of(4)),)
    label = (Infeasible("", 3, 0, 0, constraint="label zone=x", wanted=Resources.of(1)),)
    alone = problems.UnfitJob(JOB, "train", "/eng", 0, [(2, whys), (1, label)])
    gang = problems.UnfitJob("j2", "mpi", "/eng", 8, [(1, whys)])

    first, second, *_, more = problems.unfit_jobs([alone, gang, *[alone] * 5])

    large = "no host has cpu 64: the largest of 3 hosts has 4"
    assert (
        f"Job train in pool /eng cannot run: 3 instances fit no host, even an empty one: {large}; "
        "0 of 3 hosts meet the constraint label zone=x" == first.text
    )
    assert (SubjectKind.JOB, JOB, f"peloton job why {JOB}") == (first.subject_kind, first.subject_id, first.command)
    assert "its gang of 8 does not start, because 1 instance fits no host, even an empty one: " in second.text
    assert "2 more jobs have instances that fit no host" == more.text


def test_pools_that_wait_for_what_they_are_entitled_to() -> None:
    """A pool that has waited longest comes first; one that has just begun to wait is not reported."""
    heads = [("/a", "cpu 9 wanted", "", 300.0), ("/b", "cpu 1 wanted", "/c (cpu 4)", 900.0), ("/d", "", "", 299.0)]

    found = problems.lacking_pools(heads, NOW)

    assert [
        "Pool /b has waited for 15 min for what it is entitled to: cpu 1 wanted; held by /c (cpu 4)",
        "Pool /a has waited for 5 min for what it is entitled to: cpu 9 wanted",
    ] == texts(found)
    assert ("/b", NOW - 900 * NS_PER_S) == (found[0].subject_id, found[0].since_ns)


def test_a_recorder_that_is_behind() -> None:
    """A recorder that is a few samples late is not behind."""
    assert [] == problems.late_recorder(240.0, 60)
    (found,) = problems.late_recorder(241.0, 60)

    assert "No time series have been recorded for 4 min, though it is done every 60 s: charts have a gap" in found.text
