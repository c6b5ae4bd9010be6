"""The YAML file of a simulation. Its faults name file, field, rule and number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from services.minicluster.hosts import MAX_HOSTS, PORT_MAX, HostSpec
from services.minicluster.simulation.distributions import ONE, Distribution, Exponential, Fixed, Lognormal, Uniform
from services.minicluster.simulation.outcomes import (
    Failure,
    HostClass,
    HostFailures,
    ImageRule,
    RunTime,
    Simulation,
    When,
    class_sizes,
)

SECONDS_MAX = 1e9
FACTOR_MAX = 1e6
SIGMA_MAX = 10.0
SIGNAL_MAX = 64
_DISTRIBUTIONS = "uniform: [LOW, HIGH]; exponential: {mean, max}; lognormal: {median, sigma, max}"
T = TypeVar("T")


class SimulationFileError(ValueError):
    """A description that cannot be used."""


class _Row:
    """A mapping of the file, and where it is: every look at a field checks it."""

    def __init__(self, where: str, value: object, fields: str, joint: str = ".") -> None:
        self.where = where
        self._joint = joint
        if not isinstance(value, dict):
            raise SimulationFileError(f"{where}: expected a mapping with some of {fields}, got {value!r}")
        known = fields.split(", ")
        unknown = sorted(str(key) for key in value if key not in known)
        if unknown:
            raise SimulationFileError(f"{where}: unknown field {unknown[0]!r}; the fields are {fields}")
        self._value: dict[str, Any] = value

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def _at(self, key: str) -> str:
        return f"{self.where}{self._joint}{key}"

    def fault(self, key: str, rule: str) -> SimulationFileError:
        return SimulationFileError(f"{self._at(key)}: must be {rule}, got {self._value.get(key)!r}")

    def only_one(self, *keys: str) -> None:
        found = [key for key in keys if key in self]
        if len(found) > 1:
            raise SimulationFileError(f"{self.where}: {' and '.join(found)} exclude each other")

    def number(self, key: str, default: float, least: float, most: float, is_whole: bool = False) -> float:
        value = self._value.get(key, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not least <= value <= most or (is_whole and value != int(value)):
            raise self.fault(key, f"a {'whole ' if is_whole else ''}number from {least:g} to {most:g}")
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        value = self._value.get(key, default)
        if not isinstance(value, str) or not value:
            if key not in self:
                return default
            raise self.fault(key, "a text that is not empty")
        return value

    def flag(self, key: str) -> bool:
        value = self._value.get(key, False)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._value.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.fault(key, "a mapping of names")
        return value

    def row(self, key: str, fields: str) -> _Row:
        return _Row(self._at(key), self._value.get(key, {}), fields)

    def rows(self, key: str, read: Callable[[_Row], T], fields: str) -> tuple[T, ...]:
        value = self._value.get(key, [])
        if not isinstance(value, list):
            raise self.fault(key, "a list")
        return tuple(read(_Row(f"{self._at(key)}[{index}]", item, fields)) for index, item in enumerate(value))

    def distribution(self, key: str, default: Distribution, least: float, most: float) -> Distribution:
        """Whose draws all lie between the two."""
        if key not in self:
            return default
        found = self._distribution(key, most)
        if not least <= found.least <= found.most <= most:
            reach = f"{found.least:g} to {found.most:g}"
            raise SimulationFileError(f"{self._at(key)}: {reach} is not within {least:g} to {most:g}")
        return found

    def _distribution(self, key: str, most: float) -> Distribution:
        value = self._value[key]
        if not isinstance(value, dict):
            return Fixed(self.number(key, 0.0, -math.inf, math.inf))
        kind = next(iter(value), None)
        if len(value) != 1 or kind not in ("uniform", "exponential", "lognormal"):
            raise self.fault(key, f"a number or one of {_DISTRIBUTIONS}")
        if kind == "uniform":
            ends = value[kind]
            if not isinstance(ends, list) or len(ends) != 2:
                raise self.fault(key, "uniform: [LOW, HIGH]")
            pair = _Row(f"{self.where}.{key}.uniform", dict(zip(("low", "high"), ends, strict=True)), "low, high")
            low = pair.number("low", 0.0, -math.inf, math.inf)
            return Uniform(low, pair.number("high", 0.0, low, math.inf))
        fields = "mean, max" if kind == "exponential" else "median, sigma, max"
        row = _Row(f"{self.where}.{key}.{kind}", value[kind], fields)
        end = row.number("max", most, 0.0, most)
        if kind == "exponential":
            return Exponential(row.number("mean", 0.0, 1e-6, SECONDS_MAX), end)
        return Lognormal(row.number("median", 0.0, 1e-6, SECONDS_MAX), row.number("sigma", 0.0, 0.0, SIGMA_MAX), end)


def load_simulation(path: Path, count: int) -> Simulation:
    """The description in the file, for so many hosts. Raises SimulationFileError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationFileError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SimulationFileError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    top = _Row(str(path), content, "seed, hosts, run_times, failures, images", joint=": ")
    classes = top.rows("hosts", _host_class, _HOST_FIELDS)
    names = [row.name for row in classes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SimulationFileError(f"{path}: hosts: {names.count(twice)} classes have the name {twice!r}")
    try:
        if classes:
            class_sizes(classes, count)
    except ValueError as error:
        raise SimulationFileError(f"{path}: {error}") from error
    return Simulation(
        seed=int(top.number("seed", 0, -(2**53), 2**53, is_whole=True)),
        hosts=classes,
        run_times=top.rows("run_times", _run_time, "when, seconds, times"),
        failures=top.rows("failures", _failure, "when, probability, exit_code, signal, at"),
        images=top.rows("images", _image, "image, seconds, size_mb, bandwidth_mb_s, jitter"),
    )


_HOST_FIELDS = "name, count, share, cpus, mem, disk, gpus, ports, attributes, slow, bandwidth_mb_s, failures"


def _host_class(row: _Row) -> HostClass:
    if "name" not in row:
        raise row.fault("name", "a text that is not empty")
    row.only_one("count", "share")
    usual = HostSpec(row.text("name"))
    spec = replace(
        usual,
        cpus=row.number("cpus", usual.cpus, 0.0, 1e6),
        mem=row.number("mem", usual.mem, 0.0, 1e12),
        disk=row.number("disk", usual.disk, 0.0, 1e12),
        gpus=int(row.number("gpus", 0, 0, 1e6, is_whole=True)),
        ports=_ports(row) if "ports" in row else usual.ports,
    )
    failures = None
    if "failures" in row:
        inner = row.row("failures", "every_s, repair_s, keeps_pods")
        for key in ("every_s", "repair_s"):
            if key not in inner:
                raise inner.fault(key, f"a number or one of {_DISTRIBUTIONS}")
        failures = HostFailures(
            inner.distribution("every_s", ONE, 0.0, SECONDS_MAX),
            inner.distribution("repair_s", ONE, 0.0, SECONDS_MAX),
            inner.flag("keeps_pods"),
        )
    return HostClass(
        name=usual.name,
        spec=spec,
        count=int(row.number("count", 0, 0, MAX_HOSTS, is_whole=True)) if "count" in row else None,
        share=row.number("share", 1.0, 0.0, 1e6),
        attributes=tuple((key, _values(row, key, value)) for key, value in row.mapping("attributes").items()),
        slow=row.distribution("slow", ONE, 0.001, FACTOR_MAX),
        bandwidth_mb_s=row.number("bandwidth_mb_s", 1.0, 0.001, 1e9) if "bandwidth_mb_s" in row else None,
        failures=failures,
    )


def _ports(row: _Row) -> tuple[tuple[int, int], ...]:
    """All hosts of a class have the same: their tasks are no processes."""
    text = row.text("ports")
    begin, dash, end = text.partition("-")
    if not (dash and begin.isdigit() and end.isdigit() and 0 < int(begin) <= int(end) <= PORT_MAX):
        raise row.fault("ports", f"BEGIN-END within 1-{PORT_MAX}")
    return ((int(begin), int(end)),)


def _values(row: _Row, key: str, value: object) -> tuple[str | float, ...]:
    values = value if isinstance(value, list) and value else [value]
    found: list[str | float] = []
    for item in values:
        if isinstance(item, bool) or not isinstance(item, (str, int, float)):
            raise SimulationFileError(
                f"{row.where}.attributes.{key}: must be a text, a number or a list of them, got {value!r}"
            )
        found.append(item if isinstance(item, str) else float(item))
    return tuple(found)


def _when(row: _Row) -> When:
    inner = row.row("when", "labels, command")
    labels = inner.mapping("labels")
    wrong = next((key for key, value in labels.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise SimulationFileError(f"{inner.where}.labels.{wrong}: must be a text, got {labels[wrong]!r}")
    return When(tuple(labels.items()), inner.text("command"))


def _run_time(row: _Row) -> RunTime:
    seconds = row.distribution("seconds", ONE, 0.0, SECONDS_MAX) if "seconds" in row else None
    return RunTime(_when(row), seconds, row.distribution("times", ONE, 0.0, FACTOR_MAX))


def _failure(row: _Row) -> Failure:
    row.only_one("exit_code", "signal")
    if "probability" not in row:
        raise row.fault("probability", "a number from 0 to 1")
    return Failure(
        _when(row),
        row.number("probability", 0.0, 0.0, 1.0),
        int(row.number("exit_code", 1, 1, 255, is_whole=True)),
        int(row.number("signal", 0, 1, SIGNAL_MAX, is_whole=True)) if "signal" in row else 0,
        row.distribution("at", ONE, 0.0, 1.0),
    )


def _image(row: _Row) -> ImageRule:
    row.only_one("seconds", "size_mb")
    if "size_mb" in row and "bandwidth_mb_s" not in row:
        raise row.fault("bandwidth_mb_s", "a number beside size_mb; a class of hosts may have its own")
    return ImageRule(
        image=row.text("image"),
        seconds=row.distribution("seconds", ONE, 0.0, SECONDS_MAX) if "seconds" in row else None,
        size_mb=row.distribution("size_mb", ONE, 0.0, 1e9) if "size_mb" in row else None,
        bandwidth_mb_s=row.number("bandwidth_mb_s", 1.0, 0.001, 1e9),
        jitter=row.distribution("jitter", ONE, 0.0, FACTOR_MAX),
    )
