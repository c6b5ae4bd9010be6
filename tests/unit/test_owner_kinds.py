"""The table of owners that can be suspended: their pods, their flag, their end, and which of them can be held."""

from __future__ import annotations

from typing import Any

import pytest

from services.hostmgr.kubernetes.pods.statuses import sum_occupied
from services.hostmgr.kubernetes.suspend.owner_fields import POD_SETS_MAX, PODS_MAX
from services.hostmgr.kubernetes.suspend.owner_kinds import (
    KINDS,
    OwnerKind,
    Unreadable,
    holdable_cel,
    is_ended,
    is_suspended,
    pod_sets,
    reference_path,
    suspend_patch,
    unmet_need,
)
from tests.unit.owner_examples import SIZES, SPECS, example, kind_named, pod_template, runtime

EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
JOB, JOB_SET, TRAIN_JOB = (
    kind_named(*one) for one in (("Job", "v1"), ("JobSet", "v1alpha2"), ("TrainJob", "v1alpha1"))
)
RAY_JOB, RAY_CLUSTER = kind_named("RayJob", "v1"), kind_named("RayCluster", "v1")
MPI_JOB, SPARK = kind_named("MPIJob", "v2beta1"), kind_named("SparkApplication", "v1beta2")
Json = dict[str, Any]


def sizes(kind: OwnerKind, object: Json, referenced: Json | None = None) -> dict[str, int]:
    return {one.name: one.count for one in pod_sets(kind, object, referenced)}


def request(kind: OwnerKind, object: Json, name: str, referenced: Json | None = None) -> tuple[int, int]:
    """Return thousandths of cpu and MiB of a pod of the named set."""
    found = next(one for one in pod_sets(kind, object, referenced) if one.name == name)
    total = sum_occupied(found.template)
    return total.cpu_milli, total.memory_mib


def merge(object: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    kept = {key: value for key, value in object.items() if patch.get(key, ...) is not None}
    return kept | {key: merge(kept.get(key) or {}, value) for key, value in patch.items() if value is not None}


@EACH
def test_each_kind_has_its_pod_sets(kind: OwnerKind) -> None:
    """The example of a kind has the pods that its controller would make, and each of their templates is a pod."""
    referenced = runtime() if kind is TRAIN_JOB else None

    assert SIZES[kind.kind, kind.version] == sizes(kind, example(kind), referenced)
    for one in pod_sets(kind, example(kind), referenced):
        assert sum_occupied(one.template).cpu_milli > 0


@EACH
def test_each_kind_is_suspended_and_resumed(kind: OwnerKind) -> None:
    """A patch sets the flag and leaves the rest of the object, whatever it had before."""
    running = example(kind)
    suspended = merge(running, suspend_patch(kind, True))

    assert not is_suspended(kind, running)
    assert is_suspended(kind, suspended)
    assert not is_suspended(kind, merge(suspended, suspend_patch(kind, False)))
    assert sizes(kind, running, runtime()) == sizes(kind, suspended, runtime())


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        (JOB, {"conditions": [{"type": "Failed", "status": "True"}]}, True),
        (JOB, {"conditions": [{"type": "Suspended", "status": "True"}]}, False),
        (JOB, {"conditions": [{"type": "Complete", "status": "False"}]}, False),
        (JOB_SET, {"conditions": [{"type": "Completed", "status": "True"}]}, True),
        (JOB_SET, {}, False),
        (TRAIN_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        (MPI_JOB, {"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
        (MPI_JOB, {"conditions": [{"type": "Restarting", "status": "True"}]}, False),
        (RAY_JOB, {"jobDeploymentStatus": "Complete"}, True),
        (RAY_JOB, {"jobDeploymentStatus": "Retrying"}, False),
        (RAY_CLUSTER, {"state": "failed"}, False),
        (SPARK, {"applicationState": {"state": "COMPLETED"}}, True),
        (SPARK, {"applicationState": {"state": "FAILING"}}, False),
        (SPARK, {"applicationState": {"state": "PENDING_RERUN"}}, False),
    ],
)
def test_the_end_of_an_owner_is_read(kind: OwnerKind, status: Json, expected: bool) -> None:
    """Each kind says in its own way that it has ended; one that will try again has not."""
    assert expected is is_ended(kind, {**example(kind), "status": status})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parallelism": None, "completions": None}, {"main": 1}),
        ({"parallelism": 5, "completions": None}, {"main": 5}),
        ({"parallelism": 5, "completions": 9}, {"main": 5}),
        ({"parallelism": 0, "completions": 9}, {}),
    ],
)
def test_a_job_has_no_more_pods_than_it_completes(spec: Json, expected: Json) -> None:
    """A Job of fewer completions than its parallelism never has more pods than those."""
    assert expected == sizes(JOB, example(JOB, **spec))


def test_defaults_of_replicas_are_those_of_the_kind() -> None:
    """MPI workers are none by default, other roles one."""
    bare = {role: {"template": pod_template()} for role in ("Launcher", "Worker")}

    assert {"Launcher": 1} == sizes(MPI_JOB, example(MPI_JOB, mpiReplicaSpecs=bare))


def ray(kind: OwnerKind = RAY_CLUSTER, group: Json | None = None, **fields: Any) -> Json:
    spec = SPECS["RayCluster", "v1"]
    groups = [{**spec["workerGroupSpecs"][0], **(group or {})}]
    cluster = {**spec, "workerGroupSpecs": groups, **fields}
    return example(kind, rayClusterSpec=cluster) if kind is RAY_JOB else example(kind, **cluster)


@pytest.mark.parametrize(
    ("group", "fields", "expected"),
    [
        ({"replicas": 1, "minReplicas": 2}, {}, 2),
        ({"replicas": 11, "maxReplicas": 4}, {}, 4),
        ({"replicas": None, "minReplicas": 2, "numOfHosts": 4}, {}, 8),
        ({"suspend": True}, {}, None),
        ({"replicas": 1, "maxReplicas": 6}, {"enableInTreeAutoscaling": True}, 6),
    ],
)
def test_workers_of_ray_keep_their_bounds(group: Json, fields: Json, expected: int | None) -> None:
    """Replicas keep within minimum and maximum; a cluster that scales itself is counted with its maximum."""
    assert expected == sizes(RAY_CLUSTER, ray(group=group, **fields)).get("small")


def test_containers_that_kuberay_adds_are_counted() -> None:
    """The autoscaler and a submitting sidecar are containers of the head, the submitter is a pod."""
    assert (1000, 64) == request(RAY_CLUSTER, ray(), "head")
    assert (1500, 64 + 512) == request(RAY_CLUSTER, ray(enableInTreeAutoscaling=True), "head")

    beside = example(RAY_JOB, submissionMode="SidecarMode")
    assert (1500, 64 + 200) == request(RAY_JOB, beside, "head")
    assert "submitter" not in sizes(RAY_JOB, beside)
    assert "submitter" not in sizes(RAY_JOB, example(RAY_JOB, submissionMode="HTTPMode"))
    assert (500, 200) == request(RAY_JOB, example(RAY_JOB), "submitter")
    assert (2000, 64) == request(RAY_JOB, example(RAY_JOB, submitterPodTemplate=pod_template("2")), "submitter")


def test_a_train_job_takes_its_pods_from_its_runtime() -> None:
    """Nodes and their resources are those of the TrainJob if it names them, else those of the runtime."""
    own = example(TRAIN_JOB)
    bare = example(TRAIN_JOB, trainer=None)

    assert "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-two-nodes" == reference_path(
        TRAIN_JOB, own
    )
    mine = example(TRAIN_JOB, runtimeRef={"kind": "TrainingRuntime", "name": "a"})
    assert "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/a" == reference_path(TRAIN_JOB, mine)
    assert "" == reference_path(TRAIN_JOB, example(TRAIN_JOB, runtimeRef={"kind": "Recipe", "name": "a"}))
    assert "" == reference_path(JOB, example(JOB))
    assert (2000, 0) == request(TRAIN_JOB, own, "node", runtime())
    assert (8000, 64) == request(TRAIN_JOB, bare, "node", runtime())
    assert {"dataset-initializer": 1, "node": 2} == sizes(TRAIN_JOB, bare, runtime())


def test_a_launcher_of_mpi_is_one_of_the_nodes() -> None:
    """A runtime whose launcher is a node has one node less for the others, and at least one."""
    policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": True}}
    both = runtime(**policy)
    launcher, node = both["spec"]["template"]["spec"]["replicatedJobs"]
    launcher["name"], launcher["template"]["metadata"] = "launcher", node["template"].pop("metadata")

    assert {"launcher": 1, "node": 2} == sizes(TRAIN_JOB, example(TRAIN_JOB), both)
    assert {"launcher": 1, "node": 1} == sizes(TRAIN_JOB, example(TRAIN_JOB, trainer={"numNodes": 1}), both)


def test_overrides_of_a_train_job_place_its_pods() -> None:
    """Node selectors and tolerations of an override are those of the pods that it targets."""
    override = {
        "targetJobs": [{"name": "node"}],
        "spec": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k"}]},
    }
    first, second = pod_sets(TRAIN_JOB, example(TRAIN_JOB, podTemplateOverrides=[override]), runtime())

    assert "nodeSelector" not in first.template["spec"]
    assert ({"zone": "a"}, [{"key": "k"}]) == (
        second.template["spec"]["nodeSelector"],
        second.template["spec"]["tolerations"],
    )


@pytest.mark.parametrize(
    ("spec", "role", "expected"),
    [
        ({}, "driver", (1000, 512 + 384)),
        ({}, "executor", (2000, 4096 + 409)),
        ({"type": "Python"}, "executor", (2000, 4096 + 1638)),
        ({"memoryOverheadFactor": "0.2"}, "executor", (2000, 4096 + 819)),
        ({"executor": {"memory": "1g", "memoryOverhead": "128m", "coreRequest": "250m"}}, "executor", (250, 1152)),
        ({"executor": {}, "sparkConf": {"spark.executor.memory": "2048"}}, "executor", (1000, 2048 + 384)),
        ({"executor": {}, "sparkConf": {"spark.executor.pyspark.memory": "1g"}}, "executor", (1000, 2048 + 384)),
        ({"driver": {"template": pod_template("7", "own")}}, "driver", (1000, 1024 + 384)),
    ],
)
def test_pods_of_spark_ask_for_heap_and_overhead(spec: Json, role: str, expected: tuple[int, int]) -> None:
    """Memory is that of the heap and its overhead, from fields or properties of Spark, which override the template."""
    assert expected == request(SPARK, example(SPARK, **spec), role)


def test_a_template_of_spark_keeps_its_other_containers() -> None:
    """Sidecars and fields of placement are in the template; graphics processors are requests."""
    own = {
        "template": {"spec": {"containers": [{"name": "own"}, {"name": "log"}]}},
        "sidecars": [{"name": "proxy"}],
        "gpu": {"name": "nvidia.com/gpu", "quantity": 2},
        "nodeSelector": {"disk": "fast"},
    }
    driver, _ = pod_sets(SPARK, example(SPARK, driver=own, nodeSelector={"zone": "a"}))

    spec = driver.template["spec"]
    assert ["own", "log", "proxy"] == [one["name"] for one in spec["containers"]]
    assert "2" == spec["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
    assert {"zone": "a", "disk": "fast"} == spec["nodeSelector"]


def test_executors_that_come_later_are_counted_at_once() -> None:
    """Dynamic allocation is admitted with its maximum, which it must name."""
    dynamic = example(SPARK, dynamicAllocation={"enabled": True, "minExecutors": 1, "maxExecutors": 7})
    assert {"driver": 1, "executor": 7} == sizes(SPARK, dynamic)
    by_property = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "5"}
    assert {"driver": 1, "executor": 5} == sizes(SPARK, example(SPARK, sparkConf=by_property))


@pytest.mark.parametrize(
    ("kind", "spec", "error"),
    [
        (JOB, {"parallelism": -1}, "Job team/one: parallelism is -1: want a whole number of 0 or more"),
        (JOB, {"template": {}}, "Job team/one: spec main.template is no pod template: want spec.containers"),
        (JOB, {"parallelism": PODS_MAX + 1, "completions": None}, "100,001 pods or more, the limit is 100,000"),
        (JOB_SET, {"replicatedJobs": ["none"]}, "JobSet team/one: spec.replicatedJobs None.template.spec.template"),
        (JOB_SET, {"replicatedJobs": 3}, "JobSet team/one: a field of its pod sets has another type"),
        (RAY_JOB, {"rayClusterSpec": None}, "RayJob team/one: spec.rayClusterSpec is missing"),
        (TRAIN_JOB, {}, "TrainJob team/one: its ClusterTrainingRuntime 'torch-two-nodes' is missing"),
        (SPARK, {"dynamicAllocation": {"enabled": True}}, "spec.dynamicAllocation.maxExecutors is missing"),
        (SPARK, {"driver": {"memory": "much"}}, "spec.driver.memory is 'much': want a size such as 512m or 2g"),
        (SPARK, {"executor": {"instances": "2x"}}, "spec.executor.instances is '2x': want a whole number"),
        (SPARK, {"memoryOverheadFactor": "a"}, "spec.memoryOverheadFactor is 'a': want a number such as 0.1"),
    ],
)
def test_an_owner_that_cannot_be_counted_says_why(kind: OwnerKind, spec: Json, error: str) -> None:
    """The error names the owner, the field, the rule and the value."""
    with pytest.raises(Unreadable) as raised:
        pod_sets(kind, example(kind, **spec))
    assert error in str(raised.value)


def test_pod_sets_are_bounded() -> None:
    """An owner of more pod sets than the limit is refused."""
    many = [{"name": str(n), "template": {"spec": {"template": pod_template()}}} for n in range(POD_SETS_MAX + 1)]
    with pytest.raises(Unreadable, match="more than 1,000 pod sets"):
        pod_sets(JOB_SET, example(JOB_SET, replicatedJobs=many))


@pytest.mark.parametrize(
    ("kind", "spec", "reason"),
    [
        (JOB, {}, ""),
        (JOB, {"managedBy": "kubernetes.io/job-controller"}, ""),
        (JOB, {"managedBy": "example.org/other"}, "spec.managedBy is 'example.org/other': to be held by suspend"),
        (RAY_JOB, {}, ""),
        (RAY_JOB, {"shutdownAfterJobFinishes": False}, "spec.shutdownAfterJobFinishes is False"),
        (RAY_JOB, {"clusterSelector": {"ray.io/cluster": "a"}}, "it must be missing"),
    ],
)
def test_owners_that_their_controllers_would_refuse_are_not_held(kind: OwnerKind, spec: Json, reason: str) -> None:
    """A RayJob that keeps its cluster cannot be suspended, and an owner of a foreign controller is left alone."""
    found = unmet_need(kind, example(kind, **spec))
    assert reason in found if reason else found == ""


def test_needs_are_expressions_for_policies() -> None:
    """Policies test the same needs as the controller."""
    assert (
        "(!object.?spec.?managedBy.hasValue() || object.?spec.?managedBy.hasValue() && object.?spec.?managedBy.value() "
        "in ['kubernetes.io/job-controller'])"
    ) == holdable_cel(JOB)
    assert holdable_cel(RAY_JOB).endswith(
        "(object.?spec.?shutdownAfterJobFinishes.hasValue() && object.?spec.?shutdownAfterJobFinishes.value() in "
        "[true]) && !object.?spec.?clusterSelector.hasValue()"
    )
    assert "true" == holdable_cel(SPARK)
