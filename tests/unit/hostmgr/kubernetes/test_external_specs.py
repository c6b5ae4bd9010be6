"""Requests of external pods, and external pods that Peloton does not place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.config_bounds import HOST_PREFERENCES_MAX
from peloton.api.convert_layout import layout
from peloton.api.v0.job import job_pb2
from peloton.lifecycle.constraints import HOSTNAME_LABEL, labels_from, score
from peloton.model.layout import Spread
from peloton.model.pod import AllOf, AnyOf, HostLabel, PodShape
from peloton.model.resources import Resources
from peloton.scheduling.fit import label_misfit
from services.hostmgr.kubernetes.external.external_specs import (
    GRACE_MAX_S,
    Refused,
    config_of,
    controller_of,
    owner_of_bare_pod,
    pool_named,
)
from services.hostmgr.kubernetes.external.gate import wants_launch
from services.hostmgr.kubernetes.nodes.nodes import TAINTS_LABEL, node_of
from services.hostmgr.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"


def a_pod(meta: Json | None = None, **spec: Any) -> Json:
    requests = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    metadata = {"name": "web-1", "namespace": "team", "uid": UID, **(meta or {})}
    return {"metadata": metadata, "spec": {"schedulerName": "peloton", "containers": [container], **spec}, "status": {}}


def config(pod: Json) -> job_pb2.JobConfig:
    return config_of(pod, controller_of(pod) or owner_of_bare_pod(pod), "k8s")


UNTAINTED = HostLabel("peloton/label-test/" + TAINTS_LABEL, "exists", "<")
SETTINGS = KubernetesSettings("x", taints_used=frozenset({"team", "old"}))


def a_node(labels: dict[str, str] | None = None, taints: list[Json] | None = None, name: str = "n-1") -> Json:
    return {"metadata": {"name": name, "uid": "u", "labels": labels or {}}, "spec": {"taints": taints or []}}


def is_taken(pod: Json, node: Json, is_known: bool = True) -> bool:
    """Return whether the node takes the pod by its labels and taints. The taints of a node that is not known were not
    there when the pod came."""
    read = node_of(node, SETTINGS)
    assert read is not None
    found = config_of(pod, owner_of_bare_pod(pod), "k8s", frozenset({read.taints} if is_known and read.taints else ()))
    constraint = convert.pod_shape(found.defaultConfig, found.sla).constraint
    labels = labels_from([*read.labels.items(), ("peloton/cluster", "k8s")])  # type: ignore[list-item]
    return not read.withdrawn and label_misfit(constraint, labels) is None


def shape_of(found: job_pb2.JobConfig) -> PodShape:
    return convert.pod_shape(found.defaultConfig, found.sla)


def affinity_to(term: Json) -> Json:
    return {"nodeAffinity": {_MUST: {"nodeSelectorTerms": [term]}}}


def test_requests_and_labels_become_a_configuration() -> None:
    """Equal pods of an owner share one configuration."""
    labels = {"peloton.io/gang-size": "4", "peloton.io/priority": "7", "peloton.io/preemptible": "false"}
    owner = {"controller": True, "kind": "Job", "name": "train", "uid": UID, "apiVersion": "batch/v1"}
    found = config(a_pod({"labels": labels, "ownerReferences": [owner]}))
    assert ("Job team/train", "team", job_pb2.EXTERNAL) == (found.name, found.owningTeam, found.type)
    assert (4, 7, False) == (found.sla.minimumRunningInstances, found.sla.priority, found.sla.preemptible)
    shape = convert.pod_shape(found.defaultConfig, found.sla)
    assert Resources.of(1.5, 1024, 0, 2) == shape.resources
    assert AllOf((HostLabel("peloton/cluster", "k8s"), UNTAINTED)) == shape.constraint
    assert found == config(a_pod({"name": "web-2", "labels": labels, "ownerReferences": [owner]}))


def test_sidecars_and_what_a_pod_asks_for_as_a_whole_count() -> None:
    """The total is that of kube-scheduler: the pool must have all of it."""
    requests = {"requests": {"cpu": "500m", "memory": "1Mi", "example.com/fpga": "2"}}
    sidecar = {"name": "proxy", "image": "proxy", "restartPolicy": "Always", "resources": requests}
    whole = {"requests": {"memory": "3Gi"}}
    found = config(a_pod(initContainers=[sidecar], resources=whole, overhead={"cpu": "250m"}))
    expected = replace(Resources.of(2.25, 3 * 1024, 0, 2), extended=(("example.com/fpga", 2),))
    assert expected == convert.pod_shape(found.defaultConfig, found.sla).resources


def test_node_selectors_and_affinities_become_constraints() -> None:
    """Terms are alternatives, and all expressions of a term must hold."""
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {
            "matchExpressions": [
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "old", "operator": "NotIn", "values": ["yes"]},
            ]
        },
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = a_pod(nodeSelector={"kind": "gpu"}, affinity={"nodeAffinity": required})
    zones = AnyOf((HostLabel("zone", "a"), HostLabel("zone", "b")))
    both = AllOf((HostLabel("disk", "ssd"), HostLabel("old", "yes", "<")))
    cluster, kind = HostLabel("peloton/cluster", "k8s"), HostLabel("kind", "gpu")
    found = config(pod)
    assert AllOf((cluster, kind, AnyOf((zones, both)), UNTAINTED)) == shape_of(found).constraint


@pytest.mark.parametrize(
    ("operator", "values", "takes", "refuses"),
    [
        ("In", ["5", "6"], ["5", "6"], ["7", "", None]),
        ("NotIn", ["5"], ["6", "", None], ["5"]),
        ("Exists", [], ["5", ""], [None]),
        ("DoesNotExist", [], [None], ["5", ""]),
        ("Gt", ["5"], ["6", "10"], ["5", "-7", "six", "", None]),
        ("Lt", ["5"], ["4", "-7"], ["5", "10", "six", "1.5", None]),
    ],
)
def test_each_operator_of_a_node_affinity(
    operator: str, values: list[str], takes: list[str | None], refuses: list[str | None]
) -> None:
    """The tables are those of Kubernetes: a label that is absent is not in, and neither above nor below."""
    pod = a_pod(affinity=affinity_to({"matchExpressions": [{"key": "gen", "operator": operator, "values": values}]}))
    found = {value: is_taken(pod, a_node({} if value is None else {"gen": value})) for value in (*takes, *refuses)}
    assert {value: value in takes for value in (*takes, *refuses)} == found


@pytest.mark.parametrize(("operator", "is_same"), [("In", True), ("NotIn", False)])
def test_a_node_is_chosen_by_its_name(operator: str, is_same: bool) -> None:
    """The field of a term is the name of the node."""
    field = {"key": "metadata.name", "operator": operator, "values": ["n-1"]}
    pod = a_pod(affinity=affinity_to({"matchFields": [field]}))
    assert (is_same, not is_same) == (is_taken(pod, a_node()), is_taken(pod, a_node(name="n-2")))


@pytest.mark.parametrize(
    ("tolerations", "taken"),
    [
        ([], {"free", "preferred"}),
        ([{"key": "team", "value": "a"}], {"free", "preferred", "a"}),
        ([{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}], {"free", "preferred", "a"}),
        ([{"key": "team", "value": "a", "effect": "NoExecute"}], {"free", "preferred"}),
        ([{"key": "team", "operator": "Exists"}], {"free", "preferred", "a", "b"}),
        ([{"key": "team", "operator": "Gt", "value": "a"}], {"free", "preferred"}),
        ([{"operator": "Exists", "effect": "NoSchedule"}], {"free", "preferred", "a"}),
        ([{"operator": "Exists"}], {"free", "preferred", "a", "b", "two"}),
        (
            [{"key": "team", "operator": "Exists"}, {"key": "old", "operator": "Exists"}],
            {"free", "preferred", "a", "b", "two"},
        ),
    ],
)
def test_a_pod_goes_to_nodes_whose_taints_it_tolerates(tolerations: list[Json], taken: set[str]) -> None:
    """Key, operator, value and effect decide; all taints of a node must be tolerated, but for soft ones."""
    a, b = {"key": "team", "value": "a", "effect": "NoSchedule"}, {"key": "team", "value": "b", "effect": "NoExecute"}
    taints = {
        "free": [],
        "preferred": [{**b, "effect": "PreferNoSchedule"}],
        "a": [a],
        "b": [b],
        "two": [b, {"key": "old", "effect": "NoExecute"}],
    }
    assert taken == {
        name for name, own in taints.items() if is_taken(a_pod(tolerations=tolerations), a_node(None, own))
    }


def test_a_pod_stays_off_a_node_that_is_tainted_later() -> None:
    """The constraint of a waiting pod holds for nodes that come after it."""
    dedicated = a_node(None, [{"key": "peloton.io/dedicated", "effect": "NoExecute"}])
    assert not is_taken(a_pod(), dedicated, is_known=False)
    assert is_taken(a_pod(tolerations=[{"key": "peloton.io/dedicated", "operator": "Exists"}]), dedicated)


def rate(pod: Json, *nodes: Json) -> list[int]:
    """Return the score of each node for the pod."""
    read = [node_of(node, SETTINGS) for node in nodes]
    taints = {each for one in read if one is not None for each in (one.taints, one.soft_taints) if each}
    shape = shape_of(config_of(pod, owner_of_bare_pod(pod), "k8s", taints))
    return [score(shape.preferences, one.labels) for one in read if one is not None]


def wish(weight: int, *expressions: Json, **more: Any) -> Json:
    return {"weight": weight, "preference": {"matchExpressions": list(expressions), **more}}


def prefer(*terms: Json) -> Json:
    return {"nodeAffinity": {_MAY: list(terms)}}


def test_a_preferred_node_affinity_is_a_sum_of_weights() -> None:
    """A node scores the weight of each term of which it meets all expressions, as in Kubernetes."""
    in_a = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    is_old = {"key": "old", "operator": "Exists"}
    is_new = {"key": "gen", "operator": "Gt", "values": ["5"]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-7"]}]}
    pod = a_pod(affinity=prefer(wish(10, in_a, is_old), wish(100, is_new), wish(1, **by_name)))

    nodes = [
        a_node({"zone": "b", "old": ""}),
        a_node({"zone": "b"}),
        a_node({"zone": "a", "old": "x", "gen": "6"}),
        a_node(name="n-7"),
    ]
    assert [10, 0, 110, 1] == rate(pod, *nodes)


def test_terms_that_say_nothing_and_the_lightest_beyond_the_bound_are_left_out() -> None:
    """A term that is empty or unknown counts for no node; of too many the heaviest count."""
    known = {"key": "zone", "operator": "Exists"}
    unknown = wish(100, known, matchFields=[{"key": "metadata.uid", "operator": "In", "values": ["u"]}])
    many = [wish(weight, known) for weight in range(1, HOST_PREFERENCES_MAX + 3)]

    assert [0] == rate(a_pod(affinity=prefer(wish(100), unknown)), a_node({"zone": "a"}))
    assert [sum(range(3, HOST_PREFERENCES_MAX + 3))] == rate(a_pod(affinity=prefer(*many)), a_node({"zone": "a"}))


@pytest.mark.parametrize(
    ("tolerations", "scores"),
    [
        ([], [100, 0, 0, 100]),
        ([{"key": "slow", "operator": "Exists"}], [100, 100, 0, 100]),
        ([{"key": "slow", "operator": "Exists", "effect": "NoSchedule"}], [100, 0, 0, 100]),
        ([{"operator": "Exists"}], [0, 0, 0, 0]),
    ],
)
def test_soft_taints_are_avoided(tolerations: list[Json], scores: list[int]) -> None:
    """A pod prefers nodes without soft taints that it does not tolerate, and may go to the others."""
    slow, far = ({"key": key, "effect": "PreferNoSchedule"} for key in ("slow", "far"))
    hard = {"key": "team", "effect": "NoSchedule"}
    nodes = [a_node(None, taints) for taints in ([], [slow], [slow, far], [hard])]
    pod = a_pod(tolerations=tolerations)

    assert scores == rate(pod, *nodes)
    assert is_taken(pod, nodes[1])


@pytest.mark.parametrize(("kind", "is_spread"), [("StatefulSet", True), ("Deployment", True), ("Job", False)])
def test_replicas_are_spread_over_nodes(kind: str, is_spread: bool) -> None:
    """Replicas share a node only where no other has free resources; pods of a Job are packed."""
    owner = {"controller": True, "kind": kind, "name": "web", "uid": UID, "apiVersion": "apps/v1"}
    found = layout(config(a_pod({"ownerReferences": [owner]})).placement)
    assert ((Spread(HOSTNAME_LABEL, 1, is_hard=False),) if is_spread else None) == (found and found.spread)


_MUST = "requiredDuringSchedulingIgnoredDuringExecution"
_MAY = "preferredDuringSchedulingIgnoredDuringExecution"
REFUSED: dict[str, tuple[Json, str]] = {
    "anti-affinity": ({"affinity": {"podAntiAffinity": {_MUST: [{}]}}}, "podAntiAffinity"),
    "spread": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topologySpreadConstraints"),
    "claims": ({"resourceClaims": [{"name": "tpu"}]}, "resourceClaims"),
    "volume": ({"volumes": [{"name": "data", "persistentVolumeClaim": {}}]}, "volume data"),
    "host port": ({"containers": [{"name": "m", "ports": [{"hostPort": 80}]}]}, "host ports"),
    "resource": ({"containers": [{"name": "m", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}}]}, "hugepages-2Mi"),
    "resource of the pod": ({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}, "hugepages-2Mi"),
    "overhead": ({"overhead": {"kubernetes.io/x": "1"}}, "kubernetes.io/x"),
    "operator": (
        {
            "affinity": {
                "nodeAffinity": {
                    _MUST: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gen", "operator": "Like"}]}]}
                }
            }
        },
        "operator Like",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_we_do_not_understand_is_refused(case: str) -> None:
    """An unsupported field is named, with the way that takes it."""
    spec, said = REFUSED[case]
    with pytest.raises(Refused, match=f"{said}.*; admission by gate takes it: see docs/kubernetes/gate.md"):
        config(a_pod(**spec))


@pytest.mark.parametrize("label", ["peloton.io/gang-size", "peloton.io/priority", "peloton.io/preemptible"])
def test_a_label_that_cannot_be_meant_is_refused(label: str) -> None:
    """The error has the expected form of the label."""
    with pytest.raises(Refused, match="want"):
        config(a_pod({"labels": {label: "many"}}))


def test_what_is_only_preferred_is_passed_over() -> None:
    """Preferences for other pods, and a soft spread, change nothing."""
    affinity: dict[str, Any] = {"podAffinity": {_MAY: [{}]}, "podAntiAffinity": {_MAY: [{}]}}
    spread = [{"whenUnsatisfiable": "ScheduleAnyway"}]
    assert config(a_pod()) == config(a_pod(affinity=affinity, topologySpreadConstraints=spread))


def test_pods_that_are_bound_gated_leaving_or_over_do_not_want_a_host() -> None:
    """Every other pod waits for a host."""
    assert wants_launch(a_pod())
    over = a_pod()
    over["status"]["phase"] = "Failed"
    others = [a_pod(nodeName="n"), a_pod(schedulingGates=[{"name": "g"}]), a_pod({"deletionTimestamp": "now"}), over]
    assert [] == [pod for pod in others if wants_launch(pod)]


def test_the_annotation_of_a_pool_comes_before_its_label() -> None:
    """A label cannot have the slashes of a path."""
    labels, annotations = {"peloton.io/pool": "team.dev"}, {"peloton.io/pool": "/team/dev"}
    assert "team.dev" == pool_named(a_pod({"labels": labels}))
    assert "/team/dev" == pool_named(a_pod({"labels": labels, "annotations": annotations}))
    assert "" == pool_named(a_pod())


@pytest.mark.parametrize(
    ("meta", "spec", "why"),
    [
        ({"annotations": {"peloton.io/priority": "9" * 5_000}}, {}, "want a number from 0 to"),
        ({}, {"overhead": {"cpu": "9E"}}, "asks for 9000000000000000001500m of cpu, more than"),
        ({}, {"overhead": {"memory": "7E"}}, "asks for 6675720215868Mi of memory, more than"),
    ],
    ids=["priority", "cpu", "memory"],
)
def test_numbers_beyond_all_bounds_are_refused(meta: Json, spec: Json, why: str) -> None:
    """A wrong number of one pod must not stop the intake of the others."""
    with pytest.raises(Refused, match=why):
        config(a_pod(meta, **spec))


def test_a_grace_that_no_configuration_holds_is_cut() -> None:
    """The configuration has the longest grace that it can hold; an eviction uses the pod's own."""
    graces = [config(a_pod(terminationGracePeriodSeconds=value)).defaultConfig for value in (10**12, -1)]
    assert [GRACE_MAX_S, 0] == [each.killGracePeriodSeconds for each in graces]
