"""States of Kubernetes pods as Peloton's states, by recordings of a real control plane and kubelet."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from peloton.lifecycle.endings import RULES, RetryRule
from peloton.lifecycle.pod import parse_termination
from peloton.model.pod import Cause, ContainerState, ContainerStatus, PodState, PodStatus
from peloton.model.resources import Resources
from services.hostmgr.kubernetes.pods import statuses
from services.hostmgr.kubernetes.pods.reasons import PULL_REFUSED_S, Pull, pull_of
from tests.unit.hostmgr.kubernetes.pods import NAME, Json, last, read_recording

LAUNCHED, RUNNING, STARTING = PodState.LAUNCHED, PodState.RUNNING, PodState.STARTING
SUCCEEDED, FAILED, KILLED, LOST = PodState.SUCCEEDED, PodState.FAILED, PodState.KILLED, PodState.LOST


def status_of(pod: Json, deleted: bool = False, kill_asked: bool = False) -> PodStatus:
    status = statuses.report_of(pod, deleted, kill_asked, "node-uid").status
    assert status is not None
    return status


GOAL_ENDED: dict[str, tuple[PodState, Cause, int, str]] = {
    #           state, cause, exit code, part of reason and message
    "ok": (SUCCEEDED, Cause.PROGRAM, 0, ""),
    "cni": (SUCCEEDED, Cause.PROGRAM, 0, ""),
    "signal": (SUCCEEDED, Cause.PROGRAM, 0, ""),
    "fail": (FAILED, Cause.PROGRAM, 3, "Error: Command exited with status 3"),
    "oom": (FAILED, Cause.MEMORY, 137, "OOMKilled: Command exited with status 137 (OOMKilled)"),
    "nocmd": (FAILED, Cause.CONTAINER, 128, "/no/such/file"),
    "two": (FAILED, Cause.PROGRAM, 4, "in container side"),
    "deadline": (FAILED, Cause.TIME, 0, "DeadlineExceeded: Pod was active on the node longer"),
    "outofcpu": (LOST, Cause.RESOURCES_GONE, 0, "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu"),
    "selector": (LOST, Cause.RESOURCES_GONE, 0, "NodeAffinity"),
    "evict": (KILLED, Cause.HOST_DRAINED, 0, "EvictionByEvictionAPI"),
    "evict-forced": (LOST, Cause.HOST_DRAINED, 0, "EvictionByEvictionAPI"),
    "node-deleted": (LOST, Cause.HOST_GONE, 0, "DeletionByPodGC"),
    "node-lost-forced": (LOST, Cause.HOST_LOST, 0, "DeletionByTaintManager"),
    "force": (LOST, Cause.REMOVED, 0, "without its end being known"),
}


@pytest.mark.parametrize("name", GOAL_ENDED)
def test_an_end_has_its_cause(name: str) -> None:
    """The state, cause, exit code and message come from the last recorded event of the pod."""
    kind, pod = read_recording(name)[-1]

    status = status_of(pod, deleted=kind == "DELETED")

    exit_code = parse_termination(status.message).exit_code
    assert GOAL_ENDED[name][:3] == (status.state, status.cause, exit_code)
    assert GOAL_ENDED[name][3] in f"{status.reason}: {status.message}"
    assert (NAME, pod["spec"]["nodeName"], "node-uid") == (str(status.pod_id), status.host, status.agent_id)


@pytest.mark.parametrize("name", ["ok", "fail", "oom", "two", "deadline", "cni"])
def test_a_life_goes_forward(name: str) -> None:
    """The states are launched, running and one end, in the order of events."""
    states = [statuses.report_of(pod, kind == "DELETED", False).state_text for kind, pod in read_recording(name)]

    assert [LAUNCHED, RUNNING, GOAL_ENDED[name][0]] == list(dict.fromkeys(states))


def test_a_pod_that_only_waits_has_nothing_to_store() -> None:
    """A pod whose name is no pod id has no status either."""
    waiting = read_recording("ok")[2][1]
    strange = last("ok") | {"metadata": {"name": "web-0"}}

    assert (None, None) == (
        statuses.report_of(waiting, False, False).status,
        statuses.report_of(strange, False, False).status,
    )


@pytest.mark.parametrize("name", ["term-handled", "term-ignored", "force", "evict"])
def test_what_we_kill_is_killed(name: str) -> None:
    """A killed pod is KILLED however it ended, even if only its last state is seen."""
    events = [(kind, pod) for kind, pod in read_recording(name) if statuses.is_over(pod) or kind == "DELETED"]

    assert {KILLED} == {status_of(pod, kind == "DELETED", kill_asked=True).state for kind, pod in events}


@pytest.mark.parametrize("name", ["term-handled", "term-ignored"])
def test_what_others_kill_was_removed(name: str) -> None:
    """The pod does not count as succeeded, even if it answered the signal with 0; the end does not
    count as a failure.
    """
    ended = [status_of(pod, kind == "DELETED") for kind, pod in read_recording(name) if statuses.is_over(pod)]

    assert {(KILLED, Cause.REMOVED)} == {(status.state, status.cause) for status in ended}
    assert not RULES[Cause.REMOVED].counts


def test_what_ended_before_it_was_deleted_ended_by_itself() -> None:
    """A kill that comes too late changes nothing; in the same second it may have come in time."""
    pod = last("ok")
    pod["metadata"] |= {"deletionTimestamp": "2026-11-22T03:32:22Z", "deletionGracePeriodSeconds": 30}
    assert SUCCEEDED is status_of(pod, kill_asked=True).state

    pod["metadata"]["deletionTimestamp"] = "2026-11-22T03:32:21Z"
    assert KILLED is status_of(pod, kill_asked=True).state


def test_a_pod_that_never_began_may_begin_again() -> None:
    """A pod that never started may start again, whichever client deleted it."""
    status = status_of(last("noimage"), deleted=True)

    assert (LOST, Cause.NOT_STARTED) == (status.state, status.cause)
    assert RetryRule.ALWAYS is RULES[status.cause].retry


def test_an_init_container_that_failed_is_named() -> None:
    """The exit code is that of the pod; an init container that ran makes the pod more than launched."""
    pod = last("initfail")
    ended = {
        "exitCode": 5,
        "reason": "Error",
        "startedAt": "2026-11-22T03:32:56Z",
        "finishedAt": "2026-11-22T03:32:56Z",
    }
    pod["status"]["initContainerStatuses"] = [{"name": "setup", "state": {"terminated": ended}}]

    assert (FAILED, "Command exited with status 5 in container setup") == (
        status_of(pod).state,
        status_of(pod).message,
    )
    pod["status"]["phase"] = "Pending"
    assert STARTING is status_of(pod).state


def test_a_sidecar_does_not_decide_how_a_pod_ended() -> None:
    """A sidecar is ended after the other containers, and may report that as an error."""
    pod = last("fail")
    began = {"exitCode": 143, "reason": "Error", "startedAt": "2026-11-22T03:00:00Z"}
    pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    ended = {"terminated": {**began, "finishedAt": "2026-11-22T03:00:01Z"}}
    pod["status"]["initContainerStatuses"] = [{"name": "proxy", "state": ended}]

    assert "Command exited with status 3 in container main" == status_of(pod).message


def test_each_of_several_containers_is_reported() -> None:
    """Each container has its state, exit code and times; a change of one of them is news."""
    two = [pod for _, pod in read_recording("two")]

    assert () == status_of(last("ok")).containers
    assert status_of(two[-1]).containers == (
        ContainerStatus("main", ContainerState.SUCCEEDED, False, "Completed", "", 0, ns(179), ns(179)),
        ContainerStatus("side", ContainerState.FAILED, False, "Error", "", 4, ns(179), ns(181)),
    )
    news = [statuses.report_of(pod, False, False).token[-1] for pod in two]
    assert ["LAUNCHED", "RUNNING rr", "RUNNING tr", "RUNNING tt", "FAILED tt"] == list(dict.fromkeys(news))


def ns(seconds: int) -> int:
    """Return the nanoseconds at a number of seconds after 03:30 of the day of the recordings."""
    return int((statuses._seconds("2026-11-22T03:30:00Z") + seconds) * 1e9)


def test_a_signal_is_named() -> None:
    """An exit code above 128 stands for a signal."""
    pod = last("fail")
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 139

    ended = parse_termination(status_of(pod).message)

    assert (139, "Segmentation fault") == (ended.exit_code, ended.signal)


EVICTED = {
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.": Cause.PREEMPTED,
    "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi.": Cause.DISK,
    'Container main exceeded its local ephemeral storage limit "10Mi".': Cause.DISK,
    'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".': Cause.DISK,
}


@pytest.mark.parametrize("message", EVICTED)
def test_pressure_on_a_node_is_not_the_fault_of_the_pod(message: str) -> None:
    """An eviction for the pod's own disk usage is the fault of the pod."""
    pod = last("fail")
    pod["status"] |= {"reason": "Evicted", "message": message}

    assert (FAILED, EVICTED[message], message) == (
        status_of(pod).state,
        status_of(pod).cause,
        status_of(pod).message,
    )


@pytest.mark.parametrize(
    ("reason", "state", "cause"),
    [
        ("OutOfnvidia.com/gpu", LOST, Cause.RESOURCES_GONE),
        ("UnexpectedAdmissionError", LOST, Cause.RESOURCES_GONE),
        ("Terminated", FAILED, Cause.HOST_DRAINED),
        ("Preempting", FAILED, Cause.PREEMPTED),
        ("SomethingOfALaterRelease", FAILED, Cause.PROGRAM),
    ],
)
def test_reasons_of_pods(reason: str, state: PodState, cause: Cause) -> None:
    """A pod that the node rejected is lost; a pod that it evicted has failed, which does not count as a failure."""
    pod = last("outofcpu")
    pod["status"]["reason"] = reason

    assert (state, cause) == (status_of(pod).state, status_of(pod).cause)


@pytest.mark.parametrize(
    ("reason", "waited_s", "is_over"),
    [
        ("ErrImageNeverPull", 0, True),
        ("InvalidImageName", 0, True),
        ("ImagePullBackOff", 899, False),
        ("ImagePullBackOff", 900, True),
        ("CreateContainerConfigError", 59, False),
        ("CreateContainerConfigError", 60, True),
        ("ContainerCreating", 100_000, False),  # a large image is on its way
    ],
)
def test_each_wait_has_its_timeout(reason: str, waited_s: float, is_over: bool) -> None:
    """The timeout starts when the node accepts the pod; then the pod has failed because of its container."""
    pod = read_recording("noimage")[3][1]
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = reason
    began_s = statuses._seconds("2026-11-22T03:32:11Z")

    report = statuses.stuck(pod, began_s + waited_s, image_timeout_s=900.0)

    assert is_over == (report is not None)
    if report is not None:
        assert report.status is not None
        cause = Cause.IMAGE if reason == "InvalidImageName" else Cause.CONTAINER
        assert (FAILED, cause, reason) == (report.status.state, report.status.cause, report.status.reason)
        assert "container main cannot be started: " + reason in report.status.message


NOT_FOUND = 'failed to resolve reference "docker.io/library/x:1": docker.io/library/x:1: not found'
BUSY = "failed to do request: unexpected status from HEAD request to https://r/v2/x: 503 Service Unavailable"


def waiting(reason: str, message: str = "") -> Json:
    """Return a pod that its node has accepted, and whose container waits."""
    pod = deepcopy(read_recording("noimage")[3][1])
    pod["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": reason, "message": message}
    return pod


@pytest.mark.parametrize(
    ("reason", "message", "text"),
    [
        ("ErrImagePull", NOT_FOUND, NOT_FOUND),
        ("ImagePullBackOff", f'Back-off pulling image "x:1": ErrImagePull: {NOT_FOUND}', NOT_FOUND),
        ("ImagePullBackOff", 'Back-off pulling image "x:1"', 'Back-off pulling image "x:1"'),
        ("InvalidImageName", "", "InvalidImageName"),
        ("CreateContainerConfigError", 'secret "s" not found', 'secret "s" not found'),
    ],
)
def test_a_wait_that_may_not_end_is_the_message_of_its_pod(reason: str, message: str, text: str) -> None:
    """The state of the pod stays."""
    status = statuses.report_of(waiting(reason, message), False, False).status

    assert status is not None
    assert (PodState.LAUNCHED, True, reason, text) == (status.state, status.waits, status.reason, status.message)


def test_a_wait_names_its_container_among_several() -> None:
    """The second container waits while the first has run: the pod is STARTING."""
    pod = waiting("ErrImagePull", NOT_FOUND)
    pod["spec"]["containers"].append({"name": "side"})
    pod["status"]["containerStatuses"].append(
        {"name": "side", "state": {"running": {"startedAt": "2026-11-22T03:32:12Z"}}}
    )
    status = statuses.report_of(pod, False, False).status

    assert status is not None
    assert (PodState.STARTING, True, f"container main: {NOT_FOUND}") == (status.state, status.waits, status.message)


@pytest.mark.parametrize(
    ("reason", "message", "pull"),
    [
        ("ErrImagePull", NOT_FOUND, Pull.REFUSED),
        ("ImagePullBackOff", f'Back-off pulling image "x:1": ErrImagePull: {NOT_FOUND}', Pull.REFUSED),
        ("ErrImagePull", "pull access denied, repository does not exist or may require authorization", Pull.REFUSED),
        ("ErrImagePull", "failed to fetch anonymous token: unexpected status from GET: 401 Unauthorized", Pull.REFUSED),
        ("ErrImagePull", "reading manifest 1 in r/x: manifest unknown", Pull.REFUSED),
        ("ErrImagePull", BUSY, Pull.FAILING),
        (
            "ErrImagePull",
            "unexpected status from HEAD: 429 Too Many Requests, toomanyrequests: denied: wait",
            Pull.FAILING,
        ),
        ("ErrImagePull", "dial tcp: lookup r on 10.0.0.2:53: no such host", Pull.FAILING),
        ("ErrImagePull", 'failed to pull "r/not-found:1": dial tcp 10.0.0.1:443: i/o timeout', Pull.FAILING),
        ("ImagePullBackOff", 'Back-off pulling image "x:1"', Pull.UNEXPLAINED),
        ("CreateContainerConfigError", 'secret "s": not found', Pull.NONE),
    ],
)
def test_a_registry_that_refuses_is_distinguished_from_one_that_fails(reason: str, message: str, pull: Pull) -> None:
    """The messages of containerd and CRI-O tell them apart."""
    assert pull is pull_of(reason, message)


def test_an_image_that_its_registry_refuses_is_given_up_after_a_bounded_time() -> None:
    """The timeout starts at the first rejection, which may come long after the node has accepted the pod; the request
    is at fault.
    """
    pod, refused_s = waiting("ErrImagePull", NOT_FOUND), statuses._seconds("2026-11-22T03:40:00Z")
    since_s = statuses.find_refused_since(pod, 0.0, refused_s)
    early = statuses.stuck(pod, refused_s + PULL_REFUSED_S - 1, 900.0, refused_s=since_s)
    report = statuses.stuck(pod, refused_s + PULL_REFUSED_S, 900.0, refused_s=since_s)

    assert early is None
    assert report is not None
    assert report.status is not None
    assert (FAILED, Cause.IMAGE) == (report.status.state, report.status.cause)
    assert (
        "container main cannot be started, its registry has refused the image for 120 s: ErrImagePull: failed to"
        in (report.status.message)
    )


def test_a_refusal_is_forgotten_with_another_failure() -> None:
    """A back-off without a cause does not end it."""
    back_off = waiting("ImagePullBackOff", 'Back-off pulling image "x:1"')

    assert 5.0 == statuses.find_refused_since(waiting("ErrImagePull", NOT_FOUND), 5.0, 9.0)
    assert 5.0 == statuses.find_refused_since(back_off, 5.0, 9.0)
    assert 0.0 == statuses.find_refused_since(waiting("ErrImagePull", BUSY), 5.0, 9.0)


def make_probed_status(ready: str, since: str) -> Json:
    pod = deepcopy(read_recording("ok")[3][1])
    pod["spec"]["containers"][0]["readinessProbe"] = {}
    condition = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
    condition |= {"status": ready, "lastTransitionTime": since}
    return pod


@pytest.mark.parametrize(
    ("pod", "healthy"),
    [
        (read_recording("ok")[3][1], None),
        (make_probed_status("True", "2026-11-22T03:31:50Z"), True),
        (make_probed_status("False", "2026-11-22T03:31:50Z"), None),
        (make_probed_status("False", "2026-11-22T03:31:58Z"), False),
    ],
    ids=["without a check", "ready", "not ready yet", "not ready any more"],
)
def test_health_is_readiness(pod: Json, healthy: bool | None) -> None:
    """Health is known for pods with a check, after its first success."""
    assert (RUNNING, healthy) == (status_of(pod).state, status_of(pod).healthy)


def test_news_of_health_has_a_token_of_its_own() -> None:
    """Each report of health is acknowledged, and repeated ones have the same token."""
    pods = [make_probed_status("True", "2026-11-22T03:31:50Z"), make_probed_status("False", "2026-11-22T03:31:58Z")]

    first, second = (statuses.report_of(pod, False, False).token for pod in pods)

    assert first != second
    assert first == statuses.report_of(pods[0], False, False).token


def resources(**amounts: Any) -> Json:
    return {"resources": {"requests": {key.replace("_", "-"): value for key, value in amounts.items()}}}


def sidecar(**amounts: Any) -> Json:
    return resources(**amounts) | {"restartPolicy": "Always"}


def limits(**amounts: Any) -> Json:
    return {"resources": {"limits": amounts}}


ONE = resources(cpu=1)
TAKEN = {
    "nothing": ({"containers": [{}]}, Resources()),
    "containers together": (
        {"containers": [resources(cpu="500m", memory="1Gi"), resources(cpu=1)]},
        Resources(1_500, 1_024),
    ),
    "a limit": ({"containers": [limits(memory="100M")]}, Resources(0, 96)),
    "disk": ({"containers": [resources(ephemeral_storage="1Gi")]}, Resources(0, 0, 1_024)),
    "gpus": ({"containers": [limits(**{"nvidia.com/gpu": "2"})]}, Resources(0, 0, 0, 2_000)),
    "the greatest init container": (
        {"containers": [ONE], "initContainers": [resources(cpu=3), resources(cpu=2)]},
        Resources(3_000),
    ),
    "each kind by itself": (
        {"containers": [resources(cpu=2, memory="1Mi")], "initContainers": [resources(cpu=1, memory="4Mi")]},
        Resources(2_000, 4),
    ),
    "sidecars and containers": (
        {"containers": [ONE], "initContainers": [sidecar(cpu=1), sidecar(cpu=2)]},
        Resources(4_000),
    ),
    "an init container and the sidecars before it": (
        {"containers": [ONE], "initContainers": [sidecar(cpu=1), sidecar(cpu=1), resources(cpu=3)]},
        Resources(5_000),
    ),
    "an init container, and sidecars after it": (
        {"containers": [ONE], "initContainers": [resources(cpu=4), sidecar(cpu=1), sidecar(cpu=1)]},
        Resources(4_000),
    ),
    "overhead": ({"containers": [ONE], "overhead": {"cpu": "250m", "memory": "8Mi"}}, Resources(1_250, 8)),
    "the pod as a whole": (
        {"containers": [resources(cpu=1, memory="2Mi")], "resources": {"requests": {"cpu": 3}}},
        Resources(3_000, 2),
    ),
    "the pod as a whole, sidecars included, and overhead": (
        {"containers": [ONE], "initContainers": [sidecar(cpu=1)], **resources(cpu=3), "overhead": {"cpu": 1}},
        Resources(4_000),
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_a_pod_takes(case: str) -> None:
    """The amounts are the peak of the pod, as Kubernetes computes it, rounded up."""
    spec, taken = TAKEN[case]
    assert taken == statuses.sum_occupied({"spec": spec})


def test_sidecars_take_ports_of_the_node() -> None:
    """A sidecar keeps its node ports; an init container that ends does not."""
    first, held_by_others, main = ({"ports": [{"containerPort": 1, "hostPort": port}]} for port in (81, 82, 83))
    spec = {"initContainers": [first, held_by_others | {"restartPolicy": "Always"}], "containers": [main]}
    assert {82, 83} == statuses.ports({"spec": spec})


@pytest.mark.parametrize(("text", "milli"), [("1500m", 1_500), ("plenty", 0), ("-2", 0), ("", 0)])
def test_only_an_amount_of_revocable_cpu_is_borrowed(text: str, milli: int) -> None:
    """Users may write any annotation on their own pods, so other texts count as zero."""
    assert milli == statuses.revocable_cpu_milli({"metadata": {"annotations": {statuses.REVOCABLE_CPU: text}}})
