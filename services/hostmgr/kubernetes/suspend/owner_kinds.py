"""Kinds of owners that can be suspended: where their flag, their pods and their end are. The table is data.

A suspended owner has no pods; its pod sets say what it will ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend.owner_fields import (
    POD_SETS_MAX,
    PODS_MAX,
    PodSet,
    Unreadable,
    find,
    read_count,
    read_template,
)
from services.hostmgr.kubernetes.suspend.ray_pod_sets import ray_cluster_pods, ray_job_pods
from services.hostmgr.kubernetes.suspend.spark_pod_sets import spark_pods
from services.hostmgr.kubernetes.suspend.train_job_pod_sets import runtime_path, train_job_pods

__all__ = ["KINDS", "End", "Need", "OwnerKind", "PodSet", "PodSets", "Unreadable"]


class Factor(NamedTuple):
    """A factor of a count: the least of the fields that are there, or ``otherwise`` if none is."""

    least_of: tuple[str, ...]
    otherwise: int = 1


@dataclass(frozen=True, slots=True)
class PodSets:
    """The place of pod sets in an object.

    ``path`` leads to one set, to a list of them, or to a map of them. Each has a pod template and a count, which is the
    product of the factors. The sets of a map are named by its keys, those of a list by the field ``name``; one set has
    ``name`` itself.
    """

    path: str
    form: str = "one"
    name: str = "name"
    template: str = "template"
    count: tuple[Factor, ...] = (Factor(("replicas",)),)
    otherwise: tuple[tuple[str, int], ...] = ()
    """Counts of named sets that have none of the fields of the first factor."""


class End(NamedTuple):
    """The signs that an owner has ended: a condition that is true, or a value of a field."""

    conditions: tuple[str, ...] = ()
    state_path: str = ""
    states: tuple[str, ...] = ()


class Need(NamedTuple):
    """A field that must have one of the values for an owner to be held; None stands for a missing field."""

    path: str
    values: tuple[str | bool | None, ...]


class OwnerKind(NamedTuple):
    """A kind of owners. Its pod sets are in the given places, or ``read`` finds them: the function has the object that
    ``reference`` names, if the kind has one, as the second argument."""

    group: str
    version: str
    kind: str
    plural: str
    suspend_path: str
    places: tuple[PodSets, ...] = ()
    end: End = End()
    needs: tuple[Need, ...] = ()
    read: Callable[[Json, Json | None], Iterator[PodSet]] | None = None
    reference: Callable[[Json], str] | None = None
    has_driver: bool = False
    """One of its pods makes the others."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def is_job(self) -> bool:
        """Return whether it is the Job of Kubernetes itself, of which Peloton knows more than the table says."""
        return (self.group, self.kind) == ("batch", "Job")


def pod_sets(kind: OwnerKind, object: Json, referenced: Json | None = None) -> tuple[PodSet, ...]:
    """Return the pod sets of an owner that have pods. ``referenced`` is the object of ``reference_path``. Raises
    Unreadable."""
    found: list[PodSet] = []
    total = 0
    try:
        for each in _read(kind, object, referenced):
            total += each.count
            if each.count:
                found.append(each)
            if len(found) > POD_SETS_MAX:
                raise Unreadable(f"it has more than {POD_SETS_MAX:,} pod sets")
            if total > PODS_MAX:
                raise Unreadable(f"it has {total:,} pods or more, the limit is {PODS_MAX:,}")
    except Unreadable as error:
        raise Unreadable(f"{_title(kind, object)}: {error}") from None
    except (AttributeError, TypeError, KeyError) as error:
        raise Unreadable(f"{_title(kind, object)}: a field of its pod sets has another type ({error})") from None
    return tuple(found)


def _title(kind: OwnerKind, object: Json) -> str:
    meta = object["metadata"]
    return f"{kind.kind} {meta.get('namespace')}/{meta.get('name')}"


def _read(kind: OwnerKind, object: Json, referenced: Json | None) -> Iterator[PodSet]:
    if kind.read is not None:
        yield from kind.read(object, referenced)
    for place in kind.places:
        yield from _read_place(object, place)


def _read_place(object: Json, place: PodSets) -> Iterator[PodSet]:
    found = find(object, place.path)
    if place.form == "one":
        entries = [(place.name, found)]
    elif place.form == "map":
        entries = list((found or {}).items())
    else:
        entries = [(str(find(entry, place.name)), entry) for entry in found or ()]
    for name, entry in entries:
        count = 1
        for number, factor in enumerate(place.count):
            otherwise = dict(place.otherwise).get(name, factor.otherwise) if number == 0 else factor.otherwise
            counts = [read_count(entry, path, otherwise) for path in factor.least_of if find(entry, path) is not None]
            count *= min(counts, default=otherwise)
        yield PodSet(name, count, read_template(entry, place.template, f"{place.path} {name}"))


def reference_path(kind: OwnerKind, object: Json) -> str:
    """Return the path at the apiserver of the object that describes the owner's pods; empty if the owner does."""
    return kind.reference(object) if kind.reference is not None else ""


def is_suspended(kind: OwnerKind, object: Json) -> bool:
    return find(object, kind.suspend_path) is True


def suspend_patch(kind: OwnerKind, is_suspended: bool) -> Json:
    """Return the merge patch that sets the flag."""
    *path, last = kind.suspend_path.split(".")
    patch: Json = {last: is_suspended}
    for name in reversed(path):
        patch = {name: patch}
    return patch


def is_ended(kind: OwnerKind, object: Json) -> bool:
    """Return whether the owner has succeeded or failed for ever."""
    status = object.get("status") or {}
    end = kind.end
    if any(one["type"] in end.conditions and one["status"] == "True" for one in status.get("conditions") or ()):
        return True
    return bool(end.state_path) and find(object, end.state_path) in end.states


def unmet_need(kind: OwnerKind, object: Json) -> str:
    """Return the reason why an owner of this kind cannot be held; empty if it can."""
    for need in kind.needs:
        found = find(object, need.path)
        if found not in need.values:
            wanted = " or ".join("missing" if value is None else f"{value!r}" for value in need.values)
            return f"{need.path} is {found!r}: to be held by suspend it must be {wanted}"
    return ""


def holdable_cel(kind: OwnerKind) -> str:
    """Return the needs as an expression of CEL on ``object``, for policies; "true" if there are none."""
    return " && ".join(map(_need_cel, kind.needs)) or "true"


def _need_cel(need: Need) -> str:
    path = "object." + ".".join(f"?{name}" for name in need.path.split("."))
    values = ", ".join("true" if value is True else f"'{value}'" for value in need.values if value is not None)
    if not values:
        return f"!{path}.hasValue()"
    found = f"{path}.hasValue() && {path}.value() in [{values}]"
    return f"(!{path}.hasValue() || {found})" if None in need.values else f"({found})"


_JOB_PODS = Factor(("parallelism", "completions"))
_COMPLETE = End(("Complete", "Failed"))
_SUCCEEDED = End(("Succeeded", "Failed"))
_NO_WORKERS = (("Worker", 0),)


def _need_controller(path: str, name: str) -> Need:
    """Return the need that the kind's own controller manages the owner."""
    return Need(path, (None, name))


def _replicas(path: str, otherwise: tuple[tuple[str, int], ...] = ()) -> tuple[PodSets, ...]:
    return (PodSets(path, "map", otherwise=otherwise),)


_TRAINING = (_need_controller("spec.runPolicy.managedBy", "kubeflow.org/training-operator"),)
_MPI = (_need_controller("spec.runPolicy.managedBy", "kubeflow.org/mpi-operator"),)
_RAY = _need_controller("spec.managedBy", "ray.io/kuberay-operator")
_FLAG, _POLICY_FLAG = "spec.suspend", "spec.runPolicy.suspend"

KINDS = (
    OwnerKind(
        *("batch", "v1", "Job", "jobs", _FLAG),
        places=(PodSets("spec", name="main", count=(_JOB_PODS,)),),
        end=_COMPLETE,
        needs=(_need_controller("spec.managedBy", "kubernetes.io/job-controller"),),
    ),
    OwnerKind(
        *("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", _FLAG),
        places=(
            PodSets(
                *("spec.replicatedJobs", "list", "name", "template.spec.template"),
                (Factor(("replicas",)), Factor(("template.spec.parallelism", "template.spec.completions"))),
            ),
        ),
        end=End(("Completed", "Failed")),
        needs=(_need_controller("spec.managedBy", "jobset.sigs.k8s.io/jobset-controller"),),
    ),
    OwnerKind(
        *("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", _FLAG),
        end=_COMPLETE,
        needs=(_need_controller("spec.managedBy", "trainer.kubeflow.org/trainjob-controller"),),
        read=train_job_pods,
        reference=runtime_path,
    ),
    OwnerKind(
        *("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", _POLICY_FLAG),
        places=_replicas("spec.pytorchReplicaSpecs"),
        end=_SUCCEEDED,
        needs=_TRAINING,
    ),
    OwnerKind(
        *("kubeflow.org", "v1", "TFJob", "tfjobs", _POLICY_FLAG),
        places=_replicas("spec.tfReplicaSpecs"),
        end=_SUCCEEDED,
        needs=_TRAINING,
    ),
    OwnerKind(  # of the older training operator
        *("kubeflow.org", "v1", "MPIJob", "mpijobs", _POLICY_FLAG),
        places=_replicas("spec.mpiReplicaSpecs", _NO_WORKERS),
        end=_SUCCEEDED,
        needs=_TRAINING,
    ),
    OwnerKind(  # of the MPI operator; a cluster has one of the two
        *("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", _POLICY_FLAG),
        places=_replicas("spec.mpiReplicaSpecs", _NO_WORKERS),
        end=_SUCCEEDED,
        needs=_MPI,
    ),
    OwnerKind(
        *("ray.io", "v1", "RayJob", "rayjobs", _FLAG),
        end=End(state_path="status.jobDeploymentStatus", states=("Complete", "Failed")),
        needs=(_RAY, Need("spec.shutdownAfterJobFinishes", (True,)), Need("spec.clusterSelector", (None,))),
        read=ray_job_pods,
    ),
    OwnerKind(*("ray.io", "v1", "RayCluster", "rayclusters", _FLAG), needs=(_RAY,), read=ray_cluster_pods),
    OwnerKind(
        *("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications", _FLAG),
        end=End(state_path="status.applicationState.state", states=("COMPLETED", "FAILED")),
        read=spark_pods,
        has_driver=True,
    ),
)
