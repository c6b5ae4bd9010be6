"""External pods on a real apiserver with its controllers: adoption, binding, statuses, evictions."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cli.errors import Failed
from cli.kubectl import Kubectl
from cli.pod_reasons import explain_pod
from cli.why import find_object
from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from services.hostmgr import external_adoption
from services.hostmgr.kubernetes.apiserver.wire import ANSWER_TIMEOUT_S, Answer, Request
from services.hostmgr.kubernetes.external import external_pods
from services.hostmgr.kubernetes.external.external_requests import RUN
from services.hostmgr.kubernetes.external.owner_events import EVICTED
from tests.kubernetes.client import Login
from tests.kubernetes.external_world import ExternalWorld, wait
from tests.kubernetes.fake_kubelet import ALLOCATABLE, FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.nightly import nightly
from tests.reasons import PREEMPTED

pytestmark = REAL_KUBERNETES
CPUS = int(ALLOCATABLE["cpu"])
R, S = PodState.RUNNING, PodState.SUCCEEDED


@pytest.fixture
def bare_world(
    kubernetes: Path, kubernetes_login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExternalWorld]:
    """Return a world whose node does not exist yet."""
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    monkeypatch.setattr(external_adoption, "IDLE_S", 0.5)
    monkeypatch.setattr(external_pods, "EVICT_AGAIN_S", 0.2)
    world = ExternalWorld(kubernetes, kubernetes_login, tmp_path)
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def kubelets(bare_world: ExternalWorld, kubernetes_login: Login) -> Iterator[FakeKubelets]:
    """Run the kubelets of the world's node."""
    with FakeKubelets(kubernetes_login, [bare_world.node], labels={"for": bare_world.node}) as found:
        yield found


@pytest.fixture
def world(bare_world: ExternalWorld, kubelets: FakeKubelets) -> ExternalWorld:
    return bare_world


def a_job(world: ExternalWorld, name: str, count: int, command: str, labels: dict[str, str] | None = None) -> JobId:
    meta = {"labels": {"peloton.io/pool": "dev", **(labels or {})}}
    spec = {
        "parallelism": count,
        "completions": count,
        "template": {"metadata": meta, "spec": world.pod_spec(command)},
    }
    path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
    made = world.create(path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    return JobId(made["metadata"]["uid"])


def test_pods_of_a_job_are_bound_and_end_as_their_job_wants(world: ExternalWorld) -> None:
    """One external job has its owner's uid; the cluster's own controller has created its pods and sees them succeed."""
    job_id = a_job(world, "train", 3, "true")
    world.until(lambda: world.states(job_id) == [S] * 3, "three pods to succeed")
    job = world.storage.jobs.get(job_id)
    assert job is not None
    assert (JobType.EXTERNAL, f"Job {world.namespace}/train", "pool-of-dev") == (job.type, job.name, job.respool_id)
    assert {world.node} == {pod["spec"]["nodeName"] for pod in world.pods()}
    world.until(
        lambda: all("Scheduled" in world.events(pod["metadata"]["name"]) for pod in world.pods()), "their events"
    )
    world.until(lambda: job_id not in world.storage.jobs.active_ids(), "the job to end, as its owner has no pods left")
    job = world.storage.jobs.get(job_id)
    assert job is not None
    assert JobState.SUCCEEDED is job.state


def test_instances_are_used_again_by_the_pods_of_a_deployment(world: ExternalWorld) -> None:
    """The job is the Deployment's, not its ReplicaSet's. A new pod may come before the old one is gone: then it has an
    instance of its own, but there are no more instances than pods at a time."""
    labels = {"app": "web", "peloton.io/pool": "dev"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": labels}, "spec": {**world.pod_spec(""), "restartPolicy": "Always"}},
    }
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    job_id = JobId(world.create(path, deployment)["metadata"]["uid"])
    seen: set[str] = set()

    def the_next() -> str | None:
        """Return the next pod once all others have ended: a deletion of a pod that has not started, while another one
        has not ended, would make a third.
        """
        names = list(world.slots(job_id))
        is_single = len(names) == 1 and names[0].startswith("web-") and world.states(job_id).count(R) == 1
        return names[0] if is_single and names[0] not in seen else None

    for _ in range(3):
        name = world.until(the_next, "the only pod to run")
        seen.add(name)
        world.client.ask("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/{name}")
    world.until(the_next, "the last")
    assert len(world.states(job_id)) <= 2


def test_a_gang_is_bound_when_all_of_it_has_come(world: ExternalWorld) -> None:
    """Pods of an incomplete gang stay unbound, and show the reason."""
    world.pod("alone", labels={"peloton.io/gang-size": "2"})
    world.until(lambda: world.look("alone")["status"].get("conditions"), "a word why it waits")
    assert "nodeName" not in world.look("alone")["spec"]
    job_id = a_job(world, "gang", 2, "", {"peloton.io/gang-size": "2"})
    world.until(lambda: world.states(job_id).count(R) == 2, "the gang to run")  # a pod that was replaced has ended


def test_a_pod_that_we_do_not_understand_is_refused(world: ExternalWorld) -> None:
    """A pod with an unknown pool has a condition and an event with the reason, and no job."""
    job_id = JobId(world.pod("lost", labels={"peloton.io/pool": "nowhere"})["metadata"]["uid"])
    pod = world.until(lambda: (found := world.look("lost"))["status"].get("conditions") and found, "its condition")
    condition = pod["status"]["conditions"][0]
    assert ("PodScheduled", "False", "PelotonRefused") == (condition["type"], condition["status"], condition["reason"])
    assert "nowhere" in condition["message"]
    world.until(lambda: world.events("lost"), "its event, which follows the condition")
    assert (None, {"PelotonRefused"}) == (world.storage.jobs.get(job_id), world.events("lost"))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_kubectl_finds_what_is_refused_and_what_is_not_managed(world: ExternalWorld, kubernetes: Path) -> None:
    """A namespace before the name is no kind for kubectl; a pod of another scheduler has a reason, too."""
    kubectl = Kubectl(kubeconfig=str(kubernetes))
    world.pod("lost", labels={"peloton.io/pool": "nowhere"})
    world.until(lambda: world.look("lost")["status"].get("conditions"), "its condition")
    said = explain_pod(find_object(f"{world.namespace}/lost", kubectl), None)
    assert said.startswith("PelotonRefused: ")
    assert "nowhere" in said

    spec = {**world.pod_spec(""), "schedulerName": "another"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec}
    world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)
    near = kubectl.within(world.namespace)
    found = explain_pod(find_object("plain", near), near.get(f"namespace/{world.namespace}"))
    assert f"kubectl label namespace {world.namespace} peloton.io/pool=POOL" in found
    assert "another places it" in found
    with pytest.raises(Failed, match="kubectl finds no nothing/here"):
        find_object("nothing/here", kubectl)


def test_an_eviction_that_a_budget_forbids_is_asked_again(world: ExternalWorld) -> None:
    """A pod whose eviction a budget refuses runs meanwhile, and `job why` shows the reason."""
    pod = world.pod("web", labels={"app": "web"})
    job_id = JobId(pod["metadata"]["uid"])
    budgets = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    world.create(
        budgets, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}
    )
    world.until(lambda: world.states(job_id) == [R], "the pod to run")
    world.until(
        lambda: world.client.ask("GET", f"{budgets}/web").json().get("status", {}).get("currentHealthy"), "budget"
    )
    world.storage.host_pods.evict_from_host(job_id, world.node, 1)
    notes = world.until(lambda: world.storage.external_pods.notes(job_id, 1), "a note of the budget")
    assert (f"{world.namespace}/web", True) == (notes[0][0], "disruption budget" in notes[0][1])
    assert "deletionTimestamp" not in world.look("web")["metadata"]
    world.client.ask("DELETE", f"{budgets}/web")
    world.until(lambda: world.states(job_id) == [PodState.KILLED], "the eviction")
    world.until(lambda: not world.pods(), "the pod to be gone")


def test_a_preempted_owner_shows_who_took_what(world: ExternalWorld) -> None:
    """The Deployment has one event for both of its pods, with pool, job and amounts."""
    labels = {"app": "web", "peloton.io/pool": "dev"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": labels}, "spec": {**world.pod_spec(""), "restartPolicy": "Always"}},
    }
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    job_id = JobId(world.create(path, deployment)["metadata"]["uid"])
    world.until(lambda: world.states(job_id) == [R] * 2, "both pods to run")
    world.storage.admission.evict([EvictionOrder(job_id, 0, 2, False, PREEMPTED)])

    def find() -> list[str]:
        found = world.client.ask("GET", f"/api/v1/namespaces/{world.namespace}/events").json()["items"]
        return [one["message"] for one in found if one["reason"] == EVICTED and one["involvedObject"]["name"] == "web"]

    [message] = world.until(find, "the event of the owner")
    assert message.startswith("evicts 2 pods (web-")
    assert "preempted for job x of /q, which wants cpu 2: /p holds 8 and is entitled to 5" in message


def test_a_new_host_manager_finds_what_was_bound_and_what_waits(world: ExternalWorld) -> None:
    """No pod is bound twice, and no instance is assigned twice."""
    before = JobId(world.pod("before")["metadata"]["uid"])
    world.until(lambda: world.states(before) == [R], "the first to run")
    world.step_down()
    after = JobId(world.pod("after", "true")["metadata"]["uid"])
    world.lead()
    world.until(lambda: world.states(after) == [S], "the second to succeed")
    world.end("before")
    world.until(lambda: (world.states(before), world.states(after)) == ([S], [S]), "both to succeed")
    assert [1, 1] == [world.storage.pods.page(job)[0].run_id for job in (before, after)]


class Died(BaseException):
    """Error that ends the host manager in the middle of its work, like kill -9."""


def die_at(world: ExternalWorld, what: str, arrived: int) -> None:
    """Make the host manager die while it sends such requests for several pods, of which so many arrive: it receives no
    answer and stores nothing. After an interruption a reconciliation may send them first.
    """
    driver, ask_all = world.driver, world.driver.api.ask_all
    one_by_one, death = threading.Lock(), threading.Event()

    def ask_and_die(requests: Sequence[Request], timeout_s: float = ANSWER_TIMEOUT_S) -> list[Answer | OSError]:
        if not any(request.path.endswith(what) for request in requests):
            return ask_all(requests, timeout_s)
        with one_by_one:
            if not death.is_set():
                assert CPUS == len(requests), "all in one call"
                assert all(not isinstance(each, OSError) and each.is_ok for each in ask_all(requests[:arrived]))
                death.set()
                driver.stop()
        if threading.current_thread() is not threading.main_thread():
            raise ConnectionError("the host manager has died")  # its thread ends with the others
        raise Died

    driver.api.ask_all = ask_and_die  # type: ignore[method-assign]
    with suppress(Died):
        world.until(death.is_set, "its death")
    world.step_down()


def pods_of_one(world: ExternalWorld, name: str, count: int, command: str) -> JobId:
    """Create pods of one cpu with one owner, which no controller recreates; return when all have instances of its
    job.
    """
    maps = f"/api/v1/namespaces/{world.namespace}/configmaps"
    uid = world.create(maps, {"metadata": {"name": name}})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}
    for index in range(count):
        world.pod(f"{name}-{index}", command, ownerReferences=[owner])
    wait(lambda: len(world.slots(JobId(uid))) == count, "all to be taken in")
    return JobId(uid)


@pytest.mark.parametrize("arrived", [nightly(0), CPUS // 2, nightly(CPUS)])
def test_a_host_manager_dies_while_it_binds(arrived: int, world: ExternalWorld) -> None:
    """The successor distinguishes bound pods from waiting ones: each runs once, as the run in storage, and never more
    than fit on the node.
    """
    job_id = pods_of_one(world, "train", CPUS + 2, "sleep 0.2")

    die_at(world, "/binding", arrived)
    before = runs_bound(world)
    world.lead()

    world.until(lambda: world.states(job_id) == [S] * (CPUS + 2), "all to succeed")
    after = runs_bound(world)
    assert {str(pod.pod_id) for pod in world.storage.pods.page(job_id)} == after
    assert (arrived, before) == (len(before), before & after)


@pytest.mark.parametrize("arrived", [nightly(0), CPUS // 2, nightly(CPUS)])
def test_a_host_manager_dies_while_it_evicts(arrived: int, world: ExternalWorld, kubelets: FakeKubelets) -> None:
    """The successor evicts the rest, and binds no pod in the place of pods that have not left yet."""
    old = pods_of_one(world, "old", CPUS, "sleep 1000")
    world.until(lambda: world.states(old) == [R] * CPUS, "a full node")
    new = pods_of_one(world, "new", CPUS, "true")
    kubelets.lose(world.node)
    world.storage.host_pods.evict_from_host(old, world.node, 1)

    die_at(world, "/eviction", arrived)
    world.lead()

    leaving = [f"old-{index}" for index in range(CPUS)]
    world.until(lambda: all("deletionTimestamp" in world.look(name)["metadata"] for name in leaving), "their evictions")
    wait(lambda: world.core.cache.host(world.node), "the node")
    world.until(lambda: world.storage.pods.ready_gangs(new, CPUS), "others to be admitted")
    world.turn()
    assert {world.node: leaving} == by_node(world)
    kubelets.bring_back(world.node)
    world.until(lambda: (world.states(old), world.states(new)) == ([PodState.KILLED] * CPUS, [S] * CPUS), "their end")
    assert {str(pod.pod_id) for pod in world.storage.pods.page(new)} == runs_bound(world)


def runs_bound(world: ExternalWorld) -> set[str]:
    """Return the runs in the pods' annotations."""
    annotations = [pod["metadata"].get("annotations") or {} for pod in world.pods()]
    return {each[RUN] for each in annotations if RUN in each}


def by_node(world: ExternalWorld) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in world.pods():
        if node := pod["spec"].get("nodeName"):
            found.setdefault(node, []).append(pod["metadata"]["name"])
    return found


def test_a_pod_that_is_deleted_while_it_waits_leaves_the_queue(world: ExternalWorld) -> None:
    """A waiting pod, too large for any node, leaves the queue when it is deleted."""
    pod = world.pod("huge", cpu="400")
    job_id = JobId(pod["metadata"]["uid"])
    world.until(lambda: world.states(job_id) == [PodState.READY], "it to be admitted")
    world.client.ask("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/huge")
    world.until(lambda: world.states(job_id) == [PodState.KILLED], "it to leave")
    assert {} == world.slots(job_id)


GENERATION_ABOVE_FOUR = {"key": "gen", "operator": "Gt", "values": ["4"]}
HAS_LABEL = {"key": "for", "operator": "Exists"}


def test_nodes_are_chosen_by_tolerations_and_operators(bare_world: ExternalWorld, kubernetes_login: Login) -> None:
    """A taint keeps pods off the node until one tolerates it, which is bound by its affinity."""
    world = bare_world
    taint = {"key": "peloton.io/dedicated", "value": "ml", "effect": "NoExecute"}
    term = {"matchExpressions": [GENERATION_ABOVE_FOUR, HAS_LABEL]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
    }
    with FakeKubelets(kubernetes_login, [world.node], labels={"for": world.node, "gen": "5"}, taints=[taint]):
        world.until(lambda: world.driver.view.taints(), "the tainted node")
        plain = JobId(world.pod("plain")["metadata"]["uid"])
        world.until(lambda: world.states(plain) == [PodState.READY], "the pod without a toleration to be admitted")
        spec = {**world.pod_spec(""), "affinity": affinity, "tolerations": [{**taint, "operator": "Equal"}]}
        meta = {"name": "dedicated", "labels": {"peloton.io/pool": "dev"}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        job_id = JobId(world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)["metadata"]["uid"])
        world.until(lambda: world.states(job_id) == [R], "the pod that tolerates to run")
        assert [PodState.READY] == world.states(plain)
        assert "nodeName" not in world.look("plain")["spec"]
