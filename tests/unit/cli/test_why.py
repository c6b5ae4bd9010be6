"""`kubectl peloton why`: objects of Kubernetes are found by kubectl, and explained by the job of their controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.explain import explain_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

UIDS = {
    name: f"00000000-0000-4000-8000-00000000000{number}" for number, name in enumerate(("pod", "set", "job", "web"))
}
KUBECTL = """#!/bin/sh
echo "$@" >> {folder}/asked
file="{folder}/$(echo "$2" | tr / _)"
[ -e "$file" ] && exec cat "$file"
echo "Error from server (NotFound): $2 not found" >&2
exit 1
"""


def _object(name: str, uid: str, owner: tuple[str, str, str] | None = None) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1], "uid": owner[2], "controller": True}] if owner else []
    return {"metadata": {"name": name, "namespace": "maps", "uid": uid, "ownerReferences": references}}


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
        (UIDS["set"], "set"),
    ],
)
def test_the_controller_at_the_top_is_the_job(run: Run, api: FakeApi, folder: Path, what: str, job: str) -> None:
    """A pod of a Deployment is explained by the Deployment; an id needs no kubectl."""
    api.answers["explain.JobWhy"] = [explain_pb2.JobWhyResponse(text="it waits for its pool")]
    result = run(f"why {what} -n maps")

    assert (0, "it waits for its pool\n") == (result.exit_code, result.stdout)
    [request] = api.requests("explain.JobWhy")
    assert UIDS[job] == request.jobId.value


def test_an_object_that_is_not_there_is_named(run: Run, folder: Path) -> None:
    """The error names the kinds that were tried, and how to name another one; flags are handed to kubectl."""
    result = run("why nothing --context kind-kind")

    assert 1 == result.exit_code
    assert "kubectl finds no pod/nothing and no job/nothing: name the kind, as in deployment/nothing" in result.stderr
    assert "get pod/nothing --output=json --context=kind-kind" == (folder / "asked").read_text().splitlines()[0]


def test_without_kubectl_an_id_is_wanted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that kubectl is missing."""
    monkeypatch.setenv("PATH", "")

    assert "kubectl is not on the PATH" in run("why train").stderr
