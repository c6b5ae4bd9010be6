"""External pods on a scripted apiserver: their conditions and events, and their bindings."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from peloton.model.ids import JobId, PodId
from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.apiserver import wire
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external import external_pods
from services.hostmgr.kubernetes.external.external_pods import ExternalPods
from services.hostmgr.kubernetes.external.external_requests import RUN
from services.hostmgr.kubernetes.external.owners_port import Owners
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
JOB = JobId("5d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa")
FIRST = PodId(JOB, 0, 1)


def a_pod(**meta: Any) -> Json:
    metadata = {"name": "web-1", "namespace": "team", "uid": UID, "resourceVersion": "7", **meta}
    container = {"name": "main", "image": "busybox"}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


@contextmanager
def pods_on(
    serve: Callable[[str, str], Iterator[bytes]], owners: Owners | None = None
) -> Iterator[tuple[ExternalPods, list[str]]]:
    """Serve one waiting pod, and record the requests as ``METHOD path``."""
    asked: list[str] = []

    def note(one: Asked) -> Iterator[bytes]:
        asked.append(f"{one.method} {one.path.removeprefix('/api/v1/namespaces/team/')}")
        yield from serve(one.method, one.path)

    with run_scripted(note) as server, api_of(server) as api:
        uids = {(JOB, 0): UID}
        pods = ExternalPods(
            *(api, "k8s", lambda node: "", lambda reports: None, lambda keys: uids, lambda pod: None), owners=owners
        )
        pods.add_source().on_replace([a_pod()])
        yield pods, asked


def accept(method: str, path: str) -> Iterator[bytes]:
    yield answer(201 if method == "POST" else 200, {"metadata": {}})


@pytest.mark.parametrize(
    "owner",
    [
        {"kind": "ReplicaSet", "name": "a b", "apiVersion": "apps/v1"},
        {"kind": "ReplicaSet", "name": "../../secrets/x", "apiVersion": "apps/v1"},
        {"kind": "ReplicaSet", "name": "x", "apiVersion": "away.example/v1"},
    ],
    ids=["a space", "a path", "another kind of the name"],
)
def test_a_wrong_owner_of_one_pod_does_not_stop_the_others(owner: Json) -> None:
    """The owner is not verified: the pod is a job of its own, and no other object is read."""

    def serve(method: str, path: str) -> Iterator[bytes]:
        yield answer(503 if "away.example" in path else 404, status(404, "NotFound"))

    with pods_on(serve) as (pods, asked):
        reference = {**owner, "controller": True, "uid": JOB}
        pods.sources[0].on_change("ADDED", a_pod(name="web-2", uid="1" + UID[1:], ownerReferences=[reference]))
        assert [UID, JOB] == [one.observed.job_id for one in pods.list_pods() or ()]
        assert not any(" " in line.partition(" ")[2] or "/secrets" in line for line in asked)


def test_a_remark_is_written_once() -> None:
    """The condition is written once, with an event when its reason is new."""
    with pods_on(accept) as (pods, asked):
        for _ in range(2):
            pods.set_conditions([PodCondition(UID, "PelotonQueued", "pool /dev is full")])
        assert ["PATCH pods/web-1/status", "POST events"] == asked


def test_a_remark_that_is_forbidden_is_not_repeated() -> None:
    """A forbidden condition is not repeated and has no event, which would be written in each round."""

    def forbid(method: str, path: str) -> Iterator[bytes]:
        yield answer(403, status(403, "Forbidden"))

    with pods_on(forbid) as (pods, asked):
        with pytest.raises(OSError, match="403"):
            pods.set_conditions([PodCondition(UID, "PelotonQueued", "full")])
        pods.set_conditions([PodCondition(UID, "PelotonQueued", "full")])
        assert ["PATCH pods/web-1/status"] == asked


def test_a_remark_that_came_too_late_is_repeated() -> None:
    """The pod has changed since it was read."""

    def conflict(method: str, path: str) -> Iterator[bytes]:
        yield answer(409, status(409, "Conflict"))

    with pods_on(conflict) as (pods, asked):
        for _ in range(2):
            pods.set_conditions([PodCondition(UID, "PelotonQueued", "full")])
        assert ["PATCH pods/web-1/status"] * 2 == asked


def bound_as(run: str) -> Callable[[str, str], Iterator[bytes]]:
    """Reject a binding, as the pod is bound already."""

    def serve(method: str, path: str) -> Iterator[bytes]:
        if path.endswith("/binding"):
            yield answer(409, status(409, "Conflict"))
        elif method == "GET":
            pod = a_pod(annotations={RUN: run})
            pod["spec"]["nodeName"] = "n"
            yield answer(200, {"items": [pod]})
        else:
            yield answer(201, {})

    return serve


def test_a_binding_whose_answer_was_lost_counts_as_done() -> None:
    """A repeated binding conflicts with itself: the pod shows the first one."""
    with pods_on(bound_as(str(FIRST))) as (pods, _):
        assert {} == pods.launch([(FIRST, a_pod(), "n")])
        assert pods.has(str(FIRST))


def test_a_pod_that_another_scheduler_has_bound_is_not_adopted() -> None:
    """The run was not launched."""
    with pods_on(bound_as(str(PodId(JOB, 0, 9)))) as (pods, _):
        assert [FIRST] == list(pods.launch([(FIRST, a_pod(), "n")]))
        assert not pods.has(str(FIRST))


def test_a_pod_that_was_bound_does_not_wait_any_more() -> None:
    """The pod no longer waits even before the watch shows the binding: else it would be adopted again when its run ends
    soon.
    """
    with pods_on(accept) as (pods, _):
        waiting = [one.observed.waits for one in pods.list_pods() or ()]
        pods.launch([(FIRST, a_pod(), "n")])
        assert ([True], [False]) == (waiting, [one.observed.waits for one in pods.list_pods() or ()])


def test_the_event_of_a_binding_is_written_after_it() -> None:
    """The event is written by the periodic tasks: a launch does not wait for it."""
    with pods_on(accept) as (pods, asked):
        pods.launch([(FIRST, a_pod(), "n")])
        assert (["POST pods/web-1/binding"], True) == (asked, pods.has_events)
        pods.write_events()
        assert (["POST pods/web-1/binding", "POST events"], False) == (asked, pods.has_events)


def test_of_a_pod_that_we_have_bound_there_is_no_news_for_the_intake() -> None:
    """A bound pod has reports of its own; news would compare all waiting pods again."""
    with pods_on(accept) as (pods, _):
        changes: list[str] = []
        pods.watch(lambda: changes.append("changed"))
        ours, foreign = a_pod(annotations={RUN: str(FIRST)}), a_pod()
        for bound in (ours, foreign):
            bound["spec"]["nodeName"] = "n"
        pods.sources[0].on_change("MODIFIED", ours)
        assert [] == changes
        pods.sources[0].on_change("MODIFIED", foreign)
        assert ["changed"] == changes


def test_what_is_found_of_a_pod_is_kept_until_it_changes() -> None:
    """A round over many pods parses only the changed ones."""
    with pods_on(accept) as (pods, _):
        [first], [again] = pods.list_pods() or (), pods.list_pods() or ()
        assert (True, True) == (first.observed.waits, first is again)

        gated = a_pod()
        gated["spec"]["schedulingGates"] = [{"name": "later"}]
        pods.sources[0].on_change("MODIFIED", gated)
        [held] = pods.list_pods() or ()
        assert not held.observed.waits
        pods.sources[0].on_change("MODIFIED", a_pod(annotations={"peloton.io/pool": "/dev"}))
        [named] = pods.list_pods() or ()
        assert (True, "/dev") == (named.observed.waits, named.pool)


def test_pods_are_not_known_while_the_watch_is_interrupted() -> None:
    """An unknown state allows no conclusion from the absence of a pod."""
    with pods_on(accept) as (pods, _):
        pods.sources[0].on_lost("the apiserver is away")
        assert pods.list_pods() is None
        with pytest.raises(ConnectionError):
            pods.pods_of([FIRST])


def ran(phase: str) -> Json:
    """Return the pod, bound as the first run."""
    pod = a_pod(annotations={RUN: str(FIRST)})
    pod["spec"]["nodeName"], pod["status"]["phase"] = "n", phase
    return pod


def acknowledge(pods: ExternalPods) -> None:
    """Acknowledge all reports."""
    while reports := pods.list_unacknowledged():
        for report in reports:
            pods.acknowledge(report.token)


def test_a_run_whose_pod_went_unseen_is_not_bound_any_more() -> None:
    """The owner deleted the pod while the watch was interrupted: reconciliation reports the run as lost."""
    with pods_on(accept) as (pods, _):
        pods.launch([(FIRST, a_pod(), "n")])
        pods.sources[0].on_lost("the apiserver is away")
        pods.sources[0].on_replace([])
        assert (False, {FIRST: {}}) == (pods.has(str(FIRST)), pods.pods_of([FIRST]))


def test_a_run_is_forgotten_when_its_end_is_stored_and_its_pod_is_gone() -> None:
    """The run is removed after the later of the two events, even if the watch was interrupted."""
    with pods_on(accept) as (pods, _):
        for is_stored_first in (True, False):
            pods.sources[0].on_change("MODIFIED", ran("Succeeded"))
            if is_stored_first:
                acknowledge(pods)
            assert pods.has(str(FIRST))
            pods.sources[0].on_change("DELETED", ran("Succeeded"))
            acknowledge(pods)
            assert not pods.has(str(FIRST))

        pods.sources[0].on_change("MODIFIED", ran("Succeeded"))
        acknowledge(pods)
        pods.sources[0].on_replace([])
        assert not pods.has(str(FIRST))


def test_a_pod_that_was_read_does_not_undo_what_a_watch_has_shown_since() -> None:
    """A pod that runs would wait for its start, and a gated one be evicted as if no scheduler had placed it."""
    with pods_on(accept) as (pods, _):
        read = ran("Pending")
        pods.sources[0].on_change("MODIFIED", ran("Running"))
        pods.look(read)
        assert ran("Running") == pods.pods_of([FIRST])[FIRST]


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_pod_that_is_gone_leaves_its_node(is_seen: bool) -> None:
    """The node is freed even if the pod was deleted before any watch showed its binding."""
    gone: list[Json] = []
    with run_scripted(lambda _: iter([answer(201, {})])) as server, api_of(server) as api:
        pods = ExternalPods(api, "k8s", str, lambda _: None, lambda _: {}, gone.append)
        pods.add_source().on_replace([a_pod()])
        pods.launch([(FIRST, a_pod(), "n")])
        if is_seen:
            pods.sources[0].on_change("DELETED", a_pod())
        else:
            pods.sources[0].on_replace([])
    assert [a_pod()] == gone


def budget(method: str, path: str) -> Iterator[bytes]:
    """Reject evictions for a PodDisruptionBudget."""
    keeps = status(429, "TooManyRequests", "it keeps 1", causes=[{"reason": "DisruptionBudget"}])
    yield answer(429, keeps) if path.endswith("/eviction") else answer(201, {})


def test_an_eviction_that_a_budget_forbids_is_repeated_while_the_pod_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is shown until the eviction succeeds. A pod that has ended keeps its log and its place in its
    controller's status.
    """
    monkeypatch.setattr(external_pods, "EVICT_AGAIN_S", 0.0)
    with pods_on(budget) as (pods, asked):
        pods.sources[0].on_change("MODIFIED", ran("Running"))
        pods.evict([str(FIRST)])
        pods.evict_again()
        assert {UID} == pods.blocked_evictions().keys()
        pods.sources[0].on_change("MODIFIED", ran("Succeeded"))
        pods.evict_again()
        pods.evict([str(FIRST)])
        assert (["POST pods/web-1/eviction"] * 2, {}) == (asked, pods.blocked_evictions())


class Stubborn:
    """Owners that refuse to be suspended."""

    def admit(self, launches: Sequence[tuple[PodId, Json, str]]) -> dict[PodId, str]:
        raise AssertionError("nothing is admitted")

    def may_take(self, pod: Json) -> bool:
        return False

    def take(self, pods: Sequence[Json]) -> set[str]:
        raise AssertionError("nothing is taken")

    def suspend(self, stand_ins: Collection[Json], why: str) -> None:
        raise OSError("admission webhook denied the request")

    def show(self, conditions: Iterable[tuple[Json, PodCondition]]) -> None:
        raise AssertionError("nothing is shown")


def test_an_owner_that_cannot_be_suspended_does_not_stop_evictions() -> None:
    """The other pods of one preemption are evicted, and the error is reported after that."""
    with pods_on(accept, Stubborn()) as (pods, asked):
        pods.sources[0].on_change("MODIFIED", ran("Running"))

        with pytest.raises(OSError, match="webhook denied"):
            pods.evict([str(FIRST)])

    assert ["POST pods/web-1/eviction"] == asked


def test_a_pod_that_went_unseen_is_not_to_be_evicted_any_more() -> None:
    """A missing pod has no blocked eviction."""
    with pods_on(budget) as (pods, _):
        pods.sources[0].on_change("MODIFIED", ran("Running"))
        pods.evict([str(FIRST)])
        pods.sources[0].on_replace([])
        assert {} == pods.blocked_evictions()


def test_a_remark_that_failed_in_the_apiserver_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write failed for another reason than a missing permission."""
    monkeypatch.setattr(wire, "BACKOFF_S", 0.001)

    def fail(method: str, path: str) -> Iterator[bytes]:
        yield answer(500, status(500, "InternalError"))

    with pods_on(fail) as (pods, asked):
        for _ in range(2):
            with pytest.raises(OSError, match="500"):
                pods.set_conditions([PodCondition(UID, "PelotonQueued", "full")])
        assert 2 * wire.TRIES_MAX == len(asked)


def test_the_body_of_a_binding_names_the_pod_by_its_uid() -> None:
    """A newer pod of the same name is not bound."""
    bodies: list[Json] = []

    def serve(one: Asked) -> Iterator[bytes]:
        if one.path.endswith("/binding"):
            bodies.append(orjson.loads(one.body))
        yield answer(201, {})

    with run_scripted(serve) as server, api_of(server) as api:
        ExternalPods(api, "k8s", str, lambda _: None, lambda _: {}, lambda _: None).launch([(FIRST, a_pod(), "n")])
    [body] = bodies
    assert (UID, {RUN: str(FIRST)}, "n") == (
        body["metadata"]["uid"],
        body["metadata"]["annotations"],
        body["target"]["name"],
    )


def test_the_successor_of_a_name_keeps_its_claim() -> None:
    """A list shows a new pod of a StatefulSet instead of the one of the same name: that one leaves its node first."""
    calls: list[str] = []
    with run_scripted(lambda _: iter([answer(201, {})])) as server, api_of(server) as api:
        pods = ExternalPods(
            api,
            "k8s",
            str,
            lambda _: None,
            lambda _: {},
            gone=lambda pod: calls.append(f"gone {pod['metadata']['uid']}"),
            fits=lambda pod, node: calls.append(f"fits {pod['metadata']['uid']} {node}"),
        )
        source = pods.add_source()
        source.on_replace([a_pod(uid="old")])
        notes = {RUN: str(FIRST), "peloton.io/admitted-at": "2027-01-15T08:00:00Z", "peloton.io/fits-on": "n"}
        source.on_replace([a_pod(uid="new", annotations=notes)])
    assert ["gone old", "fits new n"] == calls


@pytest.mark.parametrize(
    ("bound", "is_put_back", "refusal"),
    [("60", True, ""), ("7200", False, ""), ("soon", False, "namespace team: peloton.io/admission-timeout-s='soon'")],
)
def test_a_namespace_has_a_bound_and_a_wrong_one_is_shown(bound: str, is_put_back: bool, refusal: str) -> None:
    """An admitted pod is put back by the bound of its namespace; a bound that cannot be read refuses the pods that
    wait, and the setting's is used for the admitted ones. The namespace is read once."""

    def serve(method: str, path: str) -> Iterator[bytes]:
        marks = {"peloton.io/admission-timeout-s": bound}
        meta = {"name": "team", "annotations": marks}
        yield answer(200 if method == "GET" else 201, {"metadata": meta})

    admitted_at = datetime.fromtimestamp(time.time() - 600.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    owner = {"kind": "StatefulSet", "name": "web", "apiVersion": "apps/v1", "controller": True, "uid": str(JOB)}
    notes = {RUN: str(FIRST), "peloton.io/admitted-at": admitted_at}
    with pods_on(serve) as (pods, asked):
        waiting = a_pod(labels={"peloton.io/pool": "dev"})
        waiting["spec"]["schedulingGates"] = [{"name": "peloton.io/admission"}]
        pods.sources[0].on_replace([waiting, a_pod(uid="u-2", name="late", annotations=notes, ownerReferences=[owner])])
        found = {one.observed.uid: one.refusal for one in pods.list_pods() or ()}
        pods.put_back(3_600.0)
        assert found[UID].startswith(refusal)
        assert bool(refusal) == bool(found[UID])
        assert is_put_back == ("POST pods/late/eviction" in asked)
        assert 1 == sum("GET" in line for line in asked)
