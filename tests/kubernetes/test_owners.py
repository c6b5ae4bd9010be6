"""Owners of each kind that can be suspended, on a real apiserver with the schemas of their projects: the table reads
them, its patches are accepted, and pods come and go with the flag."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds
from services.hostmgr.kubernetes.suspend.owner_kinds import (
    KINDS,
    OwnerKind,
    holdable_cel,
    is_ended,
    is_suspended,
    pod_sets,
    reference_path,
    suspend_patch,
)
from tests.kubernetes.client import MERGE, Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.external_world import wait
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.kubernetes.owner_controller import OwnerController
from tests.kubernetes.owners import apply_schema, running_owners
from tests.unit.owner_examples import SIZES, example, example_of_the_page, kind_named, pod_template, runtime

pytestmark = REAL_KUBERNETES
EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
JOB, RAY_JOB, RAY_CLUSTER = (kind_named(kind, "v1") for kind in ("Job", "RayJob", "RayCluster"))
PYTORCH_JOB, TRAIN_JOB = kind_named("PyTorchJob", "v1"), kind_named("TrainJob", "v1alpha1")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_numbers = count(1)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with running_owners() as plane:
        yield plane


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[Client]:
    with Client(plane.login) as client:
        path = reference_path(TRAIN_JOB, example(TRAIN_JOB))
        ask(client, "POST", path.rpartition("/")[0], runtime())
        yield client


def ask(client: Client, method: str, path: str, body: Json | None = None, content_type: str = MERGE) -> Json:
    """Send a request whose fields must all be known."""
    strict = f"{path}?fieldValidation=Strict" if method != "GET" else path
    reply = client.ask(method, strict, body, "application/json" if method == "POST" else content_type)
    assert reply.status in (200, 201), (path, reply.body)
    return reply.json()


class Owner:
    """An owner in a namespace of its own."""

    def __init__(self, client: Client, kind: OwnerKind, is_held: bool, body: Json | None = None) -> None:
        self.client, self.kind = client, kind
        self.namespace = f"owners-{next(_numbers)}"
        ask(client, "POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        new = _merge(body or example(kind), suspend_patch(kind, is_held))
        new["metadata"] = {"name": "one", "namespace": self.namespace}
        self.all = f"/apis/{kind.api_version}/namespaces/{self.namespace}/{kind.plural}"
        ask(client, "POST", self.all, new)

    def look(self) -> Json:
        return ask(self.client, "GET", f"{self.all}/one")

    def suspend(self, is_suspended: bool) -> None:
        ask(self.client, "PATCH", f"{self.all}/one", suspend_patch(self.kind, is_suspended))

    def sizes(self) -> dict[str, int]:
        """Return the counts of the pod sets, read of the stored object."""
        owner = self.look()
        path = reference_path(self.kind, owner)
        referenced = ask(self.client, "GET", path) if path else None
        return {one.name: one.count for one in pod_sets(self.kind, owner, referenced)}

    def pods(self) -> list[Json]:
        """Return the pods that are not being deleted."""
        found = ask(self.client, "GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def await_pods(self, wanted: int) -> list[Json]:
        return wait(lambda: [pods] if len(pods := self.pods()) == wanted else None, f"{wanted} pods")[0]

    def succeed(self) -> None:
        for pod in self.pods():
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
            ask(self.client, "PATCH", path, {"status": {"phase": "Succeeded"}})


def _merge(object: Json, patch: Json) -> Json:
    """Return the object with the fields of the patch."""
    found = dict(object)
    for key, value in patch.items():
        found[key] = _merge(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


@EACH
def test_a_held_owner_has_no_pods_and_its_sizes_are_known(admin: Client, kind: OwnerKind) -> None:
    """The schema accepts a suspended owner, whose pod sets are read with the defaults of the schema, and the patches
    that start and stop it; its pods are as many as its pod sets say, and all gone after a suspension."""
    owner = Owner(admin, kind, is_held=True)
    expected = SIZES[kind.kind, kind.version]

    assert is_suspended(kind, owner.look())
    assert expected == owner.sizes()
    assert [] == owner.pods()

    owner.suspend(False)
    assert not is_suspended(kind, owner.look())
    owner.await_pods(sum(expected.values()))

    owner.suspend(True)
    owner.await_pods(0)
    assert not is_ended(kind, owner.look())
    owner.suspend(False)
    owner.await_pods(sum(expected.values()))


@EACH
def test_an_owner_whose_pods_succeed_ends(admin: Client, kind: OwnerKind) -> None:
    """The end of an owner is read in its status; a RayCluster has none."""
    owner = Owner(admin, kind, is_held=False)
    owner.await_pods(sum(SIZES[kind.kind, kind.version].values()))

    assert not is_ended(kind, owner.look())
    owner.succeed()
    if kind == RAY_CLUSTER:
        assert not is_ended(kind, owner.look())
    else:
        wait(lambda: is_ended(kind, owner.look()), "the end")


def test_a_suspended_job_set_suspends_its_jobs(admin: Client) -> None:
    """The real controller makes the Jobs of a held JobSet suspended, and the patch of the JobSet alone starts and stops
    them; a preempted one has no failure."""
    owner = Owner(admin, kind_named("JobSet", "v1alpha2"), is_held=True)

    def jobs() -> list[Json]:
        found: list[Json] = ask(admin, "GET", f"/apis/batch/v1/namespaces/{owner.namespace}/jobs")["items"]
        return found

    wait(lambda: len(jobs()) == 3, "the Jobs")
    assert [True] * 3 == [job["spec"]["suspend"] for job in jobs()]
    owner.suspend(False)
    owner.await_pods(5)
    owner.suspend(True)
    owner.await_pods(0)
    wait(lambda: all(job["spec"]["suspend"] for job in jobs()), "suspended Jobs")
    assert [None] * 3 == [job["status"].get("failed") for job in jobs()]
    assert owner.look()["status"].get("restarts", 0) == 0


def test_a_kind_of_a_file_is_held_like_the_others(plane: ControlPlane, admin: Client, tmp_path: Path) -> None:
    """The kind that the documentation adds is read, started and stopped on its real schema."""
    file = tmp_path / "kinds.yaml"
    file.write_text(example_of_the_page(), encoding="utf-8")
    kind = read_kinds(str(file))[-1]
    apply_schema(admin, kind)
    roles = {role: {"replicas": 2, "template": pod_template()} for role in ("Master", "Worker")}
    body = {**example(JOB), "apiVersion": kind.api_version, "kind": kind.kind, "spec": {"xgbReplicaSpecs": roles}}

    with OwnerController(plane.login, [kind]):
        owner = Owner(admin, kind, is_held=True, body=body)
        assert {"Master": 2, "Worker": 2} == owner.sizes()
        owner.suspend(False)
        owner.await_pods(4)
        owner.suspend(True)
        owner.await_pods(0)
        owner.suspend(False)
        owner.await_pods(4)
        owner.succeed()
        wait(lambda: is_ended(kind, owner.look()), "the end")


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (JOB, [{}, {"managedBy": "kubernetes.io/job-controller"}], [{"managedBy": "example.org/other"}]),
        (RAY_JOB, [{}], [{"shutdownAfterJobFinishes": False}, {"clusterSelector": {"ray.io/cluster": "a"}}]),
        (PYTORCH_JOB, [{}, {"runPolicy": {"suspend": True}}], [{"runPolicy": {"managedBy": "example.org/other"}}]),
    ],
    ids=["Job", "RayJob", "PyTorchJob"],
)
def test_a_policy_knows_the_owners_that_cannot_be_held(
    admin: Client, kind: OwnerKind, accepted: list[Json], refused: list[Json]
) -> None:
    """The needs of a kind are an expression that the apiserver evaluates on each owner."""
    name = f"needs-{next(_numbers)}"
    rule = {"apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
            "validations": [{"expression": holdable_cel(kind), "message": "cannot be held"}],
        },
    }
    namespaces = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": namespaces},
    }
    ask(admin, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    ask(admin, "POST", POLICIES, policy)
    ask(admin, "POST", POLICIES.replace("policies", "policybindings"), binding)

    def is_denied(spec: Json) -> bool:
        body = example(kind, **spec)
        body["metadata"]["namespace"] = name
        reply = admin.ask("POST", f"/apis/{kind.api_version}/namespaces/{name}/{kind.plural}?dryRun=All", body)
        assert reply.status == 201 or b"cannot be held" in reply.body, reply.body
        return reply.status != 201

    for spec in refused:
        wait(lambda spec=spec: is_denied(spec), "the refusal")  # policies act a moment after they are made
    assert [] == [spec for spec in accepted if is_denied(spec)]
