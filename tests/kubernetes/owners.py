"""Owners of other projects on a real control plane: their schemas, the real controller of JobSets with its webhooks,
and a stand-in for the other controllers."""

from __future__ import annotations

import base64
import http.client
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind
from services.lab.local.ports import PortReservations
from tests.kubernetes import build, owner_parts
from tests.kubernetes.client import Client, Json
from tests.kubernetes.control_plane import CERTIFICATES, PEM, ControlPlane, die_with_parent
from tests.kubernetes.fixtures import running_control_plane
from tests.kubernetes.owner_controller import OwnerController

CONTROLLED = ("Job", "JobSet")
"""Kinds whose real controllers run in the tests."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS_KEPT = ("mjobset.kb.io", "vjobset.kb.io")
"""Webhooks of JobSets. Those of pods concern placements of one job per topology domain, which no test has."""
READY_TIMEOUT_S = 60.0
_POLL_S = 0.1


@contextmanager
def running_owners(**options: Any) -> Iterator[ControlPlane]:
    """Run a separate control plane with controllers of all kinds of owners. Skips the test where it cannot."""
    if why := owner_parts.lacking():
        pytest.skip(why)
    with running_control_plane(**options) as plane, Client(plane.login) as client:
        apply_schemas(client)
        others = [kind for kind in KINDS if kind.kind not in CONTROLLED]
        with running_job_sets(plane, client), OwnerController(plane.login, others):
            yield plane


def apply_schemas(client: Client) -> None:
    """Apply the schemas of all kinds but Job, and of the runtimes of TrainJobs, and wait until they are served."""
    plurals = sorted({kind.plural for kind in KINDS if kind.group != "batch"})
    for name in (*plurals, "clustertrainingruntimes"):
        for schema in owner_parts.read_objects(name):
            if name == "mpijobs":
                schema["spec"]["versions"] += _older_versions("mpijobs-v2beta1")
            reply = client.ask("POST", CRDS, schema)
            assert reply.status == http.client.CREATED, reply.body
    for kind in KINDS:
        await_served(client, kind)


def apply_schema(client: Client, kind: OwnerKind) -> None:
    """Apply the schema of a further kind, and wait until it is served."""
    [schema] = owner_parts.read_objects(kind.plural)
    reply = client.ask("POST", CRDS, schema)
    assert reply.status == http.client.CREATED, reply.body
    await_served(client, kind)


def _older_versions(name: str) -> list[Json]:
    """Return the versions of another schema of the same objects, as those that are not stored: a cluster has one of the
    two projects, and the tests have both."""
    [schema] = owner_parts.read_objects(name)
    return [{**version, "storage": False} for version in schema["spec"]["versions"]]


def await_served(client: Client, kind: OwnerKind) -> None:
    path = f"/apis/{kind.api_version}/{kind.plural}"
    until_s = time.monotonic() + READY_TIMEOUT_S
    while client.ask("GET", path).status != http.client.OK:
        assert time.monotonic() < until_s, f"{path} is not served"
        time.sleep(_POLL_S)


@contextmanager
def running_job_sets(plane: ControlPlane, client: Client) -> Iterator[subprocess.Popen[bytes]]:
    """Run the controller of JobSets, whose webhooks the apiserver asks."""
    folder = plane.folder / "jobset"
    folder.mkdir()
    with closing(PortReservations()) as ports:
        webhooks, health = ports.take_any(2)
        config = _write_config(folder, webhooks, health)
        with (folder / "jobset.log").open("ab") as log:
            process = subprocess.Popen(
                [build.program(build.JOBSET), f"--config={config}", "--metrics-bind-address=0"],
                cwd=folder,
                env={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        try:
            _await_ready(process, health, folder / "jobset.log")
            for body in _webhooks(webhooks):
                path = f"/apis/admissionregistration.k8s.io/v1/{body['kind'].lower()}s"
                reply = client.ask("POST", path, body)
                assert reply.status == http.client.CREATED, reply.body
            yield process
        finally:
            process.kill()
            process.wait()


def _write_config(folder: Path, webhooks: int, health: int) -> Path:
    pair = PEM.read_bytes()
    for name in ("tls.crt", "tls.key"):  # the file has both, and each reader finds its part
        (folder / name).write_bytes(pair)
        (folder / name).chmod(0o600)
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _webhooks(port: int) -> list[Json]:
    authority = base64.b64encode((CERTIFICATES / "ca.pem").read_bytes()).decode()
    found = owner_parts.read_objects("jobset-webhooks")
    for configuration in found:
        configuration["metadata"]["name"] = f"jobset-{configuration['metadata']['name']}"
        configuration["webhooks"] = [one for one in configuration["webhooks"] if one["name"] in WEBHOOKS_KEPT]
        for one in configuration["webhooks"]:
            path = one["clientConfig"]["service"]["path"]
            one["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return found


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until_s = time.monotonic() + READY_TIMEOUT_S
    while not _is_ready(port):
        said = log.read_text(errors="replace")[-2_000:]
        assert process.poll() is None, f"the controller of JobSets ended at once:\n{said}"
        assert time.monotonic() < until_s, f"the controller of JobSets is not ready:\n{said}"
        time.sleep(_POLL_S)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
