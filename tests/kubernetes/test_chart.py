"""Helm and kubectl render the files of deploy/kubernetes, and a real apiserver accepts all forms of the chart."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from services import role_settings
from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS as KNOWN
from services.hostmgr.kubernetes.suspend.owner_kinds import Need
from tests.kubernetes import build, chart
from tests.kubernetes.client import Client, Login
from tests.kubernetes.deployment import must_apply
from tests.kubernetes.fixtures import REAL_KUBERNETES, running_control_plane
from tests.nightly import NIGHTLY
from tests.unit.owner_examples import example_of_the_page

KUBECTL = shutil.which("kubectl")
HAS_HELM = pytest.mark.skipif(not build.is_built(build.HELM), reason="no Helm is built: make kubernetes")
OWN = ["--set", "database.existingSecret=database", "--set", "temporal.address=temporal.example.com:7233"]
TLS = [*OWN, "--set", "tls.enabled=true"]
METRICS = [*OWN, "--set", "metrics.enabled=true", "--set", "metrics.podMonitor=true"]
SMALL = [
    *OWN,
    "--set",
    "roles.web.replicas=0,roles.aurorabridge.replicas=0,externalPods.enabled=false,resourcePools.enabled=false",
]
SMALL += ["--set", "networkPolicies.enabled=false,pods.createNamespace=false,settings.PELOTON_LOG_LEVEL=DEBUG"]
KINDS = yaml.safe_load(example_of_the_page())["kinds"]
OWNERS = [*OWN, "--set-json", f"externalPods.ownerKinds={json.dumps(KINDS)}"]
FORMS = {
    "own": OWN,
    "owners": OWNERS,
    "tls": TLS,
    "metrics": METRICS,
    "small": SMALL,
    "trial": ["--set", "trial.enabled=true"],
}
Json = dict[str, Any]


def _documents(*arguments: str) -> list[Json]:
    return [one for one in yaml.safe_load_all(chart.template(*arguments)) if one]


def _find(documents: list[Json], kind: str, name: str) -> Any:
    [found] = [one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


@HAS_HELM
def test_files_are_what_helm_renders() -> None:
    """The files of deploy/kubernetes are byte for byte those of `helm template` with the values of rendered.yaml."""
    rendered = chart.render()

    assert {name: (chart.RENDERED / name).read_text(encoding="utf-8") for name in rendered} == rendered


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on the PATH")
def test_the_kustomization_builds_the_same_objects() -> None:
    """`kubectl kustomize deploy` keeps each object as its file has it."""
    done = subprocess.run(
        [str(KUBECTL), "kustomize", "deploy"], cwd=chart.ROOT, capture_output=True, text=True, check=True
    )
    paths = sorted(chart.RENDERED.glob("*.yaml"))
    expected = [one for path in paths for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))]

    def by_name(documents: list[Json]) -> list[tuple[str, str, str, Json]]:
        keyed = [(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"], one) for one in documents]
        return sorted(keyed, key=lambda item: item[:3])

    assert by_name(expected) == by_name([*yaml.safe_load_all(done.stdout)])


@HAS_HELM
def test_lint_is_silent() -> None:
    """`helm lint --strict` finds nothing to warn of."""
    done = chart.helm("lint", "--strict", chart.CHART, "--values", chart.VALUES)

    assert 0 == done.returncode, done.stdout


@HAS_HELM
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "no database: set database.url"),
        (OWN[:2], "no Temporal: set temporal.address=HOST:7233"),
        ([*OWN, "--set", "trial.enabled=true"], "leave out database.url"),
        ([*OWN, "--set", "database.url=postgresql+psycopg://x"], "/database"),
        (["--set", "database.url=mysql://x"], "/database/url"),
        ([*OWN, "--set", "roles.resmgr.replicas=0"], "/roles/resmgr/replicas"),
        ([*OWN, "--set", "roles.hostmanager.replicas=1"], "additional properties 'hostmanager' not allowed"),
        ([*OWN, "--set", "externalPods.ownerKinds[0].kind=Other"], "missing properties"),
        ([*TLS, "--set", "metrics.podMonitor=true"], "metrics.podMonitor knows no certificates"),
    ],
)
def test_wrong_values_are_refused_by_name(values: list[str], said: str) -> None:
    """The error of Helm names the value, and what to set."""
    done = chart.helm("template", "peloton", chart.CHART, *values)

    assert 0 != done.returncode
    assert said in done.stderr


@HAS_HELM
def test_settings_of_every_form_load() -> None:
    """The config map has settings that the roles accept, also with TLS and metrics."""
    for form in FORMS.values():
        given = _find(_documents(*form), "ConfigMap", "peloton")["data"]
        for role in ("api", "worker", "resmgr", "hostmgr"):
            assert role_settings.load_for([role], {**given, "PELOTON_DATABASE": "postgresql+psycopg://x"}).kubernetes


@HAS_HELM
def test_further_kinds_of_owners_are_mounted_and_permitted(tmp_path: Path) -> None:
    """The host manager reads the file of the config map, whose kinds it may watch and patch; without kinds, or without
    external pods, there is none of it."""
    documents = _documents(*OWNERS)
    pod = _find(documents, "Deployment", "hostmgr")["spec"]["template"]
    [container] = pod["spec"]["containers"]
    [path] = [one["value"] for one in container["env"] if one["name"] == "PELOTON_KUBERNETES_OWNER_KINDS"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "owner-kinds"]
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "owner-kinds"]
    data = _find(documents, "ConfigMap", volume["configMap"]["name"])["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    [kind] = read_kinds(str(tmp_path / PurePosixPath(path).relative_to(mount["mountPath"])))[len(KNOWN) :]
    rules = _find(documents, "ClusterRole", "peloton-held-owners")["rules"]

    assert (KINDS[0]["kind"], KINDS[0]["plural"]) == (kind.kind, kind.plural)
    assert kind.needs == (Need("spec.runPolicy.managedBy", (None, "kubeflow.org/training-operator")),)
    for resource, verbs in ((kind.plural, ["get", "list", "watch", "patch"]), (f"{kind.plural}/status", ["patch"])):
        assert {"apiGroups": [kind.group], "resources": [resource], "verbs": verbs} in rules
    changed = _documents(*OWNERS, "--set", "externalPods.ownerKinds[0].version=v2")
    assert (
        pod["metadata"]["annotations"]
        != _find(changed, "Deployment", "hostmgr")["spec"]["template"]["metadata"]["annotations"]
    )
    for form in (OWN, [*OWNERS, "--set", "externalPods.enabled=false"]):
        assert "owner-kinds" not in chart.template(*form)


@HAS_HELM
def test_with_tls_each_role_has_its_certificate() -> None:
    """The Secret of a role must be there, all of its settings are, and kubelet probes the pages without HTTP."""
    documents = _documents(*TLS)
    for role in ("api", "worker", "resmgr", "hostmgr", "web", "aurorabridge"):
        pod = _find(documents, "Deployment", role)["spec"]["template"]["spec"]
        assert {"secretName": f"peloton-tls-{role}", "optional": False} == pod["volumes"][0]["secret"]
    web = _find(documents, "Deployment", "web")["spec"]["template"]["spec"]["containers"][0]

    assert {"port": "http"} == web["readinessProbe"]["tcpSocket"]
    assert {
        "PELOTON_TLS_CA_FILE": "/etc/peloton/tls/ca.crt",
        "PELOTON_TLS_CERT_FILE": "/etc/peloton/tls/tls.crt",
        "PELOTON_TLS_KEY_FILE": "/etc/peloton/tls/tls.key",
        "PELOTON_TLS_SERVER_NAME": "peloton",
    } == {one["name"]: one["value"] for one in web["env"] if one["name"].startswith("PELOTON_TLS")}


@HAS_HELM
def test_prometheus_finds_the_port_of_metrics() -> None:
    """The PodMonitor selects pods of all roles, which have a port of the name that it scrapes."""
    documents = _documents(*METRICS)
    monitor = _find(documents, "PodMonitor", "peloton")["spec"]
    pods = [one["spec"]["template"] for one in documents if one["kind"] == "Deployment"]

    assert ["metrics"] == [one["port"] for one in monitor["podMetricsEndpoints"]]
    for pod in pods:
        assert pod["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()
        assert "metrics" in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]


@pytest.fixture(scope="module")
def client(kubernetes_login: Login) -> Iterator[Client]:
    with Client(kubernetes_login) as client:
        for name in ("peloton-system", "peloton"):
            must_apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield client


@HAS_HELM
@REAL_KUBERNETES
@pytest.mark.parametrize("form", FORMS)
def test_an_apiserver_takes_each_form(client: Client, form: str) -> None:
    """Server-side apply with strict validation accepts each object; the operator's kind is not in this cluster."""
    for document in _documents(*FORMS[form]):
        if document["kind"] != "PodMonitor":
            must_apply(client, document, dry_run=True)


@HAS_HELM
@NIGHTLY
def test_helm_installs_upgrades_and_uninstalls() -> None:
    """The objects of a release are there, an upgrade changes a setting, and the namespace of the pods outlives it."""
    with running_control_plane() as plane, Client(plane.login) as client:
        release = ["--kubeconfig", plane.kubeconfig, "--namespace", "release-system"]
        values = [*SMALL, "--set", "pods.createNamespace=true,pods.namespace=release-pods"]
        installed = chart.helm("install", "peloton", chart.CHART, *release, "--create-namespace", *values)
        assert 0 == installed.returncode, installed.stderr
        assert "peloton host query" in installed.stdout
        upgraded = chart.helm("upgrade", "peloton", chart.CHART, *release, *values, "--set", "nodes.selector=a=b")
        assert 0 == upgraded.returncode, upgraded.stderr
        settings = client.ask("GET", "/api/v1/namespaces/release-system/configmaps/peloton").json()["data"]
        assert "a=b" == settings["PELOTON_KUBERNETES_NODE_SELECTOR"]
        removed = chart.helm("uninstall", "peloton", *release)
        assert 0 == removed.returncode, removed.stderr

        assert 200 == client.ask("GET", "/api/v1/namespaces/release-pods").status
        assert 404 == client.ask("GET", "/apis/apps/v1/namespaces/release-system/deployments/api").status
