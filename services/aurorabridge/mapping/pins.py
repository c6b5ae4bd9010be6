"""Pinned updates: the specs of instances that keep other instances of the job, and unchanged ones, as they are.

An update of Peloton rolls out a whole spec. One of Aurora may name the instances that it touches, and restarts the
stopped ones among them, even if nothing changes. Both become ``instance_spec`` of the job, over the generated spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peloton.api.compare import same_task
from peloton.api.convert_v1_spec import task_config
from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec
from services.aurorabridge.mapping.identity import UPDATE


@dataclass(frozen=True)
class CurrentPod:
    """A pod of an instance; pods of the same configuration share their spec."""

    spec: PodSpec
    is_terminal: bool


def instance_specs(
    pods: Mapping[int, CurrentPod], generated: PodSpec, count: int, named: set[int] | None, update: str
) -> dict[int, PodSpec]:
    """Return the specs that the job's instances need over the generated one.

    ``named``: instances that the update touches, None for all. ``update``: value of the label that restarts a stopped
    pod whose spec has not changed.
    """
    compare = Comparison(generated)
    found = {}
    for instance in range(count):
        pod = pods.get(instance)
        if pod is None:
            continue
        is_named = named is None or instance in named
        spec = _pin(pod, compare, is_named, generated, update)
        if spec is not None:
            found[instance] = spec
    return found


def _pin(pod: CurrentPod, compare: Comparison, is_named: bool, generated: PodSpec, update: str) -> PodSpec | None:
    is_changed, is_marked = compare.is_changed(pod.spec), any(label.key == UPDATE for label in pod.spec.labels)
    if is_changed:
        return None if is_named else _complete(pod.spec)
    if is_named and pod.is_terminal:
        return _labels_only(generated, [*generated.labels, Label(key=UPDATE, value=update)])
    return _labels_only(pod.spec, pod.spec.labels) if is_marked else None


def _complete(spec: PodSpec) -> PodSpec:
    """Return a copy that stays as it is, whatever the generated spec adds, a port or a constraint for example."""
    made = PodSpec()
    made.CopyFrom(spec)
    made.complete = True
    return made


def _labels_only(spec: PodSpec, labels: Iterable[Label]) -> PodSpec:
    """Return the labels with all booleans of the spec, which an override always decides."""
    return PodSpec(labels=labels, revocable=spec.revocable, controller=spec.controller)


class Comparison:
    """Compares specs with the generated one, each only once: a job of 10,000 pods has few different specs."""

    def __init__(self, generated: PodSpec) -> None:
        self._generated = _without_update(generated)
        self._known: dict[int, tuple[PodSpec, bool]] = {}

    def is_changed(self, spec: PodSpec) -> bool:
        """Return whether a pod of this spec would be replaced for the generated one, labels of updates apart."""
        kept = self._known.get(id(spec))
        if kept is None:  # the entry keeps the spec, so that no other gets its id
            kept = self._known[id(spec)] = spec, not same_task(_without_update(spec), self._generated)
        return kept[1]


def _without_update(spec: PodSpec) -> TaskConfig:
    task = task_config(spec)
    kept = [label for label in task.labels if label.key != UPDATE]
    del task.labels[:]
    task.labels.extend(kept)
    return task


def read_ranges(ranges: Iterable[Any] | None, count: int) -> set[int] | None:
    """Return the instances in closed ranges, below ``count``; None if there are no ranges: the update touches all."""
    if not ranges:
        return None
    found: set[int] = set()
    beyond = 0
    for first, last in sorted((one.first or 0, one.last or 0) for one in ranges):
        end = min(last + 1, count)
        found.update(range(max(first, beyond), end))  # each instance is added once, however much the ranges overlap
        beyond = max(beyond, end)
    return found
