"""Gated pods: which wait, which are admitted and as what, and the patch that admits them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from peloton.api import convert
from peloton.model.ids import JobId, PodId
from peloton.model.pod import AllOf, AnyOf, HostLabel
from services.hostmgr.kubernetes.apiserver.wire import STRATEGIC_PATCH
from services.hostmgr.kubernetes.external.external_specs import config_of, owner_of_bare_pod, pool_of_pod
from services.hostmgr.kubernetes.external.gate import (
    ADMITTED_AT,
    FITS_ON,
    GATE,
    admission_request,
    is_by_gate,
    node_of_fit,
    run_of,
    wants_launch,
)
from services.hostmgr.kubernetes.external.namespaces import ADMISSION_TIMEOUT, read_terms
from services.hostmgr.kubernetes.external.pod_groups import PLUGINS_LABEL, VOLCANO_ANNOTATION, group_of, size_of
from services.hostmgr.kubernetes.external.put_back import (
    JobKey,
    Way,
    find_overdue,
    jobs_to_suspend,
    sort_overdue,
    way_back,
)
from services.hostmgr.kubernetes.nodes.nodes import TAINTS_LABEL, Taint, node_of
from services.hostmgr.kubernetes.pods.launches import RUN, demand_of
from services.hostmgr.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
RUN_1 = PodId(JobId("5d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa"), 0, 1)
MUST = "requiredDuringSchedulingIgnoredDuringExecution"
OTHER_GATE = "other.example/gate"
ADMITTED_S = 1_800_000_000.0
ADMITTED_TEXT = "2027-01-15T08:00:00Z"


def a_pod(*gates: str, meta: Json | None = None, owner: str = "", **spec: Any) -> Json:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": "web-1", "namespace": "team", "uid": UID, **(meta or {})}
    if owner:
        api = {"Job": "batch/v1", "Workflow": "argoproj.io/v1alpha1"}.get(owner, "apps/v1")
        reference = {"controller": True, "kind": owner, "name": "web", "uid": "u", "apiVersion": api}
        metadata["ownerReferences"] = [reference]
    own = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **own, **spec},
        "status": {"phase": "Pending"},
    }


def an_admitted(uid: str = UID, **more: Any) -> Json:
    """Return a pod that was admitted, and that no scheduler has bound."""
    notes = {RUN: str(RUN_1), FITS_ON: "n-1", ADMITTED_AT: ADMITTED_TEXT}
    return a_pod(meta={"uid": uid, "annotations": notes, **more.pop("meta", {})}, **more)


def test_a_pod_waits_while_it_has_our_gate_alone() -> None:
    """Other people's gates hold it as well: until they are gone it takes no place in the queue."""
    assert wants_launch(a_pod(GATE))
    others = [
        a_pod(GATE, OTHER_GATE),
        a_pod(GATE, schedulerName="peloton"),
        a_pod(GATE, meta={"deletionTimestamp": "now"}),
        an_admitted(),
        an_admitted(nodeName="n"),
    ]
    assert [] == [pod for pod in others if wants_launch(pod)]


def test_the_pod_itself_shows_its_admission() -> None:
    """The annotation of the run counts only without the gate, so that a user who sets it has not passed the gate."""
    assert ("", str(RUN_1), str(RUN_1)) == (
        run_of(a_pod(GATE, meta={"annotations": {RUN: str(RUN_1)}})),
        run_of(an_admitted()),
        run_of(an_admitted(nodeName="n-2")),
    )
    assert ("n-1", "") == (node_of_fit(an_admitted()), node_of_fit(an_admitted(nodeName="n-2")))
    assert (True, True, False) == (is_by_gate(a_pod(GATE)), is_by_gate(an_admitted()), is_by_gate(a_pod()))


def test_the_patch_removes_our_gate_alone() -> None:
    """The uid is its precondition, so that a pod of the same name that came later is not admitted."""
    request = admission_request(a_pod(GATE, OTHER_GATE), RUN_1, "n-1")
    body = orjson.loads(request.body)
    assert ("PATCH", "/api/v1/namespaces/team/pods/web-1", STRATEGIC_PATCH) == (
        request.method,
        request.path,
        request.content_type,
    )
    assert {"schedulingGates": [{"$patch": "delete", "name": GATE}]} == body["spec"]
    assert (UID, str(RUN_1), "n-1") == (
        body["metadata"]["uid"],
        body["metadata"]["annotations"][RUN],
        body["metadata"]["annotations"][FITS_ON],
    )


def test_what_peloton_does_not_know_is_left_to_the_scheduler() -> None:
    """The fit test has the supported parts: it allows more nodes than the pod, and never fewer."""
    within = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    newer = {"key": "gen", "operator": "Like", "values": ["3"]}
    affinity = {
        "podAntiAffinity": {MUST: [{"topologyKey": "kubernetes.io/hostname"}]},
        "nodeAffinity": {MUST: {"nodeSelectorTerms": [{"matchExpressions": [within, newer]}]}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spread = [{"whenUnsatisfiable": "DoNotSchedule"}]
    pod = a_pod(
        GATE, affinity=affinity, volumes=volumes, topologySpreadConstraints=spread, resourceClaims=[{"name": "tpu"}]
    )
    found = config_of(pod, owner_of_bare_pod(pod), "k8s")
    constraint = convert.pod_shape(found.defaultConfig, found.sla).constraint
    zones = AnyOf((HostLabel("zone", "a"), HostLabel("zone", "b")))
    assert AllOf((HostLabel("peloton/cluster", "k8s"), zones)) == constraint


def test_an_alternative_that_peloton_does_not_know_allows_every_node() -> None:
    """Any node may satisfy the unknown one of two terms."""
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchExpressions": [{"key": "gen", "operator": "Like"}]},
    ]
    pod = a_pod(GATE, affinity={"nodeAffinity": {MUST: {"nodeSelectorTerms": terms}}})
    found = config_of(pod, owner_of_bare_pod(pod), "k8s")
    assert AllOf((HostLabel("peloton/cluster", "k8s"),)) == convert.pod_shape(found.defaultConfig, found.sla).constraint


def test_preferences_of_a_gated_pod_are_left_to_its_scheduler() -> None:
    """The fit test of a gated pod has neither its preferred affinity nor the soft taints of nodes."""
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod, soft = a_pod(GATE, affinity=affinity), Taint("slow", "", "PreferNoSchedule")
    owner = owner_of_bare_pod(pod)
    assert config_of(a_pod(GATE), owner, "k8s") == config_of(pod, owner, "k8s", [(soft,)])


def test_only_the_label_of_a_gated_pod_names_its_pool() -> None:
    """The policy protects the label, while anyone may set an annotation."""
    meta = {"labels": {"peloton.io/pool": "team.dev"}, "annotations": {"peloton.io/pool": "/others"}}
    assert ("team.dev", "/others") == (pool_of_pod(a_pod(GATE, meta=meta)), pool_of_pod(a_pod(meta=meta)))


def test_an_admitted_pod_counts_for_its_pool() -> None:
    """Pods of other schedulers reduce what pools share; an admitted one is in the allocation of its pool instead."""
    assert (False, True) == (
        demand_of(an_admitted(nodeName="n-2")).is_foreign,
        demand_of(a_pod(nodeName="n")).is_foreign,
    )


@pytest.mark.parametrize(
    ("owner", "way"),
    [
        ("ReplicaSet", Way.EVICT),
        ("StatefulSet", Way.EVICT),
        ("Job", Way.SUSPEND),
        ("Workflow", Way.STAY),
        ("", Way.STAY),
    ],
)
def test_the_owner_decides_how_a_pod_is_put_back(owner: str, way: Way) -> None:
    """A pod that nothing would replace stays, and one of a Job is never deleted."""
    assert way is way_back(a_pod(owner=owner))


def test_only_pods_that_no_scheduler_has_bound_are_overdue() -> None:
    """A gang ends whole by the timeout of its launch."""
    gang = an_admitted(meta={"labels": {"peloton.io/gang-size": "2"}})
    pods = [late := an_admitted(), an_admitted(nodeName="n-2"), a_pod(GATE), gang]
    assert [late] == find_overdue(pods, ADMITTED_S + 300.0, {"team": 300.0})
    assert [] == find_overdue(pods, ADMITTED_S + 299.0, {"team": 300.0})
    assert [] == find_overdue(pods, ADMITTED_S + 300.0, {"another": 1.0}), "no bound is known yet"


@pytest.mark.parametrize(
    ("marks", "timeout_s", "refusal"),
    [
        ({}, 0, ""),
        ({"labels": {ADMISSION_TIMEOUT: "900"}}, 900, ""),
        ({"annotations": {ADMISSION_TIMEOUT: "1"}}, 1, ""),
        ({"annotations": {ADMISSION_TIMEOUT: "0"}}, 0, "namespace maps: "),
        ({"annotations": {ADMISSION_TIMEOUT: "5m"}}, 0, "'5m': want a number from 1 to 604800"),
    ],
)
def test_a_namespace_may_have_a_bound_of_its_own(marks: Json, timeout_s: int, refusal: str) -> None:
    """A bound that cannot be read is refused, and keeps the pool."""
    pool = {"peloton.io/pool": "maps"}
    meta = {"name": "maps", **marks, "labels": {**pool, **marks.get("labels", {})}}
    terms = read_terms({"metadata": meta})
    assert ("maps", timeout_s, bool(refusal)) == (terms.pool, terms.timeout_s, bool(terms.refusal))
    assert refusal in terms.refusal


def test_a_job_with_pods_on_nodes_is_not_suspended() -> None:
    """The suspension would end them: the pod that is not scheduled stays."""
    late, busy = an_admitted(owner="Job"), an_admitted("u-2", owner="Job", nodeName="n-2")
    key = JobKey("team", "web", "u")
    assert ([], {key}, []) == sort_overdue([late], [late])
    assert ([], set(), [late]) == sort_overdue([late], [late, busy])
    assert ({key}, set()) == (jobs_to_suspend([late, busy], [late, busy]), jobs_to_suspend([late], [late, busy]))
    assert set() == jobs_to_suspend([busy], [busy]), "pods with a node are evicted"


GPU, DEDICATED = Taint("nvidia.com/gpu", "", "NoSchedule"), Taint("peloton.io/dedicated", "yes", "NoExecute")
EVERYTHING = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("tolerations", "away_from", "asks_for_exclusive"),
    [
        ([], [GPU, DEDICATED], False),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], [DEDICATED], True),
        ([{"key": "peloton.io/dedicated", "value": "no"}], [GPU, DEDICATED], False),
        ([{"key": "peloton.io/dedicated", "value": "yes", "effect": "NoExecute"}], [GPU], True),
        ([EVERYTHING], [], True),
    ],
)
def test_the_fit_test_knows_taints_and_tolerations(
    tolerations: list[Json], away_from: list[Taint], asks_for_exclusive: bool
) -> None:
    """A pod fits on no node whose taints it does not tolerate, and on nodes that others do not use if it does."""
    pod = a_pod(GATE, tolerations=tolerations)
    found = config_of(pod, owner_of_bare_pod(pod), "k8s", frozenset({(GPU,), (DEDICATED,)}))
    constraint = convert.pod_shape(found.defaultConfig, found.sla).constraint
    expected = [HostLabel(TAINTS_LABEL, str(taint), "<") for taint in away_from]
    expected += [HostLabel("peloton/exclusive", "none", "<")] if asks_for_exclusive else []
    assert AllOf((HostLabel("peloton/cluster", "k8s"), *expected)) == constraint


def test_nodes_with_taints_that_are_used_are_exclusive() -> None:
    """No other pods are placed there, while a node dedicated to Peloton takes all of them."""
    settings = KubernetesSettings("x", taints_used=frozenset({"nvidia.com/gpu"}))
    found = {}
    for key in ("nvidia.com/gpu", "peloton.io/dedicated", "other"):
        spec = {"taints": [{"key": key, "effect": "NoSchedule"}]}
        node = node_of({"metadata": {"name": "n", "uid": "u"}, "spec": spec}, settings)
        assert node is not None
        found[key] = (node.labels.get(TAINTS_LABEL), "peloton/exclusive" in node.labels, bool(node.withdrawn))
    assert {
        "nvidia.com/gpu": ("nvidia.com/gpu:NoSchedule", True, False),
        "peloton.io/dedicated": ("peloton.io/dedicated:NoSchedule", False, False),
        "other": ("other:NoSchedule", False, True),
    } == found


def test_a_pod_names_its_group_in_one_of_three_ways() -> None:
    """Kubernetes' own field is first; a group that names no size has gangs of one pod."""
    own = a_pod(GATE, schedulingGroup={"podGroupName": "own"})
    plugins = a_pod(GATE, meta={"labels": {PLUGINS_LABEL: "plugins"}})
    volcano = a_pod(GATE, meta={"annotations": {VOLCANO_ANNOTATION: "volcano"}})
    keys = [key for pod in (own, plugins, volcano) if (key := group_of(pod)) is not None]
    assert [
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/own",
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/plugins",
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/volcano",
    ] == [key.path for key in keys]
    gang = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}, "minMember": 5}}
    assert [4, 5, 5] == [size_of(gang, key) for key in keys]
    assert 1 == size_of({"spec": {"schedulingPolicy": {"basic": {}}}}, keys[0])
    assert [] == find_overdue(
        [an_admitted(schedulingGroup={"podGroupName": "own"})], ADMITTED_S + 900.0, {"team": 300.0}
    )
