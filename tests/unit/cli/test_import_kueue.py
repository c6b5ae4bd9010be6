"""`peloton import kueue`: queues become pools, dry unless it is asked to create them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.kueue import translate
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

QUEUES = """
apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: Cohort
  metadata: {name: eng}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: Cohort
  metadata: {name: ml}
  spec:
    parentName: eng
    resourceGroups:
    - coveredResources: [cpu]
      flavors:
      - {name: default, resources: [{name: cpu, nominalQuota: 4}]}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ClusterQueue
  metadata: {name: train}
  spec:
    cohort: ml
    fairSharing: {weight: 2}
    resourceGroups:
    - coveredResources: [cpu, memory, nvidia.com/gpu]
      flavors:
      - name: spot
        resources:
        - {name: cpu, nominalQuota: 500m, borrowingLimit: 2}
        - {name: memory, nominalQuota: 4Gi}
        - {name: nvidia.com/gpu, nominalQuota: 8, lendingLimit: 0}
      - name: fixed
        resources:
        - {name: cpu, nominalQuota: 1500m, borrowingLimit: 0}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: ClusterQueue
  metadata: {name: alone}
  spec:
    queueingStrategy: StrictFIFO
    resourceGroups:
    - coveredResources: [cpu]
      flavors:
      - {name: default, resources: [{name: cpu, nominalQuota: "6"}]}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: LocalQueue
  metadata: {name: batch, namespace: team-a}
  spec: {clusterQueue: train}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: LocalQueue
  metadata: {name: train, namespace: team-b}
  spec: {clusterQueue: train}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: LocalQueue
  metadata: {name: rest, namespace: team-b}
  spec: {clusterQueue: alone}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ResourceFlavor
  metadata: {name: spot}
"""


def _pools(text: str) -> dict[str, Any]:
    return {one["spec"]["path"]: one["spec"] for one in yaml.safe_load_all(text)}


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    return file


def test_cohorts_are_pools_and_cluster_queues_their_leaves(run: Run, api: FakeApi, queues: Path) -> None:
    """Nominal quotas are reservations, borrowing limits add to them, and a cohort holds what is below it."""
    result = run(f"import kueue {queues}")
    pools = _pools(result.stdout)
    cpu = {path: {one["kind"]: one for one in spec["resources"]}["cpu"] for path, spec in pools.items()}

    assert (0, []) == (result.exit_code, api.calls)
    assert ["/eng", "/eng/ml", "/alone", "/eng/ml/train"] == [*pools]
    assert {"kind": "cpu", "reservation": 6, "limit": 6} == cpu["/eng"] == cpu["/eng/ml"] == cpu["/alone"]
    assert {"kind": "cpu", "reservation": 2, "limit": 4, "share": 2} == cpu["/eng/ml/train"]
    by_kind = {one["kind"]: one for one in pools["/eng/ml/train"]["resources"]}
    assert (4096, 4096) == (by_kind["memory"]["reservation"], by_kind["memory"]["limit"])
    assert "STATIC" == by_kind["gpu"]["type"]
    assert ["team-a"] == pools["/eng/ml/train"]["namespaces"]


def test_what_has_no_counterpart_is_noted(run: Run, queues: Path) -> None:
    """Flavors, strict queues, queues of several pools in a namespace, and other kinds each have a note."""
    said = run(f"import kueue {queues}").stderr

    assert "ClusterQueue train: quotas of the flavors spot, fixed are added" in said
    assert "ClusterQueue alone: StrictFIFO" in said
    assert "LocalQueue team-b/rest: set the label peloton.io/pool of its pods to the pool of alone" in said
    assert "team-b/train" not in said
    assert "ResourceFlavor spot: it is no Cohort, ClusterQueue or LocalQueue" in said


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ({"kind": "Foo", "metadata": {"name": "x"}}, "Foo x"),
        ({"kind": "Foo"}, "Foo"),
        ({"metadata": {"name": "x"}}, "x"),
        ({}, "an object without kind and name"),
    ],
)
def test_a_note_names_an_object_by_what_it_has(item: dict[str, Any], what: str) -> None:
    """An object without a kind or a name leaves no gap in its note."""
    assert [f"{what}: it is no Cohort, ClusterQueue or LocalQueue, and is left out"] == translate([item]).notes


def test_create_makes_the_pools_parents_first(run: Run, api: FakeApi, queues: Path) -> None:
    """The answer has what to do about namespaces."""
    api.answers["respools.LookupResourcePoolID"] = [respool_pb2.LookupResponse(id=ResourcePoolID(value="p"))]
    api.answers["respools.CreateResourcePool"] = [respool_pb2.CreateResponse(result=ResourcePoolID(value="new"))]

    result = run("import", "kueue", "-", "--create", text=queues.read_text())

    assert 0 == result.exit_code, result.output
    names = [request.config.name for request in api.requests("respools.CreateResourcePool")]
    assert ["eng", "ml", "alone", "train"] == names
    assert "kubectl annotate namespace team-a peloton.io/pool=/eng/ml/train" in result.stdout


WRONG = {
    "kind: [": "not YAML",
    "kind: Pod": "there is no Cohort and no ClusterQueue of Kueue in the input",
    QUEUES.replace("500m", "5x"): "ClusterQueue train: cpu: '5x' is no quantity",
    QUEUES.replace("metadata: {name: eng}", "metadata: {name: eng}\n  spec: {parentName: ml}"): "form a circle",
}


@pytest.mark.parametrize("content", WRONG)
def test_what_is_not_of_kueue_is_refused(run: Run, content: str) -> None:
    """The error names the object and the field."""
    result = run("import", "kueue", "-", text=content)

    assert 1 == result.exit_code
    assert WRONG[content] in result.stderr
