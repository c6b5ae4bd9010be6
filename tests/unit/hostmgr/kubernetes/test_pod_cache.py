"""The cache of Peloton's pods: states in their order, each until it is acknowledged."""

from __future__ import annotations

from typing import Any

from peloton.model.ids import PodId
from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import PodReport
from services.hostmgr.kubernetes.pods.pod_cache import PodCache
from tests.unit.hostmgr.kubernetes.pods import NAME, read_recording

Json = dict[str, Any]
STARTED, FINISHED = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
RUNNING: Json = {"running": {"startedAt": STARTED}}
ENDED: Json = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": STARTED, "finishedAt": FINISHED}}


def pod(phase: str, state: Json | None = None, name: str = NAME, uid: str = "u-1", **meta: Any) -> Json:
    statuses = [{"name": "main", "state": state}] if state else []
    status = {"phase": phase, "startTime": STARTED, "containerStatuses": statuses}
    metadata = {"name": name, "namespace": "peloton", "uid": uid, **meta}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": status}


def state(report: PodReport | None) -> str:
    return report.state_text if report is not None else ""


def acknowledge(cache: PodCache, report: PodReport | None) -> PodReport | None:
    """Acknowledge a report and return the next one."""
    assert report is not None
    following, _ = cache.acknowledge(report.token)
    return following


def test_a_state_follows_the_acknowledgement_of_the_one_before() -> None:
    """A state is reported after the acknowledgement of the one before, however fast the pod was; waiting is no news."""
    cache = PodCache()
    assert cache.record_state(pod("Pending"), "h") is None
    running = cache.record_state(pod("Running", RUNNING), "h")
    assert cache.record_state(pod("Succeeded", ENDED), "h") is None

    assert ("RUNNING", "SUCCEEDED") == (state(running), state(acknowledge(cache, running)))


def waits(reason: str, message: str) -> Json:
    return pod("Pending", {"waiting": {"reason": reason, "message": message}})


def test_a_wait_is_reported_once_for_each_kind_of_it() -> None:
    """A kind of wait is reported once, however often the kubelet retries: a pull has two states each time, and changing
    numbers in its messages.
    """
    cache, refused, down = PodCache(), "x:1: not found", "dial tcp 10.0.0.1:443: connection refused"
    seen = [("ContainerCreating", "")]
    seen += [
        ("ErrImagePull", refused),
        ("ImagePullBackOff", f'Back-off pulling image "x:1": ErrImagePull: {refused}'),
    ] * 5
    seen += [("ImagePullBackOff", 'Back-off pulling image "x:1"'), ("ErrImagePull", f"{refused} {id(seen)}")]
    seen += [("ErrImagePull", down), ("ErrImagePull", "dial tcp 10.0.0.2:443: connection refused")]
    reported = []
    for reason, message in seen:
        if report := cache.record_state(waits(reason, message), "h"):
            reported.append(report.status)
            acknowledge(cache, report)

    assert [(refused, True), (down, True)] == [(status.message, status.waits) for status in reported if status]
    assert "RUNNING" == state(cache.record_state(pod("Running", RUNNING), "h"))


def test_a_refused_pull_ends_its_pod_in_time() -> None:
    """The pod ends after the timeout; a registry that fails meanwhile starts the time again."""
    cache = PodCache()
    took_s = 1_767_323_045.0
    for at_s, message in ((0, ": not found"), (100, ": 503 Service"), (101, ": not found")):
        cache.record_state(waits("ErrImagePull", message), "h")
        assert [] == cache.stuck(took_s + at_s, 900.0)
    for report in cache.list_unacknowledged():
        left: PodReport | None = report
        while left:
            left = acknowledge(cache, left)

    assert [] == cache.stuck(took_s + 220, 900.0)
    [end] = cache.stuck(took_s + 221, 900.0)
    assert end.status is not None
    assert (PodState.FAILED, Cause.IMAGE) == (end.status.state, end.status.cause)


def test_a_pod_that_ended_unseen_has_run() -> None:
    """The start is reported first, at its own time."""
    cache = PodCache()
    first = cache.record_state(pod("Succeeded", ENDED), "h")
    assert first is not None
    assert first.status is not None

    assert (PodState.RUNNING, 1_767_323_045 * 10**9) == (first.status.state, first.status.time_ns)
    assert "SUCCEEDED" == state(acknowledge(cache, first))


def test_a_pod_that_had_ended_before_we_read_has_its_end_reported_alone() -> None:
    """A predecessor may have reported the start: a second RUNNING would be wrong for the run."""
    assert "SUCCEEDED" == state(PodCache().record_state(pod("Succeeded", ENDED), "h", is_listed=True))
    assert "RUNNING" == state(PodCache().record_state(pod("Running", RUNNING), "h", is_listed=True))


def test_reports_come_again_until_they_are_acknowledged() -> None:
    """The first unacknowledged report of each pod is repeated; unexpected tokens change nothing."""
    cache = PodCache()
    running = cache.record_state(pod("Running", RUNNING), "h")
    cache.record_state(pod("Succeeded", ENDED), "h")

    assert (None, None) == cache.acknowledge(("peloton", NAME, "u-1", "SUCCEEDED"))
    assert [running] == cache.list_unacknowledged() == cache.list_unacknowledged()
    end = acknowledge(cache, running)
    assert [end] == cache.list_unacknowledged()
    assert acknowledge(cache, end) is None
    assert [] == cache.list_unacknowledged()


def test_an_acknowledged_end_says_when_the_pod_ended() -> None:
    """The log is kept from that time on; the pod stays in the book until it is deleted."""
    cache = PodCache()
    end = acknowledge(cache, cache.record_state(pod("Succeeded", ENDED), "h"))
    assert end is not None
    _, stored = cache.acknowledge(end.token)
    assert stored is not None

    assert (1_767_323_046.0, True) == (stored.ended_s, stored.pod.is_stored)
    assert "SUCCEEDED" == state(cache.answer(NAME))
    cache.record_state(pod("Succeeded", ENDED), "h", is_deleted=True)
    assert {} == cache.pods


def test_an_end_is_reported_though_the_pod_is_gone() -> None:
    """A kubelet deletes a killed pod at once."""
    cache = PodCache()
    acknowledge(cache, cache.record_state(pod("Running", RUNNING), "h"))
    cache.kill_asked(NAME)
    reported = [
        cache.record_state(seen, "h", is_deleted=kind == "DELETED") for kind, seen in read_recording("term-handled")
    ]
    [report] = [report for report in reported if report is not None]

    assert "KILLED" == report.state_text
    assert acknowledge(cache, report) is None
    assert {} == cache.pods


def test_a_kill_before_the_pod_was_seen_is_remembered() -> None:
    """The end of such a pod counts as killed."""
    cache = PodCache()
    cache.kill_asked(NAME)
    cache.record_state(pod("Pending"), "h")

    assert "KILLED" == state(cache.record_state(pod("Pending"), "h", is_deleted=True))


def test_a_pod_has_one_end() -> None:
    """The first end counts, whatever is seen or reported later."""
    cache = PodCache()
    running = cache.record_state(pod("Running", RUNNING), "h")
    assert cache.end(NAME, PodState.LOST, Cause.HOST_LOST, "NodeLost", "away", 5) is None
    assert cache.record_state(pod("Succeeded", ENDED), "h") is None
    assert cache.end(NAME, PodState.LOST, Cause.HOST_GONE, "NodeGone", "gone", 6) is None

    end = acknowledge(cache, running)
    assert end is not None
    assert end.status is not None
    assert (PodState.LOST, Cause.HOST_LOST, 5) == (end.status.state, end.status.cause, end.status.time_ns)
    assert acknowledge(cache, end) is None


def test_pods_that_a_list_lacks_are_gone() -> None:
    """The pods were deleted without a watch: their end is unknown."""
    cache = PodCache()
    other = NAME[:-1] + "7"
    for name in (NAME, other):
        acknowledge(cache, cache.record_state(pod("Running", RUNNING, name), "h"))

    [report] = cache.keep({other})

    assert (NAME, "LOST") == (report.pod, report.state_text)


def test_a_pod_that_the_apiserver_refuses_has_failed() -> None:
    """The pod fails by the request, with the message of the apiserver."""
    cache = PodCache()

    report = cache.report_refused(PodId.parse(NAME), "n1", "h", "spec.containers: Required value", 5)

    assert report is not None
    assert report.status is not None
    assert (PodState.FAILED, Cause.INVALID) == (report.status.state, report.status.cause)
    assert "spec.containers: Required value" == report.status.message
    assert acknowledge(cache, report) is None
    assert {} == cache.pods


def test_answers_do_not_overtake_reports() -> None:
    """An answer has no token, and says no more than the reports."""
    cache = PodCache()
    assert cache.answer(NAME) is None
    running = cache.record_state(pod("Running", RUNNING), "h")
    cache.record_state(pod("Succeeded", ENDED), "h")

    answer = cache.answer(NAME)

    assert answer is not None
    assert ("RUNNING", True, ()) == (answer.state_text, answer.is_answer, answer.token)
    acknowledge(cache, running)
    assert "SUCCEEDED" == state(cache.answer(NAME))


def test_pods_are_found_by_their_node() -> None:
    """Pods are listed by node until they are deleted."""
    cache = PodCache()
    cache.record_state(pod("Running", RUNNING), "h")
    assert ([NAME], ["n1"]) == ([own.name for own in cache.on_node("n1")], list(cache.nodes()))

    acknowledge(cache, acknowledge(cache, cache.list_unacknowledged()[0]) or cache.keep(())[0])

    assert ([], []) == (cache.on_node("n1"), list(cache.nodes()))


def test_another_pod_of_the_name_replaces_the_first() -> None:
    """Another client created the pod: the end of the first one does not concern it."""
    cache = PodCache()
    acknowledge(cache, cache.record_state(pod("Running", RUNNING), "h"))

    again = cache.record_state(pod("Running", RUNNING, uid="u-2"), "h")

    assert ("RUNNING", "u-2") == (state(again), cache.pods[NAME].uid)
    assert cache.record_state(pod("Running", RUNNING), "h", is_deleted=True) is None
    assert not cache.pods[NAME].has_ended
