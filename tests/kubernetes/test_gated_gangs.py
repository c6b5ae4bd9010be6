"""Gangs of gated pods on a real apiserver, as their users declare them: a label, or a pod group of another project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.hostmgr import ahead_admission, external_adoption
from services.hostmgr.kubernetes.external import external_pods
from services.hostmgr.kubernetes.external.gate import GATE, gates_of
from services.hostmgr.kubernetes.external.pod_groups import PLUGINS_LABEL, VOLCANO_ANNOTATION
from tests.kubernetes.client import Json
from tests.kubernetes.control_plane import ControlPlane, Flags
from tests.kubernetes.external_world import ExternalWorld, wait
from tests.kubernetes.fake_kubelet import ALLOCATABLE, FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
ROOT = Path(__file__).parents[2]
R = PodState.RUNNING
LABELS = {"for": "gangs"}
GROUPS = {"scheduling.x-k8s.io": "v1alpha1", "scheduling.volcano.sh": "v1beta1"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Return a control plane with kube-scheduler, nodes, and the pod groups of both projects."""
    gangs: Flags = {"feature-gates": "GenericWorkload=true,GangScheduling=true"}
    flags = dict.fromkeys(("kube-controller-manager", "kube-scheduler"), gangs)
    flags["kube-apiserver"] = gangs | {"runtime-config": "scheduling.k8s.io/v1alpha2=true"}
    with (
        running_control_plane(scheduler=True, flags=flags) as plane,
        FakeKubelets(plane.login, ["gangs-1", "gangs-2"], labels=LABELS),
    ):
        yield plane


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    monkeypatch.setattr(external_adoption, "IDLE_S", 0.5)
    monkeypatch.setattr(external_pods, "GROUP_RETRY_S", 0.2)
    world = ExternalWorld(plane.kubeconfig, plane.login, tmp_path, node_selector=tuple(LABELS.items()))
    try:
        yield world
    finally:
        world.close()


def add_groups(world: ExternalWorld, group: str) -> None:
    """Create the definition of the group's objects, and return when they are served."""
    version = {
        "name": GROUPS[group],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    path = f"/apis/{group}/{GROUPS[group]}/podgroups"
    wait(lambda: world.client.ask("GET", path).status == 200, "the definition")


def a_workload(world: ExternalWorld, name: str, count: int, meta: Json) -> JobId:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container], "schedulingGates": [{"name": GATE}]}
    labels = {"peloton.io/pool": "dev", **meta.pop("labels", {})}
    template = {"metadata": {"labels": labels, **meta}, "spec": spec}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": count, "completions": count, "template": template},
    }
    return JobId(world.create(f"/apis/batch/v1/namespaces/{world.namespace}/jobs", body)["metadata"]["uid"])


def test_a_gang_by_label_is_admitted_whole(world: ExternalWorld) -> None:
    """A gang that is larger than the cluster keeps all of its gates; one that fits runs."""
    large = a_workload(world, "large", 10, {"labels": {"peloton.io/gang-size": "10"}})
    small = a_workload(world, "small", 3, {"labels": {"peloton.io/gang-size": "3"}})
    world.until(lambda: world.states(small) == [R] * 3, "the small gang to run")
    assert [PodState.READY] * 10 == world.states(large)
    assert all(gates_of(pod) for pod in world.pods() if pod["metadata"]["name"].startswith("large"))


def test_the_example_of_a_gang_has_names_in_dns(world: ExternalWorld) -> None:
    """Members run together, with the names of which the first is the coordinator's, and their indices as ranks."""
    service, job = yaml.safe_load_all((ROOT / "examples/kubernetes/train-job.yaml").read_text())
    template = job["spec"]["template"]
    template["metadata"]["labels"]["peloton.io/pool"] = "dev"
    template["spec"]["schedulingGates"] = [{"name": GATE}]
    container = template["spec"]["containers"][0]
    del container["command"], container["args"]  # nodes without machines end what they cannot run
    world.create(f"/api/v1/namespaces/{world.namespace}/services", service)
    uid = world.create(f"/apis/batch/v1/namespaces/{world.namespace}/jobs", job)["metadata"]["uid"]

    world.until(lambda: world.states(JobId(uid)) == [R] * 3, "the gang to run")

    slices = f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices"

    def names() -> set[str]:
        found = world.client.ask("GET", slices).json()["items"]
        return {str(each.get("hostname")) for one in found for each in one["endpoints"]}

    wait(lambda: names() == {"train-0", "train-1", "train-2"}, "the names of the members")
    assert {f"train-{n}" for n in range(3)} == {pod["spec"]["hostname"] for pod in world.pods()}
    [address] = [each["value"] for each in container["env"] if each["name"] == "MASTER_ADDR"]
    assert f"train-0.{service['metadata']['name']}" == address


@pytest.mark.parametrize("group", GROUPS)
def test_pods_of_a_group_are_one_gang_whatever_makes_them(group: str, world: ExternalWorld) -> None:
    """Leader and workers are of two Jobs: none is admitted before the group is complete, and all are of one job."""
    meta: Json = {"labels": {PLUGINS_LABEL: "train"}}
    if group == "scheduling.volcano.sh":
        meta = {"annotations": {VOLCANO_ANNOTATION: "train"}}
    a_workload(world, "leader", 1, {**meta})
    name = world.until(lambda: world.pods(), "the leader's pod")[0]["metadata"]["name"]
    world.until(lambda: "PelotonRefused" in world.events(name), "the word that there is no such group")
    add_groups(world, group)
    path = f"/apis/{group}/{GROUPS[group]}/namespaces/{world.namespace}/podgroups"
    body = {
        "apiVersion": f"{group}/{GROUPS[group]}",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 3},
    }
    job_id = JobId(world.create(path, body)["metadata"]["uid"])
    world.until(lambda: len(world.slots(job_id)) == 1, "the leader to be taken in")
    assert gates_of(world.look(name))
    a_workload(world, "workers", 2, {**meta})
    world.until(lambda: world.states(job_id) == [R] * 3, "the gang to run")
    assert [f"PodGroup {world.namespace}/train"] == [job.name for job in world.jobs() if job.job_id == job_id]


def test_a_pod_group_of_kubernetes_itself_is_a_gang(world: ExternalWorld) -> None:
    """Peloton admits it whole, and kube-scheduler binds it whole."""
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{world.namespace}/podgroups"
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    job_id = JobId(world.create(path, {"metadata": {"name": "train"}, "spec": spec})["metadata"]["uid"])
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "containers": [container],
        "schedulingGates": [{"name": GATE}],
        "schedulingGroup": {"podGroupName": "train"},
    }
    for index in range(3):
        world.until(lambda count=index: len(world.slots(job_id)) == count, "those before it to be taken in")
        assert all(gates_of(each) for each in world.pods()), "a part of the gang was admitted"
        body = {"metadata": {"name": f"train-{index}", "labels": {"peloton.io/pool": "dev"}}, "spec": pod}
        world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)
    world.until(lambda: world.states(job_id) == [R] * 3, "the gang to run")


def test_pods_are_admitted_ahead_of_nodes_in_bounded_numbers(
    world: ExternalWorld, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two pods that fit on no node is made unschedulable, which node autoscalers see; on a new node both run."""
    monkeypatch.setattr(ahead_admission, "AFTER_S", 0.3)
    world.step_down()
    world.ahead_max = 1
    world.lead()
    spec = {
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "40"}}}],
        "schedulingGates": [{"name": GATE}],
    }
    jobs = []
    for name in ("first", "second"):
        body = {"metadata": {"name": name, "labels": {"peloton.io/pool": "dev"}}, "spec": spec}
        made = world.create(f"/api/v1/namespaces/{world.namespace}/pods", body)
        jobs.append(JobId(made["metadata"]["uid"]))
    world.until(lambda: len(unschedulable(world)) == 1, "one to be unschedulable")
    for _ in range(20):
        world.turn()
    assert 1 == len(unschedulable(world)) == sum(not gates_of(pod) for pod in world.pods())
    node = f"added-{world.namespace}"
    with FakeKubelets(plane.login, [node], allocatable={**ALLOCATABLE, "cpu": "100"}, labels=LABELS):
        world.until(lambda: [world.states(job) for job in jobs] == [[R], [R]], "both to run")
        assert [node] * 2 == [world.storage.pods.page(job)[0].host for job in jobs]
    world.client.ask("DELETE", f"/api/v1/nodes/{node}")


def unschedulable(world: ExternalWorld) -> list[str]:
    """Return the names of pods for which autoscalers add nodes."""
    return [
        pod["metadata"]["name"]
        for pod in world.pods()
        for one in pod["status"].get("conditions") or ()
        if (one["type"], one.get("reason")) == ("PodScheduled", "Unschedulable")
    ]


def test_a_gang_of_a_job_that_ends_unscheduled_counts_no_failure(world: ExternalWorld) -> None:
    """Peloton ends a launched gang of which no member was scheduled, as after its timeout: the Job is suspended and
    resumed, and its new pods are queued again."""
    apart = [{"labelSelector": {"matchLabels": {"app": "nothing"}}, "topologyKey": "kubernetes.io/hostname"}]
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"labels": {"peloton.io/pool": "dev", "peloton.io/gang-size": "2"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "schedulingGates": [{"name": GATE}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
        },
    }
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template}
    jobs = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    job_id = JobId(world.create(jobs, made)["metadata"]["uid"])
    world.until(lambda: world.states(job_id) == [PodState.LAUNCHED] * 2, "the gang to be admitted")
    old = {pod["metadata"]["uid"] for pod in world.pods()}
    for host in {pod.host for pod in world.storage.pods.page(job_id)}:
        world.storage.host_pods.evict_from_host(job_id, host, 2)
    world.until(lambda: len(found := world.pods()) == 2 and not old & {p["metadata"]["uid"] for p in found}, "others")
    job = world.client.ask("GET", f"{jobs}/train").json()
    assert ("failed" in job["status"], "peloton.io/put-back" in (job["metadata"].get("labels") or {})) == (False, False)
