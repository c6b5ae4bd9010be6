"""`kubectl peloton why`: objects of Kubernetes are found by kubectl, and explained by the job of their controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from cli import pod_reasons
from cli.kubectl import Json
from cli.pod_reasons import explain_pod, explain_pods
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.errors import Reason
from services.hostmgr.kubernetes.external import external_specs, gate
from services.hostmgr.kubernetes.gates import building
from services.hostmgr.kubernetes.pods import launches
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi, because

UIDS = {
    name: f"00000000-0000-4000-8000-00000000000{number}" for number, name in enumerate(("pod", "set", "job", "web"))
}
KUBECTL = """#!/bin/sh
echo "$@" >> {folder}/asked
file="{folder}/$(echo "$2" | tr / _)"
case "$2" in maps/*) echo "error: the server doesn't have a resource type \\"maps\\"" >&2; exit 1;; esac
[ -e "$file" ] && exec cat "$file"
echo "Error from server (NotFound): $2 not found" >&2
exit 1
"""


def _object(name: str, uid: str, owner: tuple[str, str, str] | None = None) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1], "uid": owner[2], "controller": True}] if owner else []
    meta = {"name": name, "namespace": "maps", "uid": uid, "ownerReferences": references}
    return {"kind": "Pod" if name in ("web-1", "bare") else "Other", "metadata": meta, "spec": {}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a kubectl that has a pod of a Deployment, a Job, and a bare pod."""
    objects = {
        "pod_web-1": _object("web-1", UIDS["pod"], ("ReplicaSet", "web-abc", UIDS["set"])),
        "replicaset_web-abc": _object("web-abc", UIDS["set"], ("Deployment", "web", UIDS["web"])),
        "job_train": _object("train", UIDS["job"]),
        "pod_bare": _object("bare", UIDS["pod"]),
    }
    for name, item in objects.items():
        (tmp_path / name).write_text(json.dumps(item))
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(folder=tmp_path))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("what", "job"),
    [
        ("web-1", "web"),
        ("pod/web-1", "web"),
        ("train", "job"),
        ("job/train", "job"),
        ("bare", "pod"),
        ("maps/bare", "pod"),
        (UIDS["set"], "set"),
    ],
)
def test_the_controller_at_the_top_is_the_job(run: Run, api: FakeApi, folder: Path, what: str, job: str) -> None:
    """A pod of a Deployment is explained by the Deployment; an id needs no kubectl."""
    api.answers["explain.JobWhy"] = [explain_pb2.JobWhyResponse(text="it waits for its pool")]
    result = run(f"why {what}")

    assert (0, "it waits for its pool") == (result.exit_code, result.stdout.splitlines()[0])
    [request] = api.requests("explain.JobWhy")
    assert UIDS[job] == request.jobId.value


def test_an_object_that_is_not_there_is_named(run: Run, folder: Path) -> None:
    """The error names the kinds that were tried, and how to name another one; flags are handed to kubectl."""
    result = run("why nothing --context kind-kind")

    assert 1 == result.exit_code
    assert "no job/nothing and no deployment/nothing and no statefulset/nothing: name the kind" in result.stderr
    assert "get pod/nothing --output=json --context=kind-kind" == (folder / "asked").read_text().splitlines()[0]


def test_without_kubectl_an_id_is_wanted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that kubectl is missing."""
    monkeypatch.setenv("PATH", "")

    assert "kubectl is not on the PATH" in run("why train").stderr


NOT_FOUND = because(Reason.JOB_NOT_FOUND, grpc.StatusCode.NOT_FOUND, "job not found")


def write(folder: Path, name: str, thing: Json) -> None:
    (folder / name).write_text(json.dumps(thing))


def a_pod(spec: Json | None = None, condition: Json | None = None, **meta: Any) -> Json:
    conditions = [{"status": "False", **condition}] if condition else []
    return {
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "maps", "uid": UIDS["pod"], **meta},
        "spec": spec or {},
        "status": {"phase": "Pending", "conditions": conditions},
    }


GATED = {"schedulingGates": [{"name": "peloton.io/admission"}]}
REFUSED = {"type": "peloton.io/Admitted", "reason": "PelotonRefused", "message": "pool /maps does not exist"}


def test_a_refused_pod_says_why_without_a_job(run: Run, api: FakeApi, folder: Path) -> None:
    """No job of Peloton has it: its own condition is the answer, by `peloton job why` as well."""
    write(folder, "pod_bare", a_pod(GATED, REFUSED))
    api.answers["explain.JobWhy"] = [NOT_FOUND] * 2
    api.answers["lookup.FindJobs"] = [lookup_pb2.FindJobsResponse()]

    said = "Pod maps/bare is no job of Peloton now\n  PelotonRefused: pool /maps does not exist\n"
    assert said == run("why bare").stdout
    assert said == run("job why maps/bare").stdout


def test_a_refused_pod_of_a_known_job_says_why(run: Run, api: FakeApi, folder: Path) -> None:
    """The job has other pods, which its reasons are about."""
    write(folder, "pod_bare", a_pod(GATED, REFUSED))
    api.answers["explain.JobWhy"] = [explain_pb2.JobWhyResponse(text="the job runs")]
    said = "the job runs\n  Pod maps/bare: PelotonRefused: pool /maps does not exist\n"
    assert said == run("why bare").stdout


def test_an_unmanaged_pod_says_what_its_namespace_lacks(run: Run, api: FakeApi, folder: Path) -> None:
    """The namespace is read for it; what cannot be read is left out."""
    write(folder, "pod_bare", a_pod())
    write(folder, "namespace_maps", {"metadata": {"name": "maps"}})
    api.answers["explain.JobWhy"] = [NOT_FOUND]
    assert "kubectl label namespace maps peloton.io/pool=POOL" in run("why bare").stdout


def test_an_owner_without_a_job_shows_the_reasons_of_its_pods(run: Run, api: FakeApi, folder: Path) -> None:
    """The pods that its selector names are read."""
    job = {"kind": "Job", "metadata": {"name": "train", "namespace": "maps", "uid": UIDS["job"]}}
    write(folder, "job_train", {**job, "spec": {"selector": {"matchLabels": {"job": "train"}}}})
    write(folder, "pods", {"items": [a_pod(GATED, REFUSED), a_pod(GATED, REFUSED)]})
    api.answers["explain.JobWhy"] = [NOT_FOUND]
    assert "  2 pods: PelotonRefused: pool /maps does not exist" in run("why job/train").stdout
    assert "get pods --output=json --selector=job=train --namespace=maps" in (folder / "asked").read_text()


def test_another_failure_of_the_api_is_not_hidden(run: Run, api: FakeApi, folder: Path) -> None:
    """A job is explained by its object if it does not exist, and in no other case."""
    api.answers["explain.JobWhy"] = [(grpc.StatusCode.PERMISSION_DENIED, "no")]
    assert 1 == run("why bare").exit_code


LABELLED = {"metadata": {"labels": {"peloton.io/pool": "maps"}}}


@pytest.mark.parametrize(
    ("pod", "namespace", "said"),
    [
        (a_pod(), None, "it has no label peloton.io/pool and no gate, and default-scheduler places it"),
        (a_pod({"schedulerName": "volcano"}), {"metadata": {}}, "volcano places it"),
        (a_pod(), LABELLED, "created before its namespace had the label"),
        (a_pod(namespace="kube-system"), LABELLED, "pods of the namespace kube-system are not gated"),
        (
            a_pod(ownerReferences=[{"kind": "DaemonSet", "controller": True}]),
            LABELLED,
            "pods of a DaemonSet are not gated",
        ),
        (a_pod(GATED), None, "Peloton has not given a reason yet"),
        (a_pod({"schedulingGates": [*GATED["schedulingGates"], {"name": "x/y"}]}), None, "other scheduling gates, x/y"),
        (
            a_pod({}, {"type": "PodScheduled", "message": "0/3 nodes"}, annotations={"peloton.io/admitted-at": "t"}),
            None,
            "its pool has admitted it, and default-scheduler has not bound it: 0/3 nodes",
        ),
        (
            a_pod({"schedulerName": "peloton"}, {"type": "PodScheduled", "reason": "PelotonFull", "message": "many"}),
            None,
            "PelotonFull: many",
        ),
        (a_pod({"schedulerName": "peloton", "nodeName": "n1"}), None, "it is on node n1"),
        (a_pod(deletionTimestamp="t"), None, "it is being deleted"),
    ],
)
def test_each_pod_has_a_reason(pod: Json, namespace: Json | None, said: str) -> None:
    """Gates, condition, scheduler, owner and namespace show it."""
    assert said in explain_pod(pod, namespace)


def test_different_reasons_are_bounded() -> None:
    """The most frequent ones are shown, and how many are not."""
    pods = [a_pod({"schedulerName": "peloton", "nodeName": f"n{number}"}) for number in range(8)]
    lines = explain_pods([*pods, pods[3]])
    assert ("2 pods: it is on node n3", "3 more reasons", 6) == (lines[0], lines[-1], len(lines))


def test_the_names_are_those_of_the_host_manager() -> None:
    """The command does not import them, as that takes long."""
    theirs = gate.GATE, gate.ADMITTED_AT, gate.ADMITTED, external_specs.POOL, launches.SCHEDULER_NAME
    mine = pod_reasons
    assert theirs == (mine.GATE, mine.ADMITTED_AT, mine.ADMITTED, mine.POOL, mine.SCHEDULER)
    assert building.UNGATED_NAMESPACES == mine.UNGATED_NAMESPACES
