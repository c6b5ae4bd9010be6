"""deploy/kubernetes fits the code and docker-compose.yml. No cluster is needed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.serve import ROLE_NAMES
from services import role_settings
from services.hostmgr.kubernetes.permissions import PERMISSIONS
from services.settings import Settings
from tests.compose.file import read
from tests.kubernetes import chart

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
DOCUMENTS: list[Any] = [
    document
    for path in sorted(FOLDER.rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]


def _find_named(kind: str, name: str) -> Any:
    [found] = [one for one in DOCUMENTS if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


WORKLOADS = ("Deployment", "StatefulSet")


def _container(role: str) -> Any:
    [container] = _find_named("Deployment", role)["spec"]["template"]["spec"]["containers"]
    return container


def test_each_role_is_deployed_with_the_image_of_compose() -> None:
    """Every role of `peloton serve` has a deployment that runs it, of the same release."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    expected = {role: (compose["x-role"]["image"], role) for role in ROLE_NAMES}

    assert expected == {role: (_container(role)["image"], _container(role)["args"][-1]) for role in ROLE_NAMES}


def test_settings_are_settings() -> None:
    """The config map and the secret have settings that load, and all that a role must have."""
    given = _find_named("ConfigMap", "peloton")["data"] | _find_named("Secret", "peloton")["stringData"]

    assert role_settings.load_for(["hostmgr"], given).kubernetes
    assert {"PELOTON_DATABASE", "PELOTON_TEMPORAL", "PELOTON_CLUSTER", "PELOTON_KUBERNETES"} <= {*given}


def test_ports_are_those_of_the_settings() -> None:
    """A container listens on the ports of the config map."""
    settings = _find_named("ConfigMap", "peloton")["data"]
    listens = {role: _container(role)["ports"][0]["containerPort"] for role in (*ROLE_NAMES,) if role != "worker"}
    expected = {role: int(settings[f"PELOTON_{role.upper()}_PORT"]) for role in ("resmgr", "hostmgr")}

    assert {
        "api": Settings().port,
        "web": Settings().web_port,
        "aurorabridge": Settings().aurora_port,
        **expected,
    } == listens


def test_only_the_host_manager_has_a_token() -> None:
    """No other pod can call the apiserver."""
    specs = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in DOCUMENTS if one["kind"] in WORKLOADS}

    assert ["hostmgr"] == [name for name, spec in specs.items() if spec["automountServiceAccountToken"]]
    assert {role: role for role in ROLE_NAMES} == {
        name: spec["serviceAccountName"] for name, spec in specs.items() if "serviceAccountName" in spec
    }


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_a_role_runs_without_root_and_writes_to_tmp_alone(role: str) -> None:
    """The container has no capability and a root file system that it cannot write to."""
    pod = _find_named("Deployment", role)["spec"]["template"]["spec"]
    container = _container(role)

    assert (True, 10001) == (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"])
    assert {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    } == container["securityContext"]
    assert ["/tmp"] == [one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")]
    assert {"emptyDir"} == {*next(one for one in pod["volumes"] if one["name"] == "tmp")} - {"name"}


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_a_drain_takes_one_replica_of_a_role_at_a_time(role: str) -> None:
    """Each role has a disruption budget that selects its pods, and never blocks a drain of a single replica."""
    budget = _find_named("PodDisruptionBudget", role)["spec"]

    assert {"maxUnavailable": 1} == {key: value for key, value in budget.items() if key != "selector"}
    assert (
        budget["selector"]["matchLabels"] == _find_named("Deployment", role)["spec"]["template"]["metadata"]["labels"]
    )


@pytest.mark.parametrize("name", chart.FILES.values())
def test_files_are_rendered_from_the_chart_as_it_is(name: str) -> None:
    """A change of the chart without `make manifests` is found where there is no Helm."""
    first = (FOLDER / name).read_text(encoding="utf-8").splitlines()[0]

    assert chart.HEADER.format(chart.digest()).rstrip() == first, "the chart has changed: make manifests"


def test_the_chart_has_the_version_of_the_code() -> None:
    """The chart installs the image of its own version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    found = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert (version, version.replace(".dev", "-dev")) == (found["appVersion"], found["version"])


def test_the_schema_of_values_knows_each_value() -> None:
    """Helm refuses values that the schema does not name, at each level that has names of its own."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    known = {name: part for name, part in schema["properties"].items() if name != "global"}

    assert {*values} == {*known}
    for name, part in known.items():
        if "additionalProperties" in part and part["additionalProperties"] is False:
            assert {*values[name]} == {*part["properties"]}, name


def test_the_kustomization_has_all_files_but_the_trial() -> None:
    """`kubectl apply -k deploy` applies what `kubectl apply -f deploy/kubernetes` does."""
    found = yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text(encoding="utf-8"))

    assert [f"kubernetes/{path.name}" for path in sorted(FOLDER.glob("*.yaml"))] == found["resources"]


def test_the_trial_runs_temporal_as_compose_does() -> None:
    """The trial's images, schema and dynamic configuration are those of docker-compose.yml and deploy/temporal.yaml."""
    expected = yaml.safe_load((ROOT / "deploy/temporal.yaml").read_text(encoding="utf-8"))
    pods = [one["spec"]["template"]["spec"] for one in DOCUMENTS if one["kind"] in WORKLOADS]
    containers = [one for pod in pods for one in (*pod.get("initContainers", []), *pod["containers"])]
    [schema] = [one for one in containers if one["name"] == "schema"]
    services = read()

    assert expected == yaml.safe_load(_find_named("ConfigMap", "temporal")["data"]["peloton.yaml"])
    assert {one["image"] for one in containers} <= {service.image for service in services.values()}
    assert tuple(schema["command"]) == services["temporal-schema"].command


def test_no_advice_scales_the_database_of_a_trial() -> None:
    """Each `kubectl scale` of manifests and documents names deployments, all of them of roles."""
    texts = [path.read_text(encoding="utf-8") for path in (*FOLDER.rglob("*.yaml"), *(ROOT / "docs").rglob("*.md"))]
    scaled = [
        names.split() for text in texts for names in re.findall(r"kubectl.* scale deployment (.*?) *--repl", text)
    ]

    assert scaled != []
    assert set() == {name for names in scaled for name in names} - set(ROLE_NAMES)


def test_the_database_of_a_trial_is_one_pod() -> None:
    """The database has its data in its own pod: `scale deployment --all` does not reach it, and its service leads to
    the first pod only.
    """
    database = _find_named("StatefulSet", "postgres")

    assert {"name": "data", "emptyDir": {}} in database["spec"]["template"]["spec"]["volumes"]
    assert {"statefulset.kubernetes.io/pod-name": "postgres-0"} == _find_named("Service", "postgres")["spec"][
        "selector"
    ]


def test_the_chart_grants_the_permissions_of_the_table() -> None:
    """Each rule of the chart is in the table of permissions, and each permission in the chart."""
    granted = {
        (document["metadata"]["name"], document["kind"] == "Role", group, resource, verb)
        for document in DOCUMENTS
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    table = {(one.role, one.is_namespaced, one.group, one.resource, verb) for one in PERMISSIONS for verb in one.verbs}

    assert table == granted
