"""Pods of SparkApplications: the driver and the executors, whose resources are fields and properties of Spark and no
pod template.

Executors that are allocated dynamically are counted with their maximum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pods.quantities import MIB
from services.hostmgr.kubernetes.suspend.owner_fields import PodSet, Unreadable, find

MEMORY = "1g"
OVERHEAD_MIN_MIB = 384
_JVM_OVERHEAD, _OTHER_OVERHEAD = "0.1", "0.4"
_SIZE = re.compile(r"(\d{1,12})([kmgtp]?)b?", re.ASCII)
_COUNT = re.compile(r"\d{1,12}", re.ASCII)
_FACTOR = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
_UNITS = {unit: Fraction(2 ** (10 * power)) for power, unit in enumerate("kmgtp", 1)} | {"": Fraction(MIB)}
_PLACEMENT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName", "initContainers")


def spark_pods(object: Json, _: Json | None) -> Iterator[PodSet]:
    yield PodSet("driver", 1, _template(object, "driver"))
    count, first = _count_executors(object)
    yield PodSet("executor", count, _template(object, "executor"), max(count - first, 0))


def _property(object: Json, path: str, *names: str) -> Any:
    """Return the field of the spec, or else the first property of Spark that is set."""
    if (found := find(object["spec"], path)) is not None:
        return found
    properties = object["spec"].get("sparkConf") or {}
    return next((properties[name] for name in names if name in properties), None)


def _count_executors(object: Json) -> tuple[int, int]:
    """Return the most executors, and those that the driver makes at its start."""
    dynamic = "dynamicAllocation"
    instances = _property(object, "executor.instances", "spark.executor.instances")
    if str(_property(object, f"{dynamic}.enabled", f"spark.{dynamic}.enabled")).lower() != "true":
        return (count := _whole(instances, "executor.instances")), count
    most = _property(object, f"{dynamic}.maxExecutors", f"spark.{dynamic}.maxExecutors")
    if most is None:
        raise Unreadable(f"spec.{dynamic}.maxExecutors is missing: want a limit of the executors to admit")
    first = [instances or 0]
    first += [
        _property(object, f"{dynamic}.{name}", f"spark.{dynamic}.{name}") or 0
        for name in ("initialExecutors", "minExecutors")
    ]
    return _whole(most, f"{dynamic}.maxExecutors"), max(_whole(each, dynamic) for each in first)


def _whole(value: Any, path: str) -> int:
    """Return a count, which a property has as a text; 1 if it is missing. Raises Unreadable."""
    text = "1" if value is None else str(value)
    if _COUNT.fullmatch(text) is None:
        raise Unreadable(f"spec.{path} is {value!r}: want a whole number of 0 or more")
    return int(text)


def _template(object: Json, role: str) -> Json:
    own = object["spec"].get(role) or {}
    base = own.get("template") or {}
    spec = base.get("spec") or {}
    first, *others = spec.get("containers") or [{}]
    requests = {"cpu": _cpu(object, role), "memory": f"{_memory_mib(object, role)}Mi"}
    if gpu := own.get("gpu"):
        requests[str(gpu["name"])] = str(gpu["quantity"])
    main = {**first, "name": first.get("name") or f"spark-kubernetes-{role}", "resources": {"requests": requests}}
    placement = {key: own[key] for key in _PLACEMENT if own.get(key)}
    if selector := {**(object["spec"].get("nodeSelector") or {}), **(own.get("nodeSelector") or {})}:
        placement["nodeSelector"] = selector
    containers = [main, *others, *(own.get("sidecars") or ())]
    return {"metadata": base.get("metadata") or {}, "spec": {**spec, **placement, "containers": containers}}


def _cpu(object: Json, role: str) -> str:
    wanted = _property(object, f"{role}.coreRequest", f"spark.kubernetes.{role}.request.cores")
    return str(wanted or _property(object, f"{role}.cores", f"spark.{role}.cores") or 1)


def _memory_mib(object: Json, role: str) -> int:
    """Return the memory of a pod: of the heap and its overhead, as Spark asks for it."""
    memory = _size_mib(_property(object, f"{role}.memory", f"spark.{role}.memory") or MEMORY, f"{role}.memory")
    overhead = _property(object, f"{role}.memoryOverhead", f"spark.{role}.memoryOverhead")
    if overhead is not None:
        memory += _size_mib(overhead, f"{role}.memoryOverhead")
    else:
        memory += max(OVERHEAD_MIN_MIB, int(_overhead_factor(object, role) * memory))
    properties = object["spec"].get("sparkConf") or {}
    if role == "executor" and "spark.executor.pyspark.memory" in properties:
        memory += _size_mib(properties["spark.executor.pyspark.memory"], "sparkConf of spark.executor.pyspark.memory")
    return memory


def _overhead_factor(object: Json, role: str) -> Fraction:
    is_jvm = object["spec"].get("type") in ("Java", "Scala")
    names = (f"spark.{role}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")
    text = str(_property(object, "memoryOverheadFactor", *names) or (_JVM_OVERHEAD if is_jvm else _OTHER_OVERHEAD))
    if _FACTOR.fullmatch(text) is None:
        raise Unreadable(f"spec.memoryOverheadFactor is {text!r}: want a number such as 0.1")
    return Fraction(text)


def _size_mib(value: Any, path: str) -> int:
    """Return a size in Java's notation, such as 512m, whose unit is MiB if it names none."""
    match = _SIZE.fullmatch(str(value).lower())
    if match is None:
        raise Unreadable(f"spec.{path} is {value!r}: want a size such as 512m or 2g")
    number, unit = match.groups()
    return -(-int(number) * _UNITS[unit] // MIB)
