"""Gated pods on a real apiserver with its scheduler and controllers: admitted by Peloton, placed by kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr.external_adoption import NO_NODE
from services.hostmgr.kubernetes.apiserver.wire import ANSWER_TIMEOUT_S, STRATEGIC_PATCH, Answer, Request
from services.hostmgr.kubernetes.external.external_requests import RUN
from services.hostmgr.kubernetes.external.gate import ADMITTED, ADMITTED_AT, FITS_ON, GATE, gates_of, run_of
from services.hostmgr.kubernetes.external.namespaces import ADMISSION_TIMEOUT
from tests.kubernetes.client import MERGE, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import ExternalWorld, quick_world, wait
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane
from tests.nightly import nightly

pytestmark = REAL_KUBERNETES
R, S = PodState.RUNNING, PodState.SUCCEEDED
NODES = ["gated-1", "gated-2", "gated-3"]
LABELS = {"for": "gated"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Return a control plane with kube-scheduler, and nodes."""
    controllers = ["persistentvolume-binder"]
    with (
        running_control_plane(scheduler=True, controllers=controllers) as plane,
        FakeKubelets(plane.login, NODES, labels=LABELS),
    ):
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    with quick_world(plane, tmp_path, monkeypatch, LABELS) as world:
        yield world


@pytest.fixture
def hasty_world(world: ExternalWorld) -> ExternalWorld:
    """Return a world that puts admitted pods back very soon."""
    world.step_down()
    world.settings = replace(world.settings, admission_timeout_s=1.0)
    world.lead()
    return world


def a_spec(command: str = "", cpu: str = "1", **more: object) -> Json:
    """Return the spec of a gated pod."""
    container: Json = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    if command:
        container["command"] = ["sh", "-c", command]
    gates = [{"name": GATE}]
    return {"restartPolicy": "Never", "containers": [container], "schedulingGates": gates, **more}


def a_pod(world: ExternalWorld, name: str, spec: Json, labels: Json | None = None) -> JobId:
    meta = {"name": name, "labels": {"peloton.io/pool": "dev", **(labels or {})}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return JobId(world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)["metadata"]["uid"])


def test_a_gated_pod_is_admitted_and_placed_by_its_scheduler(world: ExternalWorld) -> None:
    """Peloton removes its gate, its run follows it to the node that kube-scheduler chooses, and its end is stored."""
    job_id = a_pod(world, "web", a_spec(nodeSelector={"kubernetes.io/hostname": "gated-2"}))
    world.until(lambda: world.states(job_id) == [R], "it to run")
    pod = world.look("web")
    assert ("gated-2", set()) == (pod["spec"]["nodeName"], gates_of(pod))
    annotations = pod["metadata"]["annotations"]
    assert str(world.storage.pods.page(job_id)[0].pod_id) == annotations[RUN]
    assert {FITS_ON, ADMITTED_AT} <= annotations.keys()
    assert "gated-2" == world.storage.pods.page(job_id)[0].host
    with world.driver.view.lock:
        [demand] = world.driver.view.ledger.demands_on("gated-2").values()
    assert not demand.is_foreign
    world.end("web")
    world.until(lambda: world.states(job_id) == [S], "it to succeed")


def a_workload(world: ExternalWorld, kind: str, count: int, spec: Json, **more: object) -> JobId:
    """Create a Job, Deployment or StatefulSet of gated pods."""
    labels = {"app": kind.lower(), "peloton.io/pool": "dev"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    if kind == "Job":
        group, body = "batch", {"parallelism": count, "completions": count, "backoffLimit": 0, "template": template}
    else:
        template["spec"] = {**spec, "restartPolicy": "Always"}
        selector = {"matchLabels": {"app": kind.lower()}}
        group, body = "apps", {"replicas": count, "selector": selector, "template": template, **more}
    path = f"/apis/{group}/v1/namespaces/{world.namespace}/{kind.lower()}s"
    made = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": kind.lower()}, "spec": body}
    return JobId(world.create(path, made)["metadata"]["uid"])


def must(**terms: object) -> Json:
    return {key: {"requiredDuringSchedulingIgnoredDuringExecution": value} for key, value in terms.items()}


APART = must(
    podAntiAffinity=[{"labelSelector": {"matchLabels": {"app": "deployment"}}, "topologyKey": "kubernetes.io/hostname"}]
)
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "deployment"}},
}
EXISTS = {"key": "kubernetes.io/hostname", "operator": "Exists"}
UNPLACED_BY_PELOTON: dict[str, Json] = {
    "required anti-affinity": {"affinity": APART},
    "hard spread": {"topologySpreadConstraints": [SPREAD]},
    "Exists": {"affinity": must(nodeAffinity={"nodeSelectorTerms": [{"matchExpressions": [EXISTS]}]})},
}


@pytest.mark.parametrize("case", UNPLACED_BY_PELOTON)
def test_a_requirement_that_peloton_does_not_know_is_the_schedulers(case: str, world: ExternalWorld) -> None:
    """All pods run, on different nodes where the requirement says so, and each run is on the node of its pod."""
    job_id = a_workload(world, "Deployment", len(NODES), a_spec(**UNPLACED_BY_PELOTON[case]))
    world.until(lambda: world.states(job_id) == [R] * len(NODES), "all to run")
    nodes = sorted(pod["spec"]["nodeName"] for pod in world.pods())
    assert nodes == (NODES if case != "Exists" else nodes)
    assert nodes == sorted(pod.host for pod in world.storage.pods.page(job_id))


def test_host_ports_are_shared_out_by_the_scheduler(world: ExternalWorld) -> None:
    """Pods with the same host port run on nodes of their own."""
    spec = a_spec()
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    job_id = a_workload(world, "Deployment", 2, spec)
    world.until(lambda: world.states(job_id) == [R] * 2, "both to run")
    assert 2 == len({pod["spec"]["nodeName"] for pod in world.pods()})


def test_a_stateful_set_has_its_claims(world: ExternalWorld) -> None:
    """Each pod of a StatefulSet runs on the node of the volume that its claim is bound to."""
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    name = f"local-{world.namespace}"
    local = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    world.create(classes, {"metadata": {"name": name}, **local})
    for node in NODES[:2]:
        here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        }
        world.create("/api/v1/persistentvolumes", {"metadata": {"name": f"{name}-{node}"}, "spec": spec})
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    mounting: Any = a_spec()
    mounting["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    job_id = a_workload(world, "StatefulSet", 2, mounting, serviceName="none", volumeClaimTemplates=[claim])
    world.until(lambda: world.states(job_id) == [R] * 2, "both to run")
    assert {*NODES[:2]} == {pod["spec"]["nodeName"] for pod in world.pods()}


def test_a_pod_that_waits_says_why(world: ExternalWorld) -> None:
    """A pod that fits on no node has Peloton's condition and an event, and other people's gates hold it as well."""
    job_id = a_pod(world, "huge", a_spec(cpu="400"))
    a_pod(world, "held", {**a_spec(), "schedulingGates": [{"name": GATE}, {"name": "other.example/gate"}]})
    world.until(lambda: world.states(job_id) == [PodState.READY], "it to be admitted")
    condition = world.until(lambda: condition_of(world, "huge"), "its condition")
    assert ("False", NO_NODE) == (condition["status"], condition["reason"])
    world.until(lambda: NO_NODE in world.events("huge"), "its event")
    assert {GATE, "other.example/gate"} == gates_of(world.look("held"))
    assert [] == [slot for name, slot in world.slots(job_id).items() if name == "held"]


def condition_of(world: ExternalWorld, name: str) -> Json | None:
    conditions = world.look(name)["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == ADMITTED), None)


NOWHERE = must(
    podAffinity=[{"labelSelector": {"matchLabels": {"app": "nothing"}}, "topologyKey": "kubernetes.io/hostname"}]
)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_that_no_scheduler_places_are_put_back(kind: str, hasty_world: ExternalWorld) -> None:
    """The fit test is not all: admitted pods that are not scheduled are evicted, and come back with a gate."""
    world = hasty_world
    a_workload(world, kind, 1, a_spec(affinity=NOWHERE))
    first = world.until(lambda: world.pods(), "the first pod")[0]["metadata"]["uid"]
    world.until(lambda: any(pod["metadata"]["uid"] != first for pod in world.pods()), "another pod")


def test_a_namespace_has_a_bound_of_its_own(world: ExternalWorld) -> None:
    """The annotation, and not the setting of 300 s, says when a pod that no scheduler places is put back."""
    marks = {"metadata": {"annotations": {ADMISSION_TIMEOUT: "1"}}}
    assert 200 == world.client.ask("PATCH", f"/api/v1/namespaces/{world.namespace}", marks, MERGE).status
    a_workload(world, "StatefulSet", 1, a_spec(affinity=NOWHERE))
    first = world.until(lambda: world.pods(), "the first pod")[0]["metadata"]["uid"]
    world.until(lambda: any(pod["metadata"]["uid"] != first for pod in world.pods()), "another pod")


def test_a_job_is_put_back_without_a_failure(hasty_world: ExternalWorld) -> None:
    """The Job is suspended and resumed, so that its new pods are gated, and its backoffLimit of 0 is untouched."""
    world = hasty_world
    a_workload(world, "Job", 2, a_spec(affinity=NOWHERE))
    path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs/job"
    first = world.until(lambda: found if len(found := world.pods()) == 2 else None, "the first pods")
    old = {pod["metadata"]["uid"] for pod in first}
    world.until(lambda: len(found := world.pods()) == 2 and not old & {p["metadata"]["uid"] for p in found}, "others")
    job = world.client.ask("GET", path).json()
    assert "failed" not in job["status"]
    assert not any(one["type"] == "Failed" for one in job["status"].get("conditions") or ())


def test_a_pod_without_an_owner_is_never_deleted(hasty_world: ExternalWorld) -> None:
    """An admitted pod that is not scheduled keeps its place in the pool, and says so."""
    world = hasty_world
    a_pod(world, "alone", a_spec(affinity=NOWHERE))
    world.until(lambda: "PelotonNotScheduled" in world.events("alone"), "its event")
    assert "deletionTimestamp" not in world.look("alone")["metadata"]


class Died(BaseException):
    """Error that ends the host manager in the middle of its work, like kill -9."""


MANY = 210


@pytest.mark.parametrize("arrived", [nightly(0), MANY // 2, nightly(MANY)])
def test_a_host_manager_dies_while_it_removes_gates(arrived: int, world: ExternalWorld) -> None:
    """The successor distinguishes admitted pods from waiting ones by the pods themselves: each is admitted once, as the
    run in storage, and none stays gated.
    """
    driver, ask_all = world.driver, world.driver.api.ask_all
    sent: list[Request] = []

    def ask_and_die(requests: Sequence[Request], timeout_s: float = ANSWER_TIMEOUT_S) -> list[Answer | OSError]:
        if not any(request.content_type == STRATEGIC_PATCH and GATE.encode() in request.body for request in requests):
            return ask_all(requests, timeout_s)
        sent.extend(requests)
        assert all(not isinstance(each, OSError) and each.is_ok for each in ask_all(requests[:arrived]))
        driver.stop()
        raise Died

    job_id = a_workload(world, "Job", MANY, a_spec(cpu="10m"))
    wait(lambda: len(world.slots(job_id)) == MANY, "all to have an instance")
    driver.api.ask_all = ask_and_die  # type: ignore[method-assign]
    with pytest.raises(Died):
        world.until(lambda: False, "its death")
    world.step_down()
    before = runs_in(world)
    assert (MANY, arrived) == (len(sent), len(before))

    world.lead()

    world.until(lambda: world.states(job_id) == [R] * MANY, "all to run")
    after = runs_in(world)
    assert {str(pod.pod_id) for pod in world.storage.pods.page(job_id, limit=MANY)} == after
    assert before == before & after
    assert not any(gates_of(pod) for pod in world.pods())


def runs_in(world: ExternalWorld) -> set[str]:
    """Return the runs as which pods were admitted."""
    return {run_of(pod) for pod in world.pods()} - {""}


def test_a_successor_claims_what_is_admitted_and_not_scheduled(world: ExternalWorld) -> None:
    """The claims of a host manager end with it: the pods say on which node there has to be room for them."""
    job_id = a_pod(world, "alone", a_spec(affinity=NOWHERE))
    world.until(lambda: run_of(world.look("alone")), "its admission")
    world.step_down()
    world.lead()
    key = f"{world.namespace}/alone"
    wait(lambda: world.driver.view.ledger.is_expected(key), "its claim")
    world.client.ask("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/alone")
    wait(lambda: not world.driver.view.ledger.is_expected(key), "the end of the claim")
    world.until(lambda: world.states(job_id) != [PodState.LAUNCHED], "its end")
