"""Policies of the gate on a real apiserver: which pods they gate, whom they keep from passing, and their removal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.gate import gate
from peloton.model.ids import JobId
from services.hostmgr import external_adoption
from services.hostmgr.kubernetes.external.external_requests import RUN
from services.hostmgr.kubernetes.external.gate import GATE, gates_of
from services.hostmgr.kubernetes.gates import policies
from services.hostmgr.kubernetes.pods.launches import BY_GATE, BY_SUSPEND, HELD
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, PAUSED
from tests.kubernetes.client import MERGE, STRATEGIC, Client, Json, Reply, login_of
from tests.kubernetes.control_plane import USER, ControlPlane
from tests.kubernetes.deployment import GATE as GATE_FILE
from tests.kubernetes.deployment import documents, login_of_host_manager, must_apply, token_of
from tests.kubernetes.external_world import ExternalWorld, label_namespace, wait
from tests.kubernetes.fake_kubelet import FakeKubelets
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane

pytestmark = REAL_KUBERNETES
POOL = "peloton.io/pool"
_numbers = count(1)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with running_control_plane() as plane:
        assert "applied" in run(plane, "install")
        yield plane


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[Client]:
    with Client(plane.login) as client:
        yield client


@pytest.fixture(scope="module")
def editor(plane: ControlPlane, admin: Client) -> Iterator[Client]:
    """Return a user with the permissions of the role `edit` on pods and the controllers that make them."""
    rules = [
        {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]},
    ]
    group = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": "editor"}, "rules": rules}
    assert admin.ask("POST", f"{group}/clusterroles", role).status == 201
    binding = {
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "editor"},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert admin.ask("POST", f"{group}/clusterrolebindings", binding).status == 201
    with Client(login_of(plane.user_kubeconfig)) as client:
        wait(lambda: client.ask("GET", "/api/v1/pods").status == 200, "the role")
        yield client


def run(plane: ControlPlane, *arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(gate, [*arguments, "--kubeconfig", str(plane.kubeconfig)])
    assert status == done.exit_code, (done.output, done.exception)
    return done.output


def a_namespace(admin: Client, pool: str = "team") -> str:
    name = f"gated-{next(_numbers)}"
    labels = {POOL: pool} if pool else {}
    assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}).status == 201
    return name


def create(client: Client, namespace: str, name: str, meta: Json | None = None, **spec: object) -> Reply:
    body = {
        "metadata": {"name": name, **(meta or {})},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }
    return client.ask("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def gate_and_pool(reply: Reply) -> tuple[bool, str]:
    assert reply.status == 201, reply.body
    pod = reply.json()
    return GATE in gates_of(pod), (pod["metadata"].get("labels") or {}).get(POOL, "")


def an_owner(kind: str) -> Json:
    api = "apps/v1" if kind != "Job" else "batch/v1"
    return {"ownerReferences": [{"apiVersion": api, "kind": kind, "name": "x", "uid": "x", "controller": True}]}


def test_pods_of_namespaces_with_a_pool_are_gated(admin: Client, editor: Client) -> None:
    """The pool is that of the namespace or one below it; other gates are kept, and our own is not doubled."""
    namespace = a_namespace(admin)
    assert (True, "team") == gate_and_pool(create(editor, namespace, "bare"))
    below, other = {"labels": {POOL: "team.dev"}}, {"labels": {POOL: "teammates"}}
    assert (True, "team.dev") == gate_and_pool(create(editor, namespace, "below", below))
    assert (True, "team") == gate_and_pool(create(editor, namespace, "other", other))
    gates = [{"name": "other.example/gate"}, {"name": GATE}]
    both = create(editor, namespace, "both", schedulingGates=gates)
    assert 2 == len(both.json()["spec"]["schedulingGates"])


def test_other_pods_are_left_alone(admin: Client, editor: Client) -> None:
    """Pods elsewhere have no gate unless they name a pool; nor have those that Peloton places, or of a DaemonSet."""
    elsewhere, namespace = a_namespace(admin, pool=""), a_namespace(admin)
    assert (False, "") == gate_and_pool(create(editor, elsewhere, "bare"))
    assert (True, "dev") == gate_and_pool(create(editor, elsewhere, "labelled", {"labels": {POOL: "dev"}}))
    assert (False, "") == gate_and_pool(create(editor, namespace, "ours", schedulerName="peloton"))
    assert (False, "") == gate_and_pool(create(admin, namespace, "daemon", an_owner("DaemonSet")))
    assert (False, "") == gate_and_pool(create(editor, "kube-system", "system"))


def test_a_user_who_may_edit_all_does_not_pass_the_gate(admin: Client, editor: Client) -> None:
    """The user can neither create a pod past the gate, nor remove it, nor change what Peloton relies on."""
    namespace = a_namespace(admin)
    denied = [
        create(editor, namespace, "there", nodeName="n"),
        create(editor, namespace, "daemon", an_owner("DaemonSet")),
        create(editor, namespace, "there-by-peloton", schedulerName="peloton", nodeName="n"),
    ]
    create(editor, namespace, "web")
    path = f"/api/v1/namespaces/{namespace}/pods/web"
    no_gate = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
    denied += [
        editor.ask("PATCH", path, no_gate, STRATEGIC),
        editor.ask("PATCH", path, {"spec": {"schedulingGates": None}}, MERGE),
        editor.ask("PATCH", path, {"metadata": {"labels": {POOL: "others"}}}, MERGE),
        editor.ask("PATCH", path, {"metadata": {"labels": {POOL: None}}}, MERGE),
        editor.ask("PATCH", path, {"metadata": {"labels": {"peloton.io/gang-size": "4"}}}, MERGE),
        editor.ask("PATCH", path, {"metadata": {"annotations": {RUN: "mine"}}}, MERGE),
    ]
    assert [403] * len(denied) == [reply.status for reply in denied], [reply.body for reply in denied]
    assert editor.ask("PATCH", path, {"metadata": {"labels": {"app": "web"}}}, MERGE).status == 200
    assert admin.ask("PATCH", path, no_gate, STRATEGIC).status == 200
    assert editor.ask("DELETE", path).status == 200


def test_a_held_job_stays_suspended_whatever_its_user_applies(admin: Client, editor: Client) -> None:
    """A file with the flag off is applied without an error and without an effect; the flag is noted as a wish. What
    Peloton relies on cannot be changed, and a forged controller does not pass."""
    namespace = a_namespace(admin)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    body: Json = {"metadata": {"name": "train"}, "spec": {"suspend": False, "template": template}}
    made = editor.ask("POST", jobs, body)
    assert (201, True) == (made.status, made.json()["spec"]["suspend"])
    for suspend, paused in ((False, "false"), (True, "false")):
        reply = editor.ask("PATCH", f"{jobs}/train", {"spec": {"suspend": suspend}}, MERGE)
        found = reply.json()
        marks = found["metadata"]["annotations"]
        assert (200, True, paused) == (reply.status, found["spec"]["suspend"], marks[PAUSED])
    denied = [
        editor.ask("PATCH", f"{jobs}/train", {"metadata": {"labels": {POOL: "others"}}}, MERGE),
        editor.ask("PATCH", f"{jobs}/train", {"metadata": {"annotations": {ADMITTED_AS: "mine"}}}, MERGE),
        editor.ask("PATCH", f"{jobs}/train", {"metadata": {"annotations": {HELD: None}}}, MERGE),
    ]
    assert [403] * len(denied) == [reply.status for reply in denied], [reply.body for reply in denied]
    assert 200 == admin.ask("PATCH", f"{jobs}/train", {"spec": {"suspend": False}}, MERGE).status
    paused_job = {"metadata": {"name": "later"}, "spec": {**body["spec"], "suspend": True}}
    assert "true" == editor.ask("POST", jobs, paused_job).json()["metadata"]["annotations"][PAUSED]
    forged = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "x", "uid": "x", "controller": True}]
    child = editor.ask("POST", jobs, {"metadata": {"name": "child", "ownerReferences": forged}, "spec": body["spec"]})
    assert BY_GATE == child.json()["spec"]["template"]["metadata"]["annotations"][HELD]


def test_a_pod_with_a_forged_controller_does_not_pass(admin: Client) -> None:
    """Kubernetes' role `edit` allows a user to create pods and Jobs that claim to be of any owner, and to copy marks
    of those that are held. Such pods are gated, whatever they claim, and so are executors of a driver."""
    namespace = a_namespace(admin)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    edit = "system:aggregate-to-edit"  # the rules that are added up to `edit`
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": edit}
    binding = {"metadata": {"name": f"edit-{namespace}"}, "roleRef": role, "subjects": [account]}
    group = "/apis/rbac.authorization.k8s.io/v1"
    assert admin.ask("POST", f"{group}/clusterrolebindings", binding).status == 201
    user = {"metadata": {"name": "default"}}
    assert admin.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", user).status == 201
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    with Client(admin.login.with_token(token_of(admin, namespace, "default"))) as client:
        body: Json = {"metadata": {"name": "train"}, "spec": {"template": template}}
        wait(lambda: client.ask("POST", f"{jobs}?dryRun=All", body).status == 201, "the role")
        made = client.ask("POST", jobs, body).json()
        assert 200 == admin.ask("PATCH", f"{jobs}/train", {"spec": {"suspend": False}}, MERGE).status
        [real] = wait(lambda: admin.ask("GET", f"/api/v1/namespaces/{namespace}/pods").json()["items"], "its pod")
        assert not gates_of(real)

        claims = [
            ("batch/v1", "Job", "train", made["metadata"]["uid"]),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", "x", "x"),
            ("kubeflow.org/v1", "PyTorchJob", "x", "x"),
            ("v1", "Pod", real["metadata"]["name"], real["metadata"]["uid"]),
        ]
        for number, (api, kind, name, uid) in enumerate(claims):
            owner = {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}
            marks = {"ownerReferences": [owner], "annotations": {HELD: BY_SUSPEND}}
            assert (True, "team") == gate_and_pool(create(client, namespace, f"forged-{number}", marks)), kind
        forged = {**owner, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        marked = {**template, "metadata": {"annotations": {HELD: BY_SUSPEND}}}
        child = {"metadata": {"name": "child", "ownerReferences": [forged]}, "spec": {"template": marked}}
        found = client.ask("POST", jobs, child).json()
        assert BY_GATE == found["spec"]["template"]["metadata"]["annotations"][HELD]


def test_the_right_to_pass_is_that_of_rbac(admin: Client, editor: Client) -> None:
    """A role with the verb grant, which Peloton's host manager has, may remove gates."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["peloton.io"], "resources": ["admissions"], "verbs": ["grant"]}]
    assert admin.ask("POST", f"{group}/clusterroles", {"metadata": {"name": "granter"}, "rules": rules}).status == 201
    binding = {
        "metadata": {"name": "granter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "granter"},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert admin.ask("POST", f"{group}/clusterrolebindings", binding).status == 201
    namespace = a_namespace(admin)
    create(editor, namespace, "web")
    path, no_gate = f"/api/v1/namespaces/{namespace}/pods/web", {"spec": {"schedulingGates": None}}
    wait(lambda: editor.ask("PATCH", path, no_gate, MERGE).status == 200, "the right")
    assert admin.ask("DELETE", f"{group}/clusterrolebindings/granter").status == 200


def test_pods_keep_to_the_nodes_of_peloton(plane: ControlPlane, admin: Client, editor: Client) -> None:
    """The labels of its nodes are added to gated pods and to those of held owners, and to no template."""
    nodes = ("--node-selector", "peloton.io/nodes=batch,zone=a")
    labels = {"peloton.io/nodes": "batch", "zone": "a"}
    namespace = a_namespace(admin)
    run(plane, "install", *nodes)
    try:
        pod = create(editor, namespace, "bare", nodeSelector={"zone": "b", "disk": "ssd"})
        assert (True, "team") == gate_and_pool(pod)
        assert {**labels, "disk": "ssd"} == pod.json()["spec"]["nodeSelector"]
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
        made = editor.ask("POST", jobs, {"metadata": {"name": "train"}, "spec": {"template": template}}).json()
        assert made["spec"]["suspend"]
        assert 200 == admin.ask("PATCH", f"{jobs}/train", {"spec": {"suspend": False}}, MERGE).status

        def pods() -> list[Json]:
            found: list[Json] = admin.ask("GET", f"/api/v1/namespaces/{namespace}/pods").json()["items"]
            return [each for each in found if each["metadata"]["name"].startswith("train-")]

        wait(pods, "the pod of the Job")
        assert [(set(), labels)] == [(gates_of(each), each["spec"]["nodeSelector"]) for each in pods()]
        assert "nodeSelector" not in admin.ask("GET", f"{jobs}/train").json()["spec"]["template"]["spec"]
        assert "pods wait" in run(plane, "check", *nodes)
        assert "is not that of this release" in run(plane, "check", status=1)
    finally:
        run(plane, "install")


def test_a_policy_with_an_error_is_not_installed(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The apiserver accepts a misspelt policy; the dry run of the proof finds it, and the installed one stays."""
    monkeypatch.setattr("services.hostmgr.kubernetes.gates.installation.TRIAL_TIMEOUT_S", 3.0)
    monkeypatch.setattr(policies, "_HAS_NO_NODE", "object.metadata.annotations['absent'] == ''")
    assert "no such key" in run(plane, "install", status=1)
    monkeypatch.undo()
    assert "0 pods" in run(plane, "check") or "pods wait" in run(plane, "check")


def test_the_file_for_kubectl_is_accepted(admin: Client) -> None:
    """The apiserver knows all of its fields."""
    for document in documents(GATE_FILE):
        must_apply(admin, document, dry_run=True)


def test_the_host_manager_has_the_rights_that_it_needs(
    plane: ControlPlane, admin: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights of deploy/kubernetes suffice to admit a pod, to say why another one waits, and to put a Job back that
    no scheduler places: this plane has none."""
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    monkeypatch.setattr(external_adoption, "MOMENT_S", 0.2)
    for document in documents("10-cluster.yaml", "50-pools-for-kubectl.yaml"):
        must_apply(admin, document)
    token = login_of_host_manager(admin).token
    plane.write_kubeconfig(tmp_path / "hostmgr", token)
    with FakeKubelets(plane.login, ["policies-1"], labels={"for": "policies"}):
        world = ExternalWorld(plane.kubeconfig, plane.login, tmp_path, node_selector=(("for", "policies"),))
        try:
            world.step_down()
            access = str(tmp_path / "hostmgr")
            world.settings = replace(world.settings, access=access, namespace="peloton", admission_timeout_s=1.0)
            world.lead()
            label_namespace(admin, world.namespace)
            big = {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "40"}}}]}
            world.create(f"/api/v1/namespaces/{world.namespace}/pods", {"metadata": {"name": "big"}, "spec": big})
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
            spec = {"backoffLimit": 0, "template": template}
            jobs = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
            made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "small"}, "spec": spec}
            job_id = JobId(world.create(jobs, made)["metadata"]["uid"])
            world.until(lambda: "Unschedulable" in world.events("big"), "the word why the large one waits")
            seen: set[str] = set()

            def has_come_twice() -> bool:
                marks = admin.ask("GET", f"{jobs}/small").json()["metadata"].get("annotations") or {}
                seen.update(filter(None, [marks.get(ADMITTED_AS)]))
                return len(seen) > 1

            world.until(has_come_twice, "the Job to be put back and admitted again")
            assert "failed" not in admin.ask("GET", f"{jobs}/small").json()["status"]
            assert world.states(job_id)
        finally:
            world.close()


def test_uninstalling_frees_all_that_wait(plane: ControlPlane, admin: Client, editor: Client) -> None:
    """The policies go first, so that no further pod waits; then all gates of Peloton are removed, and no others."""
    namespace = a_namespace(admin)
    for number in range(3):
        create(editor, namespace, f"web-{number}")
    create(editor, namespace, "held", schedulingGates=[{"name": "other.example/gate"}])

    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    editor.ask("POST", jobs, {"metadata": {"name": "train"}, "spec": {"template": template}})

    assert "removed the gate of" in run(plane, "uninstall")

    assert not admin.ask("GET", f"{jobs}/train").json()["spec"].get("suspend")

    pods = admin.ask("GET", "/api/v1/pods").json()["items"]
    assert not any(GATE in gates_of(pod) for pod in pods)
    assert {"other.example/gate"} <= gates_of(next(pod for pod in pods if pod["metadata"]["name"] == "held"))
    assert (False, "") == gate_and_pool(create(editor, namespace, "later"))
    assert "is missing" in run(plane, "check", status=1)
    run(plane, "install")
    assert (True, "team") == gate_and_pool(create(editor, namespace, "latest"))
