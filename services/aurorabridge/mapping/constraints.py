"""Constraints of tasks on hosts, as constraints of pods and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.pod_pb2 import Constraint, LabelConstraint
from services.aurorabridge.mapping import identity
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

_HOST = "host"
_LABEL, _AND, _OR = Constraint.CONSTRAINT_TYPE_LABEL, Constraint.CONSTRAINT_TYPE_AND, Constraint.CONSTRAINT_TYPE_OR
_ON_PODS, _ON_HOSTS = LabelConstraint.LABEL_CONSTRAINT_KIND_POD, LabelConstraint.LABEL_CONSTRAINT_KIND_HOST


# -- inward --------------------------------------------------------------------------------------------------------


def pod_constraint(constraints: Iterable[Any] | None, name: str) -> Constraint | None:
    """Return the constraint of the pods of the job with this name; None without constraints. Raises Refusal."""
    parts = [_part(one, name) for one in sorted(constraints or (), key=lambda one: one.name or "")]
    if len(parts) < 2:
        return parts[0] if parts else None
    return Constraint(type=_AND, and_constraint=pod_pb2.AndConstraint(constraints=parts))


def _part(constraint: Any, name: str) -> Constraint:
    prefix, kind = f"constraint {constraint.name or ''}", constraint.constraint
    if kind is not None and kind.limit is not None:
        if constraint.name != _HOST:
            raise Refusal(f"{prefix}: only host limit constraints supported")
        if (kind.limit.limit or 0) < 1:
            raise Refusal(f"{prefix}: the limit is {kind.limit.limit or 0}, want at least 1")
        return _limit(name, kind.limit.limit)
    if kind is None or kind.value is None:
        raise Refusal(f"{prefix}: neither a value nor a limit is set")
    if kind.value.negated:
        raise Refusal(f"{prefix}: negated value constraints not supported")
    if not kind.value.values:
        raise Refusal(f"{prefix}: no value is set")
    values = [_value(constraint.name or "", value) for value in sorted(set(kind.value.values))]
    if len(values) == 1:
        return values[0]
    return Constraint(type=_OR, or_constraint=pod_pb2.OrConstraint(constraints=values))


def _limit(name: str, limit: int) -> Constraint:
    return _label(
        LabelConstraint(
            kind=_ON_PODS,
            condition=LabelConstraint.LABEL_CONSTRAINT_CONDITION_LESS_THAN,
            label=Label(key=identity.POD_KEY, value=name),
            requirement=limit,
        )
    )


def _value(attribute: str, value: str) -> Constraint:
    return _label(
        LabelConstraint(
            kind=_ON_HOSTS,
            condition=LabelConstraint.LABEL_CONSTRAINT_CONDITION_EQUAL,
            label=Label(key=attribute, value=value),
            requirement=1,
        )
    )


def _label(label: LabelConstraint) -> Constraint:
    return Constraint(type=_LABEL, label_constraint=label)


# -- outward -------------------------------------------------------------------------------------------------------


def task_constraints(constraint: Constraint) -> list[Any]:
    """Return the constraints of a task. Raises Refusal for a constraint that Aurora lacks."""
    if constraint.type == Constraint.CONSTRAINT_TYPE_INVALID:
        return []
    if constraint.type == _AND:
        return [_task_constraint(part) for part in constraint.and_constraint.constraints]
    return [_task_constraint(constraint)]


def _task_constraint(constraint: Constraint) -> Any:
    alternatives = constraint.or_constraint.constraints if constraint.type == _OR else [constraint]
    labels = [one.label_constraint for one in alternatives if one.type == _LABEL]
    keys = {label.label.key for label in labels}
    if len(labels) != len(alternatives) or len(keys) != 1:
        raise Refusal("the constraint of the pod has no counterpart in Aurora: it is no limit, and no set of values")
    if labels[0].kind == _ON_PODS:
        limit = api.LimitConstraint(limit=labels[0].requirement)
        return api.Constraint(name=_HOST, constraint=api.TaskConstraint(limit=limit))
    value = api.ValueConstraint(negated=False, values=[label.label.value for label in labels])
    return api.Constraint(name=keys.pop(), constraint=api.TaskConstraint(value=value))
