"""The YAML file of a simulation. Its faults name file, field, rule and number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from services.lab.shared.hosts import MAX_HOSTS, HostSpec, size_of
from services.lab.shared.simulation.distributions import ONE, Distribution, Exponential, Fixed, Lognormal, Uniform
from services.lab.shared.simulation.outcomes import (
    Failure,
    HostClass,
    HostFailures,
    ImageRule,
    RunTime,
    Simulation,
    When,
    class_sizes,
)
from services.lab.shared.yaml_rows import PORT_MAX, FileFault, Row, is_number, port_range, read_yaml

SECONDS_MAX = 1e9
FACTOR_MAX = 1e6
SIGMA_MAX = 10.0
SIGNAL_MAX = 64
_DISTRIBUTIONS = "uniform: [LOW, HIGH]; exponential: {mean, max}; lognormal: {median, sigma, max}"


def _distribution(row: Row, key: str, least: float, most: float) -> Distribution:
    """Return a distribution whose draws all lie from ``least`` to ``most``; ONE without the key."""
    if key not in row:
        return ONE
    found = _parse(row, key, most)
    if not least <= found.least <= found.most <= most:
        reach = f"{found.least:g} to {found.most:g}"
        raise FileFault(f"{row.at(key)}: {reach} is not within {least:g} to {most:g}")
    return found


def _parse(row: Row, key: str, most: float) -> Distribution:
    value = row.get(key)
    if not isinstance(value, dict):
        return Fixed(row.number(key, 0.0, -math.inf, math.inf))
    kind = next(iter(value), None)
    if len(value) != 1 or kind not in ("uniform", "exponential", "lognormal"):
        raise row.fault(key, f"a number or one of {_DISTRIBUTIONS}")
    if kind == "uniform":
        ends = value[kind]
        if not isinstance(ends, list) or len(ends) != 2:
            raise row.fault(key, "uniform: [LOW, HIGH]")
        pair = Row(f"{row.where}.{key}.uniform", dict(zip(("low", "high"), ends, strict=True)), "low, high")
        low = pair.number("low", 0.0, -math.inf, math.inf)
        return Uniform(low, pair.number("high", 0.0, low, math.inf))
    fields = "mean, max" if kind == "exponential" else "median, sigma, max"
    inner = Row(f"{row.where}.{key}.{kind}", value[kind], fields)
    end = inner.number("max", most, 0.0, most)
    if kind == "exponential":
        return Exponential(inner.number("mean", 0.0, 1e-6, SECONDS_MAX), end)
    return Lognormal(inner.number("median", 0.0, 1e-6, SECONDS_MAX), inner.number("sigma", 0.0, 0.0, SIGMA_MAX), end)


def load_simulation(path: Path, count: int) -> Simulation:
    """Return the simulation that the file describes, for ``count`` hosts. Raises FileFault."""
    top = Row(str(path), read_yaml(path), "seed, hosts, run_times, failures, images", joint=": ")
    classes = top.rows("hosts", _host_class, _HOST_FIELDS)
    names = [row.name for row in classes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FileFault(f"{path}: hosts: {names.count(twice)} classes have the name {twice!r}")
    try:
        if classes:
            class_sizes(classes, count)
    except ValueError as error:
        raise FileFault(f"{path}: {error}") from error
    return Simulation(
        seed=int(top.number("seed", 0, -(2**53), 2**53, is_whole=True)),
        hosts=classes,
        run_times=top.rows("run_times", _run_time, "when, seconds, times"),
        failures=top.rows("failures", _failure, "when, probability, exit_code, signal, at"),
        images=top.rows("images", _image, "image, seconds, size_mb, bandwidth_mb_s, jitter"),
    )


_HOST_FIELDS = "name, count, share, cpus, mem, disk, gpus, ports, attributes, slow, bandwidth_mb_s, failures"


def _host_class(row: Row) -> HostClass:
    if "name" not in row:
        raise row.fault("name", "a text that is not empty")
    row.only_one("count", "share")
    usual = HostSpec(row.text("name"))
    spec = HostSpec(usual.name, *size_of(row, usual), ports=_ports(row) if "ports" in row else usual.ports)
    failures = None
    if "failures" in row:
        inner = row.row("failures", "every_s, repair_s, keeps_pods")
        for key in ("every_s", "repair_s"):
            if key not in inner:
                raise inner.fault(key, f"a number or one of {_DISTRIBUTIONS}")
        failures = HostFailures(
            _distribution(inner, "every_s", 0.0, SECONDS_MAX),
            _distribution(inner, "repair_s", 0.0, SECONDS_MAX),
            inner.flag("keeps_pods"),
        )
    return HostClass(
        name=usual.name,
        spec=spec,
        count=int(row.number("count", 0, 0, MAX_HOSTS, is_whole=True)) if "count" in row else None,
        share=row.number("share", 1.0, 0.0, 1e6),
        attributes=tuple((key, _values(row, key, value)) for key, value in row.mapping("attributes").items()),
        slow=_distribution(row, "slow", 0.001, FACTOR_MAX),
        bandwidth_mb_s=row.number("bandwidth_mb_s", 1.0, 0.001, 1e9) if "bandwidth_mb_s" in row else None,
        failures=failures,
    )


def _ports(row: Row) -> tuple[tuple[int, int], ...]:
    """Return the one range of all hosts of a class: they may share ports, for their tasks are not processes."""
    found = port_range(row.text("ports"))
    if found is None:
        raise row.fault("ports", f"BEGIN-END within 1-{PORT_MAX}")
    return (found,)


def _values(row: Row, key: str, value: object) -> tuple[str | float, ...]:
    values: list[Any] = value if isinstance(value, list) and value else [value]
    found: list[str | float] = []
    for item in values:
        if not isinstance(item, str) and not is_number(item):
            raise FileFault(f"{row.where}.attributes.{key}: must be a text, a number or a list of them, got {value!r}")
        found.append(item if isinstance(item, str) else float(item))
    return tuple(found)


def _when(row: Row) -> When:
    inner = row.row("when", "labels, command")
    labels = inner.mapping("labels")
    wrong = next((key for key, value in labels.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise FileFault(f"{inner.where}.labels.{wrong}: must be a text, got {labels[wrong]!r}")
    return When(tuple(labels.items()), inner.text("command"))


def _run_time(row: Row) -> RunTime:
    seconds = _distribution(row, "seconds", 0.0, SECONDS_MAX) if "seconds" in row else None
    return RunTime(_when(row), seconds, _distribution(row, "times", 0.0, FACTOR_MAX))


def _failure(row: Row) -> Failure:
    row.only_one("exit_code", "signal")
    if "probability" not in row:
        raise row.fault("probability", "a number from 0 to 1")
    return Failure(
        _when(row),
        row.number("probability", 0.0, 0.0, 1.0),
        int(row.number("exit_code", 1, 1, 255, is_whole=True)),
        int(row.number("signal", 0, 1, SIGNAL_MAX, is_whole=True)) if "signal" in row else 0,
        _distribution(row, "at", 0.0, 1.0),
    )


def _image(row: Row) -> ImageRule:
    row.only_one("seconds", "size_mb")
    if "size_mb" in row and "bandwidth_mb_s" not in row:
        raise row.fault("bandwidth_mb_s", "a number next to size_mb; a class of hosts may have its own")
    return ImageRule(
        image=row.text("image"),
        seconds=_distribution(row, "seconds", 0.0, SECONDS_MAX) if "seconds" in row else None,
        size_mb=_distribution(row, "size_mb", 0.0, 1e9) if "size_mb" in row else None,
        bandwidth_mb_s=row.number("bandwidth_mb_s", 1.0, 0.001, 1e9),
        jitter=_distribution(row, "jitter", 0.0, FACTOR_MAX),
    )
